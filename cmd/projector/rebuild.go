package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/rebuild"
)

type rebuildCommand struct {
	Start  rebuildStart  `cmd:"" help:"Create and fill the table of the configured generation."`
	Status rebuildStatus `cmd:"" help:"Show where a rebuild stands and what comes next."`
	Verify rebuildVerify `cmd:"" help:"Wait for the stream and compare the new generation with the source."`
	Switch rebuildSwitch `cmd:"" help:"Let the views read the new generation."`
	Close  rebuildClose  `cmd:"" help:"Close the old tables to every writer; drop them later."`
}

func (rebuildCommand) Help() string {
	return `Replaces a table whose contents are wrong at the right version, or whose design has to
change, by a clean one. The new table is filled beside the old one, which serves readers
until the new one was compared with the source, record by record and field by field.

Correct the mapping and raise the projection's generation in a copy of the configuration,
and use that copy for every command here. Each step is recorded; a command that was
interrupted, even by kill -9, is simply given again.

    projector --config g2.yaml rebuild start --reason "wrong school, ticket 4711"
    projector --config g2.yaml run                # beside the deployment that serves
    projector --config g2.yaml rebuild verify
    projector --config g2.yaml rebuild switch     # then stop the old deployment
    projector --config g2.yaml rebuild close
    projector --config g2.yaml rebuild verify     # once more, later
    projector --config g2.yaml rebuild close --drop`
}

// rebuildJob is a rebuild with its connections.
type rebuildJob struct {
	p          *program
	cfg        *config.Config
	projection *config.Projection
	table      chschema.Table // of the new generation
	conn       control
	reader     clickhouse.Reader // over conn
	admin      *kafka.Admin
	record     *audit.Log
	log        zerolog.Logger
	actor      string

	op       audit.Operation
	scope    rebuild.Scope
	progress rebuild.Progress
	run      *audit.Run
}

// reached is called between what a step does and what is recorded of it. Tests
// end the process there.
var reached = func(string) {}

// newRebuildJob connects to nothing yet. Close it.
func newRebuildJob(p *program, name string, by requester) (_ *rebuildJob, err error) {
	j := &rebuildJob{p: p, log: p.logger(), actor: by.actor(p.environ)}
	if j.cfg, err = p.load(); err != nil {
		return nil, err
	}
	if err := j.cfg.CheckFiles(); err != nil {
		return nil, err
	}
	if j.projection, err = projection(j.cfg, name); err != nil {
		return nil, err
	}
	j.table = j.cfg.Table(j.projection)
	conn, err := clickhouse.Open(j.cfg.Control())
	if err != nil {
		return nil, err
	}
	j.conn, j.reader = conn, clickhouse.NewReader(conn)
	j.record = audit.Open(j.conn, j.cfg.Audit())
	opts, err := j.cfg.KafkaClient().Options(j.log)
	if err == nil {
		j.admin, err = kafka.NewAdmin(opts...)
	}
	if err != nil {
		return nil, errors.Join(err, j.conn.Close())
	}
	return j, nil
}

func (j *rebuildJob) close() {
	j.admin.Close()
	_ = j.conn.Close() // everything it wrote was answered
}

// older is the projection's table in another generation.
func (j *rebuildJob) older(generation uint32) chschema.Table {
	t := j.table
	t.Generation = generation
	return t
}

// reads is the generation that readers see.
func (j *rebuildJob) reads(ctx context.Context) (generation uint32, ok bool, err error) {
	state, err := chschema.Inspect(ctx, j.conn, j.table)
	if err != nil {
		return 0, false, askClickHouse(j.cfg, err)
	}
	generation, ok = state.Reads(j.table)
	return generation, ok, nil
}

// latest is the rebuild of the projection into the highest generation, of those
// that nobody has withdrawn: the server's clock, by which they are listed, may
// have been put back.
func (j *rebuildJob) latest(ctx context.Context) (op audit.Operation, ok bool, err error) {
	list, err := j.record.List(ctx, audit.Filter{Kind: audit.Rebuild, Projection: j.projection.Name})
	if err != nil {
		return op, false, err
	}
	var highest uint32
	for _, candidate := range list {
		var scope rebuild.Scope
		if err := json.Unmarshal(candidate.Scope, &scope); err != nil {
			return op, false, fmt.Errorf("rebuild %s: its scope: %w", candidate.ID, err)
		}
		if candidate.State != audit.Withdrawn && scope.To > highest {
			op, ok, highest = candidate, true, scope.To
		}
	}
	return op, ok, nil
}

// take reads an operation's scope and progress.
func (j *rebuildJob) take(op audit.Operation) error {
	j.op, j.scope, j.progress = op, rebuild.Scope{}, rebuild.Progress{}
	if err := json.Unmarshal(op.Scope, &j.scope); err != nil {
		return fmt.Errorf("rebuild %s: its scope: %w", op.ID, err)
	}
	if len(op.Checkpoint) == 0 {
		return nil
	}
	if err := json.Unmarshal(op.Checkpoint, &j.progress); err != nil {
		return fmt.Errorf("rebuild %s: its checkpoint: %w", op.ID, err)
	}
	return nil
}

