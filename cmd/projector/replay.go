package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/replay"
)

type replayCommand struct {
	chosenLetters
	requester
	output
	Topic      string `required:"" help:"The dead-letter topic, such as fitness-results-dlq." placeholder:"TOPIC"`
	Projection string `help:"Only letters of this projection. Letters that name no projection, or one that is not configured any more, then count as its own." placeholder:"NAME"`
	Max        int    `help:"At most so many letters; the same command goes on with the next ones. 0 is all." placeholder:"LETTERS"`
	Rate       int    `help:"At most so many rows a second. 0 is as fast as it goes." placeholder:"ROWS"`
	MaxReplays int    `help:"Leave letters that have been replayed so often already." default:"3" placeholder:"N"`
	DryRun     bool   `help:"Show what would be replayed and what of it the table has already. Changes nothing."`
	Yes        bool   `help:"Do not ask. Nothing is asked either where standard input is no terminal."`
}

func (replayCommand) Help() string {
	return `Maps dead letters again and inserts what has become a row, with the event's own version:
whatever the table has in a newer version stays as it is. What fails again is parked again,
with its number of replays, and after three of them it is left alone and reported.

--from and --to are about when a letter was parked. A date alone is the start of that day in
UTC, and everything parked since is replayed, up to the moment of the command. Letters whose
version, or a newer one, is in the table already are not inserted again.

It can be stopped or killed at any time: the same command goes on where it stopped, and
tells of all its letters; given once more it goes on with what was parked meanwhile. With another selection or limit, a corrected mapping or an altered
table it begins again; --rate may differ. A time such as "2h" is another one each time: a date
or a timestamp goes on. One replay of a topic runs at a time, and one that was planned while
another ran is not carried out. It may run beside "projector run".

Exit codes: 0 all letters that were asked for are in the table; 3 some remain: they failed
again, were left after --max-replays, lie beyond --max, or were parked after the start of a
replay that was gone on with; 1 it failed, run it again.

Examples:

    projector replay --topic fitness-results-dlq --from 2026-06-01 --dry-run
    projector replay --topic fitness-results-dlq --from 2026-06-01
    projector replay --topic fitness-results-dlq --from 2h --class rejected --column result --yes
    projector replay --topic fitness-results-dlq --from 3d --max 100 --rate 50 --reason "ticket 4711"`
}

func (c replayCommand) Run(ctx context.Context, p *program) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	if c.From == "" {
		return usageError{errors.New("--from is needed: since when were the letters parked? Such as --from 2026-06-01, or --from 2h"), "projector replay"}
	}
	if c.Max < 0 || c.Rate < 0 || c.MaxReplays < 1 {
		return usageError{errors.New("--max and --rate cannot be negative, and --max-replays must be at least 1"), "projector replay"}
	}
	now := time.Now()
	selection, err := c.selection(now)
	if err != nil {
		return err
	}
	sources, err := letterSources(cfg, []string{c.Topic})
	if err != nil {
		return err
	}
	if _, err := projections(cfg, c.Projection); err != nil {
		return err
	}
	projections := replayedInto(cfg, sources[0], c.Projection)
	if len(projections) == 0 {
		return usageError{fmt.Errorf("projection %s does not read the topic %s", c.Projection, sources[0]), ""}
	}
	w, err := newReplayWork(ctx, cfg, p)
	if err != nil {
		return err
	}
	defer w.close()
	w.command, w.now, w.selection = &c, now, selection
	results := make([]*replayed, 0, len(projections))
	for _, pr := range projections {
		r, err := w.replay(ctx, pr, sources[0])
		if err != nil {
			if len(results) > 0 {
				_ = w.print(results) // what was done before
			}
			return err
		}
		results = append(results, r)
	}
	if err := c.checkColumns(cfg); err != nil && !slices.ContainsFunc(results, (*replayed).found) {
		return err
	}
	if err := w.print(results); err != nil {
		return err
	}
	return remaining(results)
}

// replayedInto are the projections that letters of a topic may belong to: all
// that read it, or the one that is named.
func replayedInto(cfg *config.Config, source, name string) (all []*config.Projection) {
	for i := range cfg.Projections {
		if pr := &cfg.Projections[i]; slices.Contains(pr.Topics, source) && (name == "" || pr.Name == name) {
			all = append(all, pr)
		}
	}
	return all
}

