package testenv

import (
	"context"
	"time"
)

// ProgramConfig says which program to run as a process, such as the projector that [Build] made.
type ProgramConfig struct {
	Name    string   // for errors and the name of its temporary folder
	Command []string // the program and its arguments
	Env     []string // beside the environment of this process, KEY=value
	Dir     string   // folder for its log; empty for a temporary one, removed at the end

	Ready    func(context.Context) error // one probe whether it has started; nil: it need not be
	Patience time.Duration               // how long Ready may take to succeed; 0: a minute
}

// Program is a running program under a keeper: it ends with us however we end, and can be signalled, killed and
// started again.
type Program struct{ process }

// StartProgram starts a program and returns when Ready says so.
func StartProgram(ctx context.Context, cfg ProgramConfig) (*Program, error) {
	helper, err := helperPath(ctx)
	if err != nil {
		return nil, err
	}
	p := &Program{process{name: cfg.Name, env: cfg.Env, ready: cfg.Ready, patience: cfg.Patience, grace: 30 * time.Second}}
	if p.ready == nil {
		p.ready = func(context.Context) error { return nil }
	}
	if p.patience == 0 {
		p.patience = time.Minute
	}
	if err := p.setDir(cfg.Dir); err != nil {
		return nil, err
	}
	if err := p.launch(ctx, helper, func() error { return nil }, cfg.Command...); err != nil {
		return nil, err
	}
	return p, nil
}

// Wait waits until the program has ended by itself or by a signal, at most for patience, and returns how:
// "exit status 0", "signal: killed".
func (p *Program) Wait(patience time.Duration) (string, error) { return p.ended(patience) }

// LogTail returns the last lines of what the program printed.
func (p *Program) LogTail() string { return tail(p.Log()) }
