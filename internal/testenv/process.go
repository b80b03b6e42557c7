package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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
	name      string                      // for errors: "ClickHouse"
	env       []string                    // beside our environment
	dir       string                      // folder with data, configuration and log
	temporary bool                        // dir is removed with the server
	ready     func(context.Context) error // one probe of the server's protocol
	patience  time.Duration               // how long a start may take
	grace     time.Duration               // how long SIGTERM may take before SIGKILL; 0 kills at once

	mu      sync.Mutex // one request at a time
	keeper  *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	pid     int
	stopped bool
}

// launch starts the keeper, creates the data folder, lets prepare fill it, starts the server and waits until it answers.
// The keeper comes first, so that at no moment a death of ours would leave the folder behind. On error nothing remains.
func (p *process) launch(ctx context.Context, helper string, prepare func() error, command ...string) error {
	args := []string{"keep", "--log", p.Log()}
	if p.temporary {
		args = append(args, "--remove", p.dir)
	}
	// No stderr: `go test` waits until every holder of ours is gone. What a keeper has to say, it replies.
	cmd := exec.Command(helper, append(args, command...)...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the terminal's Ctrl-C is for us alone
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
	if err = os.MkdirAll(filepath.Join(p.dir, "data"), 0o755); err == nil {
		err = prepare()
	}
	if err != nil {
		err = fmt.Errorf("prepare the data folder of %s: %w", p.name, err)
	} else {
		err = p.start(ctx)
	}
	if err != nil {
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
	ctx, cancel := context.WithTimeout(ctx, p.patience)
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
			return fmt.Errorf("start %s: no answer (%w): %w; its log ends with:\n%s", p.name, ctx.Err(), err, tail(p.Log()))
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

// Dir returns the folder with the server's data, configuration and log.
func (p *process) Dir() string { return p.dir }

// Log returns the path of the file that collects the server's output.
func (p *process) Log() string { return filepath.Join(p.dir, "server.log") }

// Signal sends s to the server and its children, for instance SIGSTOP for a server that holds its connections open
// and answers nothing.
func (p *process) Signal(s syscall.Signal) error {
	if _, err := p.ask("signal " + strconv.Itoa(int(s))); err != nil {
		return fmt.Errorf("send signal %d (%s) to %s: %w", s, s, p.name, err)
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
		return fmt.Errorf("%s %s; its log ends with:\n%s", p.name, reply, tail(p.Log()))
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
	_, err := p.ended(patience)
	return err
}

// ended waits for the end of the server and returns its state in the words of os.ProcessState.
func (p *process) ended(patience time.Duration) (state string, err error) {
	reply, err := p.ask("wait " + patience.String())
	if err != nil {
		return "", fmt.Errorf("await the end of %s: %w", p.name, err)
	}
	if reply == "running" {
		return "", fmt.Errorf("%s (pid %d) still runs after %s", p.name, p.PID(), patience)
	}
	return strings.TrimPrefix(reply, "exited "), nil
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

// setDir chooses the folder: dir, or a temporary one that does not exist yet if dir is empty.
func (p *process) setDir(dir string) error {
	if dir == "" {
		p.temporary = true
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("projector-%s-%016x", strings.ToLower(p.name), rand.Uint64()))
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("choose the data folder of %s: %w", p.name, err)
	}
	p.dir = path
	return nil
}