// target is what is replayed where. Letters that name no configured projection
// belong to the only one that reads the topic, or to the one that was named.
func target(cfg *config.Config, pr *config.Projection, source string, named bool) replay.Target {
	t := replay.Target{
		Projection: pr.Name, Topic: source + cfg.DeadLetter.Suffix, Source: source, Group: cfg.Group(pr), Key: pr.OrderBy, Version: pr.Version,
		Strays: named || len(replayedInto(cfg, source, "")) == 1,
	}
	for i := range cfg.Projections {
		t.Configured = append(t.Configured, cfg.Projections[i].Name)
	}
	return t
}

// replayWork is what the replays of one command share.
type replayWork struct {
	cfg     *config.Config
	p       *program
	log     zerolog.Logger
	deps    replay.Deps
	control control
	parker  *deadletter.Parker

	command   *replayCommand
	now       time.Time
	selection deadletter.Selection
}

func newReplayWork(ctx context.Context, cfg *config.Config, p *program) (*replayWork, error) {
	if err := cfg.CheckFiles(); err != nil {
		return nil, err
	}
	w := &replayWork{cfg: cfg, p: p, log: p.logger()}
	if err := w.open(ctx); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *replayWork) open(ctx context.Context) error {
	opts, err := w.cfg.KafkaClient().Options(w.log)
	if err != nil {
		return err
	}
	w.deps = replay.Deps{Kafka: opts, Engine: w.cfg.Engine(), Log: w.log}
	if w.deps.Admin, err = kafka.NewAdmin(opts...); err != nil {
		return err
	}
	if err := pinged(ctx, w.deps.Admin); err != nil {
		return err
	}
	if w.deps.Letters, err = deadletter.NewReader(w.cfg.Letters(), opts...); err != nil {
		return err
	}
	if w.parker, err = deadletter.NewParker(w.cfg.Letters(), opts...); err != nil {
		return err
	}
	w.deps.Parker = w.parker
	w.control, err = clickhouse.Open(w.cfg.Control())
	return err
}

func (w *replayWork) close() {
	if w.deps.Admin != nil {
		w.deps.Admin.Close()
	}
	if w.deps.Letters != nil {
		w.deps.Letters.Close()
	}
	if w.parker != nil {
		w.parker.Close()
	}
	if w.control != nil {
		_ = w.control.Close() // it writes nothing that is not acknowledged
	}
}

// replayed is one projection's plan and what came of it.
type replayed struct {
	job    *replay.Job
	table  string
	target replay.Target
	plan   *replay.Plan
	result *replay.Result // nil after a dry run
}

// found reports whether there was a letter of the selection, in this command or
// in the one that it went on with.
func (r *replayed) found() bool { return r.plan.Selection() > 0 || r.plan.ID != "" }

// replay does one projection's letters.
func (w *replayWork) replay(ctx context.Context, pr *config.Projection, source string) (*replayed, error) {
	c, table := w.command, w.cfg.Table(pr)
	t := target(w.cfg, pr, source, c.Projection != "")
	var err error
	if t.Plan, err = pr.Plan(); err != nil {
		return nil, err
	}
	if t.Digest, err = w.digest(ctx, pr); err != nil {
		return nil, remedied(err)
	}
	deps := w.deps
	deps.NewInserter = func() (replay.Inserter, error) {
		return clickhouse.NewInserter(w.cfg.ClickHouseClient(), table.Physical())
	}
	r := &replayed{table: table.Physical(), target: t}
	r.job = replay.New(t, replay.Options{Selection: w.selection, Max: c.Max, Rate: c.Rate, MaxReplays: c.MaxReplays}, deps)
	if !c.DryRun {
		if err := r.job.AwaitTurn(ctx); err != nil {
			return nil, err
		}
	}
	if r.plan, err = r.job.Plan(ctx); err != nil {
		if errors.Is(err, kafka.ErrUnknownTopic) {
			return nil, fmt.Errorf("%w: nothing was ever parked there", err)
		}
		return nil, remedied(err)
	}
	if c.DryRun {
		return r, nil
	}
	if r.plan.Chosen > 0 && !c.Yes && terminal(w.p.stdin) {
		if err := r.printPlan(w.p.stderr, w); err != nil {
			return nil, err
		}
		if err := w.p.confirm(fmt.Sprintf("\nReplay %s into %s?", count(r.plan.Chosen, "letter"), table.Physical())); err != nil {
			return nil, err
		}
	}
	return r, w.execute(ctx, r)
}

