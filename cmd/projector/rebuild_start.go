package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/backfill"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/rebuild"
	"github.com/chprojector/projector/internal/reconcile"
)

type rebuildStart struct {
	requester
	output
	Projection string `help:"Which projection; needed when there are several." placeholder:"NAME"`
	Rate       int    `help:"Rows a second at most; 0 is as fast as it goes." placeholder:"ROWS"`
	Withdraw   bool   `help:"Give up an unfinished rebuild into another generation first."`
	Yes        bool   `help:"Do not ask."`
}

func (rebuildStart) Help() string {
	return `Steps 1 to 4: creates the table of the configured generation, records where every
partition ends, sets the new generation's consumer group to these offsets, and writes every
row and deletion of the source with its own version. Readers and the deployment that serves
them notice nothing.

Interrupted at any point, it goes on when it is given again. Exit code 3: done, but rows of
the source were refused; they are listed.

Then run "projector run" with the same configuration beside the old deployment, and give
"projector rebuild verify".

Examples:

    projector --config g2.yaml rebuild start --reason "wrong school, ticket 4711"
    projector --config g2.yaml rebuild start --rate 20000 --yes
    projector --config g3.yaml rebuild start --withdraw     # the mapping of g2 was wrong, too`
}

// Validate is called by kong.
func (c rebuildStart) Validate() error {
	if c.Rate < 0 {
		return errors.New("--rate must not be negative")
	}
	return nil
}

func (c rebuildStart) Run(ctx context.Context, p *program) error {
	j, err := newRebuildJob(p, c.Projection, c.requester)
	if err != nil {
		return err
	}
	defer j.close()
	source, err := j.source(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	campaigns, err := source.Campaigns(ctx)
	if err != nil {
		return err
	}
	if err := j.begin(ctx, c, len(campaigns)); err != nil {
		return err
	}
	rate := c.Rate
	if rate == 0 {
		rate = j.scope.Rate
	}
	err = j.hold(ctx, func(ctx context.Context) error {
		for _, s := range []struct {
			step rebuild.Step
			do   func(context.Context) (any, error)
		}{
			{rebuild.Create, j.create},
			{rebuild.Record, j.recordEnds},
			{rebuild.Begin, j.startGroup},
			{rebuild.Copy, func(ctx context.Context) (any, error) { return j.copySource(ctx, source, rate) }},
		} {
			if err := j.step(ctx, s.step, s.do); err != nil {
				return err
			}
		}
		return nil
	})
	if counts := j.progress.Copied.Counts; err == nil && counts.Refused+counts.Repeated > 0 {
		err = answerNo{fmt.Sprintf("%s of the source are not in the new table: %d refused, %d not unique; verify will find them missing",
			count(int(counts.Refused+counts.Repeated), "row"), counts.Refused, counts.Repeated)}
	}
	return j.finish(c.json(), err)
}

// source makes sure that the rebuild can be finished before it begins: both the
// copy and the comparison need the source, and their queries.
func (j *rebuildJob) source(ctx context.Context) (*backfill.Source, error) {
	name := j.projection.Name
	if _, ok := j.cfg.Source.Projections[name]; !ok || len(j.cfg.Source.Shards) == 0 {
		return nil, usageError{fmt.Errorf("source.projections.%s or source.shards: missing; a rebuild copies the authoritative rows", name), ""}
	}
	if _, err := j.cfg.Contract(j.projection); err != nil {
		return nil, usageError{err, ""}
	}
	if err := j.cfg.CheckSource(); err != nil {
		return nil, err
	}
	source, err := backfill.Open(ctx, j.cfg.BackfillSource(j.projection))
	if err != nil {
		return nil, err
	}
	if err := source.Prepare(ctx); err != nil {
		return nil, errors.Join(err, source.Close())
	}
	return source, nil
}

// begin goes on with the rebuild of this generation, or begins it.
func (j *rebuildJob) begin(ctx context.Context, c rebuildStart, campaigns int) error {
	op, unfinished, err := j.latest(ctx)
	if err != nil {
		return err
	}
	if unfinished {
		if err := j.take(op); err != nil {
			return err
		}
		if j.scope.To == j.projection.Generation {
			return j.find(ctx, rebuild.Create, rebuild.Copy)
		}
		unfinished = j.progress.Next() <= rebuild.Close
	}
	from, err := j.base(ctx)
	if err != nil {
		return err
	}
	switch {
	case unfinished && j.progress.Next() == rebuild.Close && from == j.scope.To: // or somebody has switched them back
		return fmt.Errorf("rebuild %s has switched the views to generation %d and not closed the one before; next is `projector rebuild close` with its configuration", op.ID, j.scope.To)
	case unfinished && !c.Withdraw:
		return fmt.Errorf("rebuild %s into generation %d is not finished: go on with it (`projector rebuild status`), or give it up with --withdraw", op.ID, j.scope.To)
	}
	if !c.Yes {
		question := fmt.Sprintf("Fill %s with %s of projection %s from the source?", j.table.Physical(), count(campaigns, "campaign"), j.projection.Name)
		if err := j.p.confirm(question); err != nil {
			return err
		}
	}
	if unfinished {
		if _, err := j.record.Change(ctx, op.ID, j.actor, audit.Withdrawn, nil); err != nil {
			return err
		}
		j.log.Warn().Str("operation", op.ID).Str("table", j.scope.Table).Msg("withdrawn; its table stays, closed and dropped together with the old one")
	}
	j.scope, j.progress = rebuild.Scope{From: from, To: j.table.Generation, Table: j.table.Physical(), Group: j.cfg.Group(j.projection), Rate: c.Rate}, rebuild.Progress{}
	for _, s := range j.cfg.Source.Shards {
		j.scope.Shards = append(j.scope.Shards, s.Name)
	}
	before, err := backfill.Before(ctx, j.conn, j.older(from), nil)
	if err != nil {
		return err
	}
	j.run, err = j.record.Begin(ctx, audit.Operation{
		Kind: audit.Rebuild, Projection: j.projection.Name, State: audit.Running, Actor: c.actor(j.p.environ), Reason: c.Reason,
		Digest: j.cfg.SourceDigest(j.projection), Scope: encoded(j.scope), Before: encoded(before),
	})
	if err != nil {
		return err
	}
	j.op = j.run.Operation()
	return nil
}

// base is the generation that readers see, of which the configured one can be
// the successor.
func (j *rebuildJob) base(ctx context.Context) (uint32, error) {
	from, ok, err := j.reads(ctx)
	to := j.table.Generation
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return 0, fmt.Errorf("there is no view %s that reads a table of the projection, so there is nothing to rebuild; run `projector schema apply` with the configuration of the generation that served readers", j.table.Current())
	case from >= to:
		return 0, usageError{fmt.Errorf("readers see generation %d and the configuration says %d: set generation: %d in a copy of the configuration, with the corrected mapping", from, to, from+1), ""}
	}
	list, err := rebuild.Generations(ctx, j.conn, j.table)
	if err != nil {
		return 0, err
	}
	for _, g := range list {
		if g.Number >= to && g.Rows > 0 {
			return 0, fmt.Errorf("table %s exists and has %d rows that no rebuild under way has written: set generation: %d, or drop it", g.Table, g.Rows, g.Number+1)
		}
	}
	return from, nil
}