// find takes the rebuild of the configured generation, whose next step must be
// one of from to to, under the configuration that it began with.
func (j *rebuildJob) find(ctx context.Context, from, to rebuild.Step) error {
	op, ok, err := j.latest(ctx)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("projection %s has no rebuild; next is `projector rebuild start`", j.projection.Name)
	}
	if err := j.take(op); err != nil {
		return err
	}
	if j.scope.To != j.projection.Generation {
		return fmt.Errorf("rebuild %s fills generation %d and the configuration says %d: give the configuration of the rebuild (--config)", op.ID, j.scope.To, j.projection.Generation)
	}
	if now := j.cfg.SourceDigest(j.projection); now != op.Digest {
		return fmt.Errorf("rebuild %s cannot go on: the mapping, the table or the queries of projection %s have changed since it began (digest %s, now %s); restore them, or raise generation again and run `projector rebuild start --withdraw`",
			op.ID, j.projection.Name, op.Digest, now)
	}
	return j.progress.Admit(op.ID, from, to)
}

// hold works on the operation until work returns, gives signs of life
// meanwhile, and records how it ended. What is left for another command to do
// makes it waiting, not applied.
func (j *rebuildJob) hold(ctx context.Context, work func(context.Context) error) error {
	if j.run == nil {
		run, err := j.record.Resume(ctx, j.op.ID, j.actor)
		if err != nil {
			return err
		}
		j.run = run
	}
	group, working := errgroup.WithContext(ctx)
	keeping, done := context.WithCancel(working)
	group.Go(func() error { return j.run.Keep(keeping) })
	group.Go(func() error {
		defer done()
		return work(working)
	})
	err := group.Wait()
	j.op = j.run.Operation()
	if errors.Is(err, audit.ErrTaken) || j.op.State != audit.Running {
		return err
	}
	state, reason := audit.Waiting, ""
	_, no := errors.AsType[answerNo](err)
	_, unknown := errors.AsType[inconclusive](err)
	switch {
	case ctx.Err() != nil:
		state, reason = audit.Failed, "interrupted by a signal"
		err = fmt.Errorf("interrupted by a signal; `projector rebuild %s` goes on", j.progress.Next().Command())
	case err != nil && !no && !unknown:
		state, reason = audit.Failed, err.Error()
	}
	recorded := j.run.End(ctx, nil, func(op *audit.Operation) { op.State, op.Error = state, reason })
	j.op = j.run.Operation()
	return errors.Join(err, recorded)
}

// step does the step unless it was done before, and records it with what do
// tells of it.
func (j *rebuildJob) step(ctx context.Context, s rebuild.Step, do func(context.Context) (detail any, err error)) error {
	if j.progress.Next() != s {
		return nil
	}
	j.log.Info().Str("operation", j.op.ID).Int("step", int(s)).Int("of", rebuild.Steps).Msg(s.String())
	reached(fmt.Sprintf("%d begun", s))
	detail, err := do(ctx)
	if err != nil {
		_, no := errors.AsType[answerNo](err)
		if _, unknown := errors.AsType[inconclusive](err); no || unknown {
			return err
		}
		return fmt.Errorf("rebuild %s, step %d of %d (%s): %w", j.op.ID, s, rebuild.Steps, s, err)
	}
	reached(fmt.Sprintf("%d done", s))
	p := j.progress.Add(rebuild.Done{At: time.Now().UTC(), By: j.actor, Detail: encoded(detail)})
	if err := j.save(ctx, p, stateAfter(s)); err != nil {
		return err
	}
	reached(fmt.Sprintf("%d recorded", s))
	return nil
}

// stateAfter is the operation's state once the step is recorded. It is in the
// same row as the last step of a command: a process that dies behind it leaves
// nothing half said.
func stateAfter(s rebuild.Step) audit.State {
	switch s {
	case rebuild.Copy, rebuild.Compare, rebuild.Switch:
		return audit.Waiting
	case rebuild.Close:
		return audit.Applied
	default:
		return audit.Running
	}
}

// save records progress.
func (j *rebuildJob) save(ctx context.Context, p rebuild.Progress, state audit.State) error {
	err := j.run.Advance(ctx, func(op *audit.Operation) { op.Checkpoint, op.By, op.State = encoded(p), j.actor, state })
	if err == nil {
		j.progress = p
	}
	return err
}

// finish prints where the rebuild stands, whatever the command's answer was.
func (j *rebuildJob) finish(asJSON bool, answer error) error {
	if len(j.progress.Steps) == 0 && answer != nil {
		return answer
	}
	return errors.Join(j.result().print(j.p.stdout, asJSON), answer)
}

func (j *rebuildJob) result() rebuildResult {
	return rebuildResult{
		Operation: j.op.ID, Projection: j.projection.Name, State: j.op.State, Scope: j.scope, Reason: j.op.Reason, Actor: j.op.Actor,
		Progress: j.progress, Next: nextOfRebuild(j.op.State, j.progress), Error: j.op.Error,
	}
}