// digest is another one when the mapping was corrected or the table altered: a constraint that is lifted lets letters
// in that were refused before.
func (w *replayWork) digest(ctx context.Context, pr *config.Projection) (string, error) {
	state, err := chschema.Inspect(ctx, w.control, w.cfg.Table(pr))
	if err != nil {
		return "", err
	}
	digest := w.cfg.SourceDigest(pr)
	if state.Table != nil { // else the first question about its rows tells
		digest += " " + state.Table.Create
	}
	return digest, nil
}

// execute replays what was chosen, under a record of it.
func (w *replayWork) execute(ctx context.Context, r *replayed) error {
	if r.plan.Chosen == 0 && r.plan.ID == "" { // nothing to do is nothing to keep a record of
		r.result = &replay.Result{}
		return nil
	}
	record, err := w.begin(ctx, r)
	if err != nil {
		return err
	}
	r.plan.ID = record.Operation().ID
	w.log.Info().Str("replay", r.plan.ID).Str("topic", r.target.Topic).Int("letters", r.plan.Chosen).Str("table", r.table).Msg("replaying")
	hard, stop := context.WithCancel(context.Background())
	defer stop()
	kept := make(chan error, 1)
	go func() { kept <- record.Keep(hard) }()
	result, err := r.job.Run(ctx, hard, r.plan)
	stop()
	err = errors.Join(remedied(err), <-kept)
	r.result = &result
	return record.End(ctx, err, func(op *audit.Operation) { op.Outcome = encoded(r.outcome()) })
}

// begin begins the record, or takes up that of the replay that is resumed.
func (w *replayWork) begin(ctx context.Context, r *replayed) (*audit.Run, error) {
	log, actor := audit.Open(w.control, w.cfg.Audit()), w.command.actor(w.p.environ)
	for r.plan.ID != "" {
		run, err := log.Resume(ctx, r.plan.ID, actor)
		if err == nil {
			w.log.Info().Str("replay", r.plan.ID).Msg("going on with a replay of the same letters that did not come to its end")
			return run, nil
		}
		if _, closed := errors.AsType[*audit.StateError](err); closed || errors.Is(err, audit.ErrUnknown) {
			break
		}
		busy, ok := errors.AsType[*audit.BusyError](err)
		if !ok {
			return nil, err
		}
		// It has left the group, which is the lock, so it was killed on another machine and nobody can tell yet.
		w.log.Warn().Err(err).Msg("waiting for the process that was killed to be taken for dead")
		timer := time.NewTimer(max(time.Second, busy.Lease-busy.Silent))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
	return log.Begin(ctx, audit.Operation{
		Kind: audit.Replay, Projection: r.target.Projection, State: audit.Running, Actor: actor, Reason: w.command.Reason, Scope: encoded(w.scope(r)),
	})
}

// remaining is the answer of the command: no, if letters are left.
func remaining(all []*replayed) error {
	var left []string
	add := func(n int, what string) {
		if n > 0 {
			left = append(left, fmt.Sprintf("%d %s", n, what))
		}
	}
	for _, r := range all {
		if r.result == nil {
			return nil
		}
		add(r.result.FailedLetters(), "failed again and were parked again: `projector deadletter list` tells why")
		add(r.result.Expired, "expired before they were replayed: backfill their records from the source")
		add(r.plan.Earlier.Failed, "failed again before this replay was stopped, and were parked again")
		add(r.plan.Earlier.Passed, "left or of no configured projection, before the place where this replay was stopped")
		add(r.plan.Since, "parked since the replay began that this one went on with: the same command goes on with them")
		add(r.plan.Left, fmt.Sprintf("left after %d replays: when their cause is gone, --max-replays raises the limit", r.job.MaxReplays()))
		add(r.plan.Remaining, "beyond --max: the same command goes on with them")
	}
	for name, n := range all[0].plan.Others { // every projection's plan has counted them
		if !slices.Contains(all[0].target.Configured, name) {
			add(n, "of no configured projection: give it with --projection")
		}
	}
	if len(left) == 0 {
		return nil
	}
	return answerNo{"letters remain: " + strings.Join(left, "; ")}
}
