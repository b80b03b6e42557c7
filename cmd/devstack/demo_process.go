package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/chprojector/projector/internal/testenv"
)

// process is a projector that runs on a stack.
type process struct {
	binary, config string
	env            []string
	admin          string // host:port of the admin server
	running        *testenv.Program
}

// newProcess prepares a projector with the given configuration and the stack's addresses. Nothing is started.
func newProcess(binary, config string, s *stack) (*process, error) {
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("the demo runs the projector itself: build it with `make build`, or name it with --binary: %w", err)
	}
	port, _, err := testenv.FreePort() // ours until the demo ends
	if err != nil {
		return nil, err
	}
	admin := fmt.Sprintf("127.0.0.1:%d", port)
	return &process{binary: binary, config: config, admin: admin, env: []string{
		"PROJECTOR_KAFKA__BROKERS=" + strings.Join(s.Kafka.Brokers, ","),
		"PROJECTOR_CLICKHOUSE__ADDRESSES=" + s.ClickHouse.Address,
		"PROJECTOR_CLICKHOUSE__DATABASE=" + s.ClickHouse.Database,
		"PROJECTOR_HTTP__ADDRESS=" + admin,
	}}, nil
}

// once runs a command to its end and shows what it prints, if it fails also what it logs.
func (p *process) once(ctx context.Context, out io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, p.binary, append([]string{"--config", p.config}, args...)...)
	cmd.Env = append(os.Environ(), p.env...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &log
	line := "projector " + strings.Join(args, " ")
	fmt.Fprintf(out, "\n$ %s\n", line)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", line, err, log.Bytes())
	}
	return nil
}

// start runs a command of the projector in the background.
func (p *process) start(ctx context.Context, command string) (err error) {
	p.running, err = testenv.StartProgram(ctx, testenv.ProgramConfig{
		Name: "projector " + command, Command: []string{p.binary, "--config", p.config, command}, Env: p.env,
	})
	return err
}

// drain ends the projector as Kubernetes would and returns how long that took. An exit code other than 0 is an error.
func (p *process) drain() (time.Duration, error) {
	begin := time.Now()
	if err := p.running.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	state, err := p.running.Wait(time.Minute)
	if err != nil {
		return 0, err
	}
	if state != "exit status 0" {
		return 0, fmt.Errorf("the projector ended with %s; the end of its log:\n%s", state, p.running.LogTail())
	}
	return time.Since(begin), nil
}