// create is step 1.
func (j *rebuildJob) create(ctx context.Context) (any, error) {
	state, err := chschema.Inspect(ctx, j.conn, j.table)
	if err != nil {
		return nil, err
	}
	if err := chschema.Apply(ctx, j.conn, chschema.DiffTable(j.table, state), nil); err != nil {
		return nil, err
	}
	return map[string]string{"table": j.table.Physical()}, chschema.Check(ctx, j.conn, j.table)
}

// recordEnds is step 2. What is produced before it is in the source when the
// source is read, later; what is produced after it, the new group reads.
func (j *rebuildJob) recordEnds(ctx context.Context) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if err := j.admin.Ping(ctx); err != nil {
		return nil, err
	}
	offsets, err := j.admin.Offsets(ctx, j.projection.Topics...)
	if err != nil {
		return nil, err
	}
	j.progress.Offsets = nil
	for _, o := range offsets {
		j.progress.Offsets = append(j.progress.Offsets, rebuild.Offset{Topic: o.Topic, Partition: o.Partition, End: o.End})
	}
	return map[string]int{"partitions": len(offsets)}, nil
}

// startGroup is step 3: no partition may begin behind its recorded end. A group
// that reads already, from further back, may go on.
func (j *rebuildJob) startGroup(ctx context.Context) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	group := j.cfg.Group(j.projection)
	have, err := j.admin.Commits(ctx, group)
	if err != nil {
		return nil, err
	}
	set := kafka.Commits{}
	for _, o := range j.progress.Offsets {
		if c, ok := have[o.Topic][o.Partition]; !ok || c.Offset > o.End {
			set.Set(o.Topic, o.Partition, kafka.Commit{Offset: o.End, Epoch: -1})
		}
	}
	if len(set) > 0 {
		err = j.admin.Commit(ctx, group, set)
	}
	if errors.Is(err, kafka.ErrGroupBusy) {
		return nil, fmt.Errorf("%w: stop `projector run` of generation %d, give `projector rebuild start` again, and start it afterwards", err, j.table.Generation)
	}
	return map[string]string{"group": group}, err
}

