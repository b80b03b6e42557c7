package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// contestant is one way to bring a topic into the table.
type contestant struct {
	name  string
	start func(ctx context.Context, r *run) (contest, error)
}

// contest is a contestant at work.
type contest interface {
	// pids are the processes that work for the contestant alone. There is none for ClickHouse's Kafka engine.
	pids() []int
	// check returns an error when the contestant has ended before its time.
	check() error
	// finish is called once all rows are there. It ends the contestant and returns the processor time of its
	// processes over their whole lives.
	finish(ctx context.Context) (time.Duration, error)
	// kill ends the contestant at once. It may follow finish.
	kill()
}

// run is one race of one contestant.
type run struct {
	stage    *stage
	server   address
	database string
	group    string
	allocs   float64 // an event, where the contestant tells
}

// address is where ClickHouse listens.
type address struct{ native, http string }

// The sample projection's table and view in the default configuration.
const (
	table       = "fitness_results_g1"
	currentView = "fitness_results_current"
)

// child is a process that ends by itself after its work, or on SIGTERM.
type child struct {
	cmd    *exec.Cmd
	output bytes.Buffer // of both streams
	ended  chan struct{}
	err    error // valid once ended is closed
}

func startChild(ctx context.Context, env []string, argv ...string) (*child, error) {
	c := &child{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = &c.output, &c.output
	c.cmd.Env = append(c.cmd.Environ(), env...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.ended)
	}()
	return c, ctx.Err()
}

func (c *child) check() error {
	select {
	case <-c.ended:
		if c.err != nil {
			return fmt.Errorf("%s ended: %w\n%s", c.cmd.Path, c.err, c.output.Bytes())
		}
	default:
	}
	return nil
}

// wait waits for the process to end by itself and returns its processor time.
func (c *child) wait(ctx context.Context) (time.Duration, error) {
	select {
	case <-c.ended:
		state := c.cmd.ProcessState
		return state.UserTime() + state.SystemTime(), c.check()
	case <-ctx.Done():
		return 0, fmt.Errorf("%s does not end: %w", c.cmd.Path, context.Cause(ctx))
	}
}

// kill ends the process as an operator would, and by force only when that does not help: embedded ClickHouse now and then
// aborts when a client is gone in the middle of a message.
func (c *child) kill() {
	const grace = 10 * time.Second
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
	case <-time.After(grace):
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
}

// crew is a contest of children.
type crew []*child

func (cs crew) pids() (pids []int) {
	for _, c := range cs {
		pids = append(pids, c.cmd.Process.Pid)
	}
	return pids
}

func (cs crew) check() error {
	var errs []error
	for _, c := range cs {
		errs = append(errs, c.check())
	}
	return errors.Join(errs...)
}

func (cs crew) finish(ctx context.Context) (cpu time.Duration, err error) {
	for _, c := range cs {
		d, err := c.wait(ctx)
		if err != nil {
			return 0, err
		}
		cpu += d
	}
	return cpu, nil
}

func (cs crew) kill() {
	for _, c := range cs {
		c.kill()
	}
}

// ownChild is a contestant that is part of this program.
func ownChild(label, name string, lanes int, variant string) contestant {
	return contestant{name: label, start: func(ctx context.Context, r *run) (contest, error) {
		argv, err := childCommand(name, job{
			Brokers: r.stage.brokers, Topic: topic, Partitions: r.stage.partitions, Group: r.group, Events: r.stage.events, ClickHouse: r.server.native,
			Database: r.database, Table: table, Lanes: lanes, Variant: variant,
		})
		if err != nil {
			return nil, err
		}
		c, err := startChild(ctx, nil, argv...)
		if err != nil {
			return nil, err
		}
		return crew{c}, nil
	}}
}

// closeAfter runs stop because of err and returns both errors.
func closeAfter(err error, stop func() error) error { return errors.Join(err, stop()) }
