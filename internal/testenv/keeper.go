package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// KeeperConfig says what a keeper runs.
type KeeperConfig struct {
	Command []string // the server's program and arguments
	Log     string   // file that receives the server's output, appended to
	Remove  string   // folder to remove when the keeper ends; empty for none
}

// Keep is the body of a keeper: the process between us and one server, which outlives us just long enough to clean
// up. It starts and signals the server on request and, when its input ends because its owner closed it or died by
// whatever signal, kills the server's process group and removes its folder.
//
// The obvious alternative, Linux's parent death signal, is tied to the thread that forked, does not exist on darwin,
// does not reach grandchildren and removes no folders.
//
// Requests and replies are lines, strictly one reply after one request, so an owner needs no goroutine:
//
//	start           started PID | error TEXT
//	signal NUMBER   ok | error TEXT
//	wait DURATION   exited STATUS | running
func Keep(cfg KeeperConfig, in io.Reader, out io.Writer) error {
	k := keeper{cfg: cfg}
	defer func() {
		k.kill()
		if cfg.Remove != "" {
			os.RemoveAll(cfg.Remove)
		}
	}()
	requests := make(chan string)
	quit := make(chan struct{})
	defer close(quit)
	go func() {
		defer close(requests)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			select {
			case requests <- lines.Text():
			case <-quit:
				return
			}
		}
	}()
	for request := range requests {
		reply, alive := k.do(request, requests)
		if !alive {
			return nil
		}
		if _, err := fmt.Fprintln(out, reply); err != nil {
			return fmt.Errorf("answer the owner: %w", err)
		}
	}
	return nil
}

type keeper struct {
	cfg    KeeperConfig
	cmd    *exec.Cmd     // the server's last incarnation; nil before the first start
	exited chan struct{} // closed when cmd has been reaped
}

// do answers one request; alive is false when the input ended meanwhile.
func (k *keeper) do(request string, requests <-chan string) (reply string, alive bool) {
	verb, argument, _ := strings.Cut(request, " ")
	switch verb {
	case "start":
		pid, err := k.start()
		if err != nil {
			return "error " + oneLine(err.Error()), true
		}
		return "started " + strconv.Itoa(pid), true
	case "signal":
		number, err := strconv.Atoi(argument)
		if err == nil {
			err = k.signal(syscall.Signal(number))
		}
		if err != nil {
			return "error " + oneLine(err.Error()), true
		}
		return "ok", true
	case "wait":
		patience, err := time.ParseDuration(argument)
		if err != nil {
			return "error " + oneLine(err.Error()), true
		}
		return k.wait(patience, requests)
	}
	return "error unknown request " + strconv.Quote(request), true
}

func (k *keeper) running() bool {
	if k.cmd == nil {
		return false
	}
	select {
	case <-k.exited:
		return false
	default:
		return true
	}
}

func (k *keeper) start() (pid int, err error) {
	if k.running() {
		return 0, errors.New("it is running already")
	}
	log, err := os.OpenFile(k.cfg.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd := exec.Command(k.cfg.Command[0], k.cfg.Command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // one signal reaches the server and its children
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	exited := make(chan struct{})
	k.cmd, k.exited = cmd, exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // ProcessState tells all
		// Children that outlived the server. Not later: its number may then be another's.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}()
	return cmd.Process.Pid, nil
}

func (k *keeper) signal(s syscall.Signal) error {
	if !k.running() {
		return errors.New("it is not running")
	}
	return syscall.Kill(-k.cmd.Process.Pid, s)
}

func (k *keeper) wait(patience time.Duration, requests <-chan string) (reply string, alive bool) {
	if k.cmd == nil {
		return "error it was never started", true
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-k.exited:
	case <-requests: // no owner asks while it awaits a reply, so this is the end of the input
		return "", false
	case <-timer.C:
		if k.running() {
			return "running", true
		}
	}
	return "exited " + k.cmd.ProcessState.String(), true
}

func (k *keeper) kill() {
	if k.running() {
		_ = k.signal(syscall.SIGKILL)
		<-k.exited
	}
}

func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