// copyEvery is how much of a copy a killed process repeats at least.
const copyEvery = time.Second

// copySource is step 4. Its campaigns are listed here and not earlier: one that
// begins before the ends are recorded has events that the new group never reads.
func (j *rebuildJob) copySource(ctx context.Context, source *backfill.Source, rate int) (any, error) {
	if err := source.Begin(ctx); err != nil { // the snapshot that it has is older than the ends
		return nil, err
	}
	campaigns, err := j.campaigns(ctx, source)
	if err != nil {
		return nil, err
	}
	writers, closeAll, err := newWriters(j.cfg, j.conn, j.table, j.run.Operation())
	if err != nil {
		return nil, err
	}
	defer closeAll()
	bar := newProgress(ctx, j.p.stderr, j.log, source, campaigns)
	defer bar.close()
	saved, last := time.Now(), j.progress.Copied
	counts, err := backfill.Copy(ctx, source, backfill.Options{
		Campaigns: campaigns, From: j.progress.Copied, ChunkRows: j.cfg.Batch.Rows, Rate: rate, Progress: bar.report,
		Save: func(ctx context.Context, at backfill.Checkpoint) error {
			last = at
			reached("4 chunk")
			if time.Since(saved) < copyEvery {
				return nil
			}
			saved = time.Now()
			p := j.progress
			p.Copied = at
			return j.save(ctx, p, audit.Running)
		},
	}, writers...)
	if err != nil {
		return nil, remedied(err)
	}
	j.progress.Copied = last
	if j.progress.Copied.Counts = counts; len(counts.Refusals) > 0 {
		j.log.Warn().Int64("refused", counts.Refused).Int64("not_unique", counts.Repeated).Str("first", counts.Refusals[0].Reason).Msg("rows of the source were refused")
	}
	return map[string]int64{"campaigns": counts.Campaigns, "rows": counts.Rows, "deletions": counts.Deletions, "written": counts.Written, "refused": counts.Refused + counts.Repeated}, nil
}

// campaigns are those of the source and those of the old table: the query of
// campaigns may not give one that is closed, or whose rows are all deleted, and
// its deletions must not be lost.
func (j *rebuildJob) campaigns(ctx context.Context, source *backfill.Source) ([]string, error) {
	list, err := source.Campaigns(ctx)
	if err != nil {
		return nil, err
	}
	rules, err := j.cfg.Contract(j.projection)
	if err != nil {
		return nil, usageError{err, ""}
	}
	common, err := rebuild.Common(ctx, j.conn, j.older(j.scope.From), j.table)
	if err != nil || common == nil {
		return list, err
	}
	known := map[string]bool{}
	if err := j.olderSide(rules).Campaigns(ctx, known); err != nil {
		return nil, err
	}
	return backfill.SortCampaigns(append(list, slices.Collect(maps.Keys(known))...)), nil
}

// olderSide is the table that readers see, to be asked for its campaigns.
func (j *rebuildJob) olderSide(rules *contract.Contract) *reconcile.Table {
	older := j.older(j.scope.From)
	return &reconcile.Table{Contract: rules, Name: older.Qualified(older.Physical()), Reader: j.reader}
}

// generationsBelow lists the existing tables that are older than the new one.
func (j *rebuildJob) generationsBelow(ctx context.Context) ([]rebuild.Generation, error) {
	list, err := rebuild.Generations(ctx, j.conn, j.table)
	for i, g := range list {
		if g.Number >= j.table.Generation {
			return list[:i], err
		}
	}
	return list, err
}

func tablesOf(list []rebuild.Generation) string {
	names := make([]string, len(list))
	for i, g := range list {
		names[i] = fmt.Sprintf("%s (%d rows)", g.Table, g.Rows)
	}
	return strings.Join(names, ", ")
}

// groupOf is the consumer group of another generation.
func groupOf(cfg *config.Config, p config.Projection, generation uint32) string {
	p.Generation = generation
	return cfg.Group(&p)
}
