package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a server under its keeper, seen from the owner. It holds no goroutine, so a server shared until the end
// of a test binary does not look like a leak.
type process struct {
	name      string // for errors: "ClickHouse"
	log       string // file with the server's output
	temporary bool
	ready     func(context.Context) error // one probe of the server's protocol
	settled   time.Duration               // how long a start may take
	grace     time.Duration               // how long SIGTERM may take before SIGKILL; 0 kills at once

	mu      sync.Mutex // one request at a time
	keeper  *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	pid     int
	stopped bool
}

// launch starts the keeper, the server, and waits until the server answers.
func (p *process) launch(ctx context.Context, helper string, cfg KeeperConfig) error {
	p.log, p.temporary = cfg.Log, cfg.Remove != ""
	args := []string{"keep", "--log", cfg.Log}
	if cfg.Remove != "" {
		args = append(args, "--remove", cfg.Remove)
	}
	cmd := exec.Command(helper, append(args, cfg.Command...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the terminal's Ctrl-C is for us alone
	// Never our own stderr: `go test` waits until every holder of it is gone.
	stderr, err := os.OpenFile(cfg.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the keeper of %s: %w", p.name, err)
	}
	p.keeper, p.in, p.out = cmd, in, bufio.NewReader(out)
	if err := p.start(ctx); err != nil {
		return errors.Join(err, p.stop())
	}
	return nil
}

// start starts the server again and waits until it answers.
func (p *process) start(ctx context.Context) error {
	reply, err := p.ask("start")
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	pid, err := strconv.Atoi(strings.TrimPrefix(reply, "started "))
	if err != nil {
		return fmt.Errorf("start %s: the keeper answered %q", p.name, reply)
	}
	p.mu.Lock()
	p.pid = pid
	p.mu.Unlock()
	return p.await(ctx)
}

// await polls the server's own protocol: a foreign process offers no other sign of being ready.
func (p *process) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.settled)
	defer cancel()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		probe, done := context.WithTimeout(ctx, 2*time.Second)
		err := p.ready(probe)
		done()
		if err == nil {
			return nil
		}
		if err := p.Running(); err != nil {
			return fmt.Errorf("start %s: %w", p.name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("start %s: no answer (%w): %w; its log ends with:\n%s", p.name, ctx.Err(), err, tail(p.log))
		case <-tick.C:
		}
	}
}

// PID returns the process id of the server's latest incarnation.
func (p *process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Log returns the path of the file that collects the server's output.
func (p *process) Log() string { return p.log }

// Signal sends s to the server and its children, for instance SIGSTOP for a server that holds its connections open
// and answers nothing.
func (p *process) Signal(s syscall.Signal) error {
	if _, err := p.ask("signal " + strconv.Itoa(int(s))); err != nil {
		return fmt.Errorf("send %s to %s: %w", s, p.name, err)
	}
	return nil
}

// Kill ends the server with SIGKILL, as the kernel's out-of-memory killer would, and returns when it is gone. Its
// data stays for Restart.
func (p *process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	return p.gone(10 * time.Second)
}

// Restart starts the server on the same data and the same ports, after ending it gently if it still runs, and
// returns when it answers.
func (p *process) Restart(ctx context.Context) error {
	if p.Running() == nil {
		if err := p.terminate(); err != nil {
			return err
		}
	}
	return p.start(ctx)
}

// Stop ends the server and removes its data folder if that is a temporary one. It may be called twice.
func (p *process) Stop() error {
	p.mu.Lock()
	stopped := p.stopped
	p.mu.Unlock()
	if stopped {
		return nil
	}
	var err error
	if !p.temporary && p.Running() == nil { // temporary data need no gentle end
		err = p.terminate()
	}
	return errors.Join(err, p.stop())
}

// Running returns nil while the server's process runs, and otherwise how it ended with the last lines of its log.
func (p *process) Running() error {
	reply, err := p.ask("wait 0s")
	if err != nil {
		return fmt.Errorf("look after %s: %w", p.name, err)
	}
	if reply != "running" {
		return fmt.Errorf("%s %s; its log ends with:\n%s", p.name, reply, tail(p.log))
	}
	return nil
}

func (p *process) terminate() error {
	if p.grace > 0 {
		if err := p.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		if p.gone(p.grace) == nil {
			return nil
		}
	}
	return p.Kill()
}

func (p *process) gone(patience time.Duration) error {
	reply, err := p.ask("wait " + patience.String())
	if err != nil {
		return fmt.Errorf("await the end of %s: %w", p.name, err)
	}
	if reply == "running" {
		return fmt.Errorf("%s (pid %d) still runs after %s", p.name, p.PID(), patience)
	}
	return nil
}

// stop ends the keeper by closing its input: it kills what still runs and removes the folder.
func (p *process) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	p.stopped = true
	p.in.Close()
	if err := p.keeper.Wait(); err != nil {
		return fmt.Errorf("end the keeper of %s: %w", p.name, err)
	}
	return nil
}

func (p *process) ask(request string) (reply string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return "", errors.New("it was stopped")
	}
	if _, err := fmt.Fprintln(p.in, request); err != nil {
		return "", fmt.Errorf("ask its keeper to %s: %w", request, err)
	}
	reply, err = p.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("ask its keeper to %s: %w", request, err)
	}
	reply = strings.TrimSuffix(reply, "\n")
	if text, bad := strings.CutPrefix(reply, "error "); bad {
		return "", errors.New(text)
	}
	return reply, nil
}

// tail returns the last lines of a server's log.
func tail(path string) string {
	const limit = 4 << 10
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > limit {
		_, _ = f.Seek(-limit, io.SeekEnd)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	if len(text) == 0 {
		return "(nothing)"
	}
	return strings.TrimSpace(string(text))
}

// dataDir returns the folder for a server's data: dir itself, created, or a new temporary one that remove names too.
func dataDir(dir, name string) (path, remove string, err error) {
	if dir != "" {
		path, err = filepath.Abs(dir)
		if err == nil {
			err = os.MkdirAll(path, 0o755)
		}
		return path, "", err
	}
	path, err = os.MkdirTemp("", "projector-"+name+"-")
	return path, path, err
}
