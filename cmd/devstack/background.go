package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/chprojector/projector/internal/testenv"
)

// There is one stack in the background for each cache folder. It holds the lock on a file there that has its
// endpoints. A lock rather than a process id decides whether it runs: it cannot outlive the process, and an id may
// belong to a stranger by now.

// detach starts this program again in the background and returns when that has printed its endpoints.
func (c *upCmd) detach(ctx context.Context, to streams) error {
	if e, err := background(); err == nil {
		return fmt.Errorf("devstack runs in the background already (pid %d; stop it with: devstack down)", e.PID)
	} else if !errors.Is(err, errNo) {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := cacheDir()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "devstack.log"))
	if err != nil {
		return fmt.Errorf("open the log of the background process: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(self, c.args()...)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		_ = cmd.Wait()
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("the background process ended: %s", strings.TrimPrefix(strings.TrimSpace(string(text)), "devstack: "))
	}
	var e endpoints
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("read the addresses from the background process: %w", err)
	}
	fmt.Fprintf(to.err, "devstack: runs in the background (pid %d, log %s); stop it with: devstack down\n", e.PID, log.Name())
	return errors.Join(e.hint(to.err), e.print(to.out, c.Output), cmd.Process.Release())
}

// args are the arguments that repeat c in the background.
func (c *upCmd) args() []string {
	args := []string{
		"up", "--background", "--output=json", "--kafka=" + c.Kafka, "--ports=" + c.Ports,
		fmt.Sprintf("--clickhouse=%t", c.ClickHouse), "--clickhouse-database=" + c.ClickHouseDatabase,
		fmt.Sprintf("--mariadb=%t", c.MariaDB), "--mariadb-database=" + c.MariaDBDatabase,
	}
	for topic, partitions := range c.Topics {
		args = append(args, fmt.Sprintf("--topics=%s=%d", topic, partitions))
	}
	if c.Data != "" {
		args = append(args, "--data="+c.Data)
	}
	return args
}

type statusCmd struct {
	Output string `short:"o" enum:"shell,json" default:"shell" help:"How to print the addresses: shell (lines for eval) or json."`
}

func (c *statusCmd) Run(to streams) error {
	e, err := background()
	if err != nil {
		return err
	}
	return e.print(to.out, c.Output)
}

type downCmd struct{}

func (*downCmd) Run(ctx context.Context, to streams) error {
	e, err := background()
	if err != nil {
		return err
	}
	if err := syscall.Kill(e.PID, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the background process %d: %w", e.PID, err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := background(); errors.Is(err, errNo) {
			fmt.Fprintln(to.err, "devstack: stopped")
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("interrupted; the background process may still be stopping")
		case <-tick.C:
		}
	}
}

// claimState locks the state file for this process, which is to run in the background.
func claimState() (*os.File, error) {
	f, locked, err := lockState(os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if !locked {
		f.Close()
		return nil, errors.New("another devstack runs in the background already (stop it with: devstack down)")
	}
	return f, f.Truncate(0)
}

// releaseState empties and unlocks the state file. It stays: a process may be waiting for the lock on this very file.
func releaseState(f *os.File) {
	_ = f.Truncate(0)
	f.Close()
}

// background returns the endpoints of the stack in the background, or errNo.
func background() (*endpoints, error) {
	f, locked, err := lockState(0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errNo
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if locked {
		return nil, errNo
	}
	var e endpoints
	if err := json.NewDecoder(f).Decode(&e); err != nil {
		return nil, errors.New("the background process is starting or stopping; try again in a moment")
	}
	return &e, nil
}

// lockState opens the state file, with flag, and tries to lock it.
func lockState(flag int) (f *os.File, locked bool, err error) {
	dir, err := cacheDir()
	if err != nil {
		return nil, false, err
	}
	f, err = os.OpenFile(filepath.Join(dir, "devstack.json"), os.O_RDWR|flag, 0o644)
	if err != nil {
		return nil, false, fmt.Errorf("look for devstack in the background: %w", err)
	}
	locked, err = testenv.TryLock(f)
	if err != nil {
		f.Close()
		return nil, false, err
	}
	return f, locked, nil
}

// cacheDir is testenv.CacheDir, created.
func cacheDir() (string, error) {
	dir, err := testenv.CacheDir()
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}
