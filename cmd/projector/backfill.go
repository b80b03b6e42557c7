package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/backfill"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
)

// requester are the flags of commands that leave a record.
type requester struct {
	Reason string `help:"Why, for the record." placeholder:"TEXT"`
	Actor  string `help:"Who asks, for the record (default USER@HOST, or PROJECTOR_ACTOR)." placeholder:"NAME" envs:"PROJECTOR_ACTOR"`
}

// actor names who asks: what was given, or the user of the machine.
func (r requester) actor(environ []string) string {
	if r.Actor != "" {
		return r.Actor
	}
	user := "unknown"
	for _, v := range environ {
		if name, ok := strings.CutPrefix(v, "USER="); ok && name != "" {
			user = name
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return user + "@" + host
}

type backfillCommand struct {
	Campaign []string `help:"These campaigns, separated by commas. May be repeated." placeholder:"ID"`
	All      bool     `help:"All campaigns that source.projections.NAME.campaigns lists."`
	requester
	output
	Projection string `help:"Which projection; needed when there are several." placeholder:"NAME"`
	Rate       int    `help:"Rows a second at most; 0 is as fast as it goes." placeholder:"ROWS"`
	DryRun     bool   `help:"Read and map everything, show counts, samples and the SQL, and write nothing."`
	Resume     string `help:"Go on with an operation that was interrupted." placeholder:"OPERATION"`
	Yes        bool   `help:"Do not ask before --all."`
}

func (backfillCommand) Help() string {
	return `Writes the authoritative rows of MySQL, and its deletions, into the projection's table
with their own versions. It runs beside the stream: what is newer in the table stays. Every
row is read back. Interrupted at any point, even by kill -9, it goes on with --resume, which
names the campaigns that --all was past when they appeared.

Exit code 3: done, but rows were refused: by the mapping, by ClickHouse, or because the
source has a record more than once. They are listed, all others are written.

Examples:

    projector backfill --campaign 10001 --reason "lost topic, ticket 4711"
    projector backfill --campaign 10001,10002 --rate 5000
    projector backfill --campaign 10001 --dry-run
    projector backfill --all --yes -o json
    projector backfill --resume 20261130T134512-4f2a9c`
}

// Validate is called by kong.
func (c backfillCommand) Validate() error {
	given := 0
	for _, is := range []bool{len(c.Campaign) > 0, c.All, c.Resume != ""} {
		if is {
			given++
		}
	}
	switch {
	case given == 0:
		return errors.New("say what to backfill: --campaign ID, --all, or --resume OPERATION")
	case given > 1:
		return errors.New("--campaign, --all and --resume exclude each other")
	case c.Rate < 0:
		return errors.New("--rate must not be negative")
	case c.Resume != "" && c.DryRun:
		return errors.New("--dry-run has nothing to resume; give --campaign or --all")
	case slices.Contains(c.Campaign, ""):
		return errors.New("--campaign has an empty ID")
	}
	return nil
}

// backfillJob is a backfill with its connections.
type backfillJob struct {
	command    *backfillCommand
	p          *program
	cfg        *config.Config
	projection *config.Projection
	table      chschema.Table
	conn       control
	record     *audit.Log
	source     *backfill.Source
	log        zerolog.Logger
	passed     []string // campaigns that a resumed operation does not come back to
}

func (c backfillCommand) Run(ctx context.Context, p *program) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	if err := cfg.CheckClickHouse(); err != nil {
		return err
	}
	conn, err := clickhouse.Open(cfg.Control())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	j := &backfillJob{command: &c, p: p, cfg: cfg, conn: conn, record: audit.Open(conn, cfg.Audit()), log: p.logger()}
	if c.Resume != "" {
		return j.resume(ctx)
	}
	if err := j.choose(c.Projection); err != nil {
		return err
	}
	if err := j.open(ctx); err != nil {
		return err
	}
	defer func() { _ = j.source.Close() }()
	return j.begin(ctx)
}

// choose finds the projection and its table.
func (j *backfillJob) choose(name string) (err error) {
	if j.projection, err = projection(j.cfg, name); err != nil {
		return err
	}
	j.table = j.cfg.Table(j.projection)
	if _, ok := j.cfg.Source.Projections[j.projection.Name]; !ok {
		return usageError{fmt.Errorf("source.projections.%s: missing; give the SELECT of its authoritative rows", j.projection.Name), ""}
	}
	return nil
}

// open connects to the table and to every shard, and finds what is wrong with
// any of them before anything is written.
func (j *backfillJob) open(ctx context.Context) (err error) {
	if err := j.cfg.CheckSource(); err != nil {
		return err
	}
	if err := chschema.Check(ctx, j.conn, j.table); err != nil {
		return askClickHouse(j.cfg, err)
	}
	if j.source, err = backfill.Open(ctx, j.cfg.BackfillSource(j.projection)); err != nil {
		return err
	}
	if err := j.source.Prepare(ctx); err != nil {
		return errors.Join(err, j.source.Close())
	}
	return nil
}

// begin starts a new operation, or shows what it would do.
func (j *backfillJob) begin(ctx context.Context) error {
	c := j.command
	scope := backfill.Scope{All: c.All, Rate: c.Rate, Table: j.table.Physical(), Shards: j.shards()}
	list, err := j.list(ctx, c.All, backfill.SortCampaigns(c.Campaign))
	if err != nil {
		return err
	}
	if !c.All {
		scope.Campaigns = list
		if err := j.source.Check(ctx, list); err != nil {
			return err
		}
	}
	if c.DryRun {
		return j.dryRun(ctx, list)
	}
	if c.All && !c.Yes {
		if err := j.p.confirm(fmt.Sprintf("Backfill %s of projection %s into %s?", count(len(list), "campaign"), j.projection.Name, j.table.Physical())); err != nil {
			return err
		}
	}
	j.hint(ctx, scope)
	before, err := backfill.Before(ctx, j.conn, j.table, scope.Campaigns)
	if err != nil {
		return err
	}
	run, err := j.record.Begin(ctx, audit.Operation{
		Kind: audit.Backfill, Projection: j.projection.Name, State: audit.Running, Actor: c.actor(j.p.environ), Reason: c.Reason,
		Digest: j.cfg.SourceDigest(j.projection), Scope: encoded(scope), Before: encoded(before),
	})
	if err != nil {
		return err
	}
	return j.execute(ctx, run, list, c.Rate)
}

// resume goes on with an operation.
func (j *backfillJob) resume(ctx context.Context) error {
	c := j.command
	op, err := j.record.Get(ctx, c.Resume)
	if err != nil {
		return err
	}
	if op.Kind != audit.Backfill {
		return fmt.Errorf("operation %s is a %s, not a backfill", op.ID, op.Kind)
	}
	if !slices.Contains([]audit.State{audit.Running, audit.Failed}, op.State) {
		return fmt.Errorf("operation %s is %s: nothing of it is left to be done", op.ID, op.State)
	}
	if c.Projection != "" && c.Projection != op.Projection {
		return usageError{fmt.Errorf("operation %s is of projection %s; leave --projection out", op.ID, op.Projection), ""}
	}
	if err := j.choose(op.Projection); err != nil {
		return err
	}
	if now := j.cfg.SourceDigest(j.projection); now != op.Digest {
		return fmt.Errorf("operation %s cannot go on: the mapping, the table or the queries of projection %s have changed since it began (digest %s, now %s), and one half of its rows would mean something else than the other; begin a new backfill",
			op.ID, op.Projection, op.Digest, now)
	}
	var scope backfill.Scope
	if err := json.Unmarshal(op.Scope, &scope); err != nil {
		return fmt.Errorf("operation %s: its scope: %w", op.ID, err)
	}
	if err := j.open(ctx); err != nil {
		return err
	}
	defer func() { _ = j.source.Close() }()
	list, err := j.list(ctx, scope.All, scope.Campaigns)
	if err != nil {
		return err
	}
	if scope.All {
		if j.passed, err = backfill.Passed(ctx, j.conn, j.table, j.source, op, list); err != nil {
			return err
		}
	}
	run, err := j.record.Resume(ctx, op.ID, c.actor(j.p.environ))
	if err != nil {
		return err
	}
	rate := c.Rate
	if rate == 0 {
		rate = scope.Rate
	}
	return j.execute(ctx, run, list, rate)
}

// list is what is copied, in order.
func (j *backfillJob) list(ctx context.Context, all bool, named []string) ([]string, error) {
	if !all {
		return named, nil
	}
	list, err := j.source.Campaigns(ctx)
	if err == nil && len(list) == 0 {
		err = errors.New("the source lists no campaign: there is nothing to backfill")
	}
	return list, err
}

func (j *backfillJob) shards() (names []string) {
	for _, s := range j.cfg.Source.Shards {
		names = append(names, s.Name)
	}
	return names
}

// hint tells of an operation with the same scope that was interrupted: going on
// with it repeats less.
func (j *backfillJob) hint(ctx context.Context, scope backfill.Scope) {
	ops, err := j.record.List(ctx, audit.Filter{Kind: audit.Backfill, Projection: j.projection.Name, States: []audit.State{audit.Failed, audit.Running}})
	if err != nil {
		return // the record will say so itself when the operation begins
	}
	for _, op := range ops {
		var other backfill.Scope
		if json.Unmarshal(op.Scope, &other) == nil && other.All == scope.All && slices.Equal(other.Campaigns, scope.Campaigns) && op.Digest == j.cfg.SourceDigest(j.projection) {
			j.log.Warn().Str("operation", op.ID).Str("state", string(op.State)).Time("last_sign", op.At).
				Msgf("a backfill of the same campaigns was not finished; `projector backfill --resume %s` would go on with it", op.ID)
			return
		}
	}
}

func (j *backfillJob) execute(ctx context.Context, run *audit.Run, list []string, rate int) error {
	op := run.Operation()
	writers, closeAll, err := newWriters(j.cfg, j.conn, j.table, op)
	if err != nil {
		return err
	}
	defer closeAll()
	j.log.Info().Str("operation", op.ID).Str("projection", j.projection.Name).Str("table", j.table.Physical()).
		Int("campaigns", len(list)).Strs("shards", j.shards()).Int("rate", rate).Uint32("run", op.Run).Msg("backfill")
	progress := newProgress(ctx, j.p.stderr, j.log, j.source, list)
	counts, err := backfill.Execute(ctx, run, j.source, backfill.Options{Campaigns: list, ChunkRows: j.cfg.Batch.Rows, Rate: rate, Progress: progress.report}, writers...)
	progress.close()
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("interrupted by a signal; `projector backfill --resume %s` goes on", op.ID)
	case errors.Is(err, audit.ErrTaken):
	case err != nil:
		err = fmt.Errorf("operation %s: %w; when that is cured `projector backfill --resume %s` goes on", op.ID, remedied(err), op.ID)
	}
	result := backfillResult{Operation: op.ID, Projection: j.projection.Name, Table: j.table.Physical(), State: run.Operation().State, Seconds: time.Since(progress.began).Seconds(), Counts: counts, NotCovered: orEmpty(j.passed)}
	if printed := result.print(j.p.stdout, j.command.json()); err != nil || printed != nil {
		return errors.Join(err, printed)
	}
	return result.answer()
}

// insertsAtOnce is how many inserts of a copy are on their way at a time: while one is waited for or read back, the
// other is sent.
const insertsAtOnce = 2

// newWriters makes the writers of a copy into a table. Who has it must call closeAll.
func newWriters(cfg *config.Config, conn chschema.Conn, table chschema.Table, op audit.Operation) (writers []*backfill.Writer, closeAll func(), err error) {
	var inserters []*clickhouse.Inserter
	closeAll = func() {
		for _, inserter := range inserters {
			_ = inserter.Close()
		}
	}
	for range insertsAtOnce {
		inserter, err := clickhouse.NewInserter(cfg.ClickHouseClient(), table.Physical())
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		inserters = append(inserters, inserter)
		writers = append(writers, backfill.NewWriter(inserter, conn, table, op.Origin(), op.Run))
	}
	return writers, closeAll, nil
}

func encoded(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs of texts and numbers
	}
	return text
}
