package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/backfill"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/reconcile"
	"github.com/chprojector/projector/internal/repair"
)

type repairCommand struct {
	Plan     repairPlan     `cmd:"" help:"Compare, and record what would be done about each difference."`
	Apply    repairApply    `cmd:"" help:"Do what a plan says, where both sides still are as planned."`
	Verify   repairVerify   `cmd:"" help:"Compare the records of a repair again; only this makes it verified."`
	Withdraw repairWithdraw `cmd:"" help:"Give up a repair that was not applied."`
	List     repairList     `cmd:"" help:"List repairs and their states."`
	Show     repairShow     `cmd:"" help:"Show one repair: its history and its records."`
}

// repairScope is what the record of operations keeps of a plan. Its records are
// in the table of items.
type repairScope struct {
	Action    repair.Action  `json:"action"`
	Table     string         `json:"table"`
	Campaigns []string       `json:"campaigns"`
	Kinds     map[string]int `json:"kinds"`
	Records   int            `json:"records"`
}

// repairs is the record of repairs, open.
type repairs struct {
	cfg      *config.Config
	conn     control
	reader   clickhouse.Reader
	log      *audit.Log
	findings *audit.Findings
	items    *audit.Items
}

func openRepairs(p *program) (*repairs, error) {
	cfg, err := p.load()
	if err != nil {
		return nil, err
	}
	if err := cfg.CheckFiles(); err != nil {
		return nil, err
	}
	conn, err := clickhouse.Open(cfg.Control())
	if err != nil {
		return nil, err
	}
	findings := audit.OpenFindings(conn, cfg.Audit())
	return &repairs{cfg, conn, clickhouse.NewReader(conn), audit.Open(conn, cfg.Audit()), findings, audit.OpenItems(findings)}, nil
}

func (r *repairs) close() { _ = r.conn.Close() } // everything it wrote was answered

// openedRepair is one repair, with its records.
type openedRepair struct {
	*repairs
	op      audit.Operation
	scope   repairScope
	records []audit.Item
}

// openRepair opens the record and reads one repair, after the files that needs
// checks were found to be there. Close it.
func openRepair(ctx context.Context, p *program, id string, needs ...func(*config.Config) error) (_ *openedRepair, err error) {
	all, err := openRepairs(p)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			all.close()
		}
	}()
	for _, check := range needs {
		if err = check(all.cfg); err != nil {
			return nil, err
		}
	}
	r := &openedRepair{repairs: all}
	if r.op, err = r.log.Get(ctx, id); err != nil {
		return nil, err
	}
	if r.op.Kind != audit.Repair {
		return nil, fmt.Errorf("operation %s is a %s, not a repair", id, r.op.Kind)
	}
	if err = json.Unmarshal(r.op.Scope, &r.scope); err != nil {
		return nil, fmt.Errorf("operation %s: its scope: %w", id, err)
	}
	r.records, err = r.items.List(ctx, id)
	return r, err
}

func scopeOf(op audit.Operation) (scope repairScope) {
	_ = json.Unmarshal(op.Scope, &scope) // a scope that cannot be read is shown empty
	return scope
}

// projection is that of a repair, if the configuration still means the same by it.
func (r *openedRepair) projection() (*config.Projection, *contract.Contract, error) {
	op, remedy := r.op, "compare with `projector reconcile`" // it may have done something
	switch {
	case op.State == audit.Planned:
		remedy = "plan it anew"
	case op.State != audit.Verified: // which counts nowhere as open, and cannot be withdrawn
		remedy += fmt.Sprintf(", and give this one up with `projector repair withdraw %s`", op.ID)
	}
	pr, err := projection(r.cfg, op.Projection)
	if err != nil {
		return nil, nil, usageError{fmt.Errorf("repair %s: projection %s is not in this configuration; give the one that has it, or %s", op.ID, op.Projection, remedy), ""}
	}
	if digest := r.cfg.SourceDigest(pr); digest != op.Digest {
		return nil, nil, fmt.Errorf("repair %s: the mapping, the table or the queries of projection %s have changed since it was planned (digest %s, now %s); %s",
			op.ID, op.Projection, op.Digest, digest, remedy)
	}
	rules, err := r.cfg.Contract(pr)
	if err != nil {
		return nil, nil, usageError{err, ""}
	}
	return pr, rules, nil
}

type repairApply struct {
	Operation string `arg:"" help:"The repair, as plan and list name it." placeholder:"OPERATION"`
	output
	Actor string `help:"Who applies it, for the record; a removal needs somebody else than who planned it (default USER@HOST, or PROJECTOR_ACTOR)." placeholder:"NAME" envs:"PROJECTOR_ACTOR"`
	Rate  int    `help:"Records a second at most; 0 is as fast as it goes." placeholder:"RECORDS"`
	Yes   bool   `help:"Do not ask before rows are removed."`
}

func (repairApply) Help() string {
	return `Looks at every record of the plan again, on both sides. Where both are as planned it does
what the plan says; a record that has changed since is skipped, with the reason. What it
writes carries the source's own version and the origin repair:OPERATION, and is read back.

A removal takes away exactly the physical rows that the plan has recorded. It needs a second
person: an --actor other than the one who planned it. Applying it is that person's approval,
and is recorded as such.

Interrupted at any point, even by kill -9, the same command goes on. Afterwards the repair
is applied, not verified: that is for projector repair verify.

Exit code 3: done, but records were skipped.

Examples:

    projector repair apply 20261130T134512-4f2a9c
    projector repair apply 20261130T134512-4f2a9c --rate 500
    projector repair apply 20261130T134513-77ab01 --actor second.person@example.org`
}

func (c repairApply) Run(ctx context.Context, p *program) error {
	if c.Rate < 0 {
		return usageError{errors.New("--rate must not be negative"), "projector repair apply"}
	}
	r, err := openRepair(ctx, p, c.Operation, (*config.Config).CheckSource)
	if err != nil {
		return err
	}
	defer r.close()
	op, scope, items := r.op, r.scope, r.records
	if !slices.Contains([]audit.State{audit.Planned, audit.Approved, audit.Running, audit.Failed}, op.State) {
		return fmt.Errorf("repair %s is %s: nothing of it is left to be done", op.ID, op.State)
	}
	if len(items) != scope.Records {
		return fmt.Errorf("repair %s: its plan says %d records and %d are recorded: the process that planned it did not end; plan it anew", op.ID, scope.Records, len(items))
	}
	pr, rules, err := r.projection()
	if err != nil {
		return err
	}
	table := r.cfg.Table(pr)
	if err := chschema.Check(ctx, r.conn, table); err != nil {
		return admitted(err)
	}
	rows, err := backfill.Open(ctx, r.cfg.BackfillSource(pr))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // it has only read
	if err := rows.Prepare(ctx); err != nil {
		return err
	}
	source := &repair.Source{Contract: rules, Rows: rows}
	if err := source.Check(); err != nil {
		return fmt.Errorf("repair %s: %w; nothing was changed", op.ID, err)
	}
	actor := requester{Actor: c.Actor}.actor(p.environ)
	if scope.Action == repair.Remove && op.State == audit.Planned {
		if err := c.approve(ctx, p, r, actor); err != nil {
			return err
		}
	}
	run, err := r.log.Resume(ctx, op.ID, actor)
	if err != nil {
		return err
	}
	op = run.Operation()
	target := &reconcile.Table{Contract: rules, Name: table.Qualified(table.Physical()), Reader: r.reader}
	var worker repair.Worker = &repair.Remover{Source: source, Table: target, Conn: r.conn, Record: r.items}
	if scope.Action == repair.Replay {
		inserter, err := clickhouse.NewInserter(r.cfg.ClickHouseClient(), table.Physical())
		if err != nil {
			return err
		}
		defer func() { _ = inserter.Close() }()
		worker = &repair.Replayer{Source: source, Table: target, Origin: op.Origin(), Writer: backfill.NewWriter(inserter, r.conn, table, op.Origin(), op.Run)}
	}
	log := p.logger()
	log.Info().Str("operation", op.ID).Str("action", string(scope.Action)).Int("records", scope.Records).Int("rate", c.Rate).Uint32("run", op.Run).Msg("repair")
	err = repair.Execute(ctx, run, worker, r.items, items, c.Rate, func(done int) {
		log.Info().Int("done", done).Int("of", len(items)).Msg("repairing")
	})
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("interrupted by a signal; `projector repair apply %s` goes on", op.ID)
	case err != nil && !errors.Is(err, audit.ErrTaken):
		err = fmt.Errorf("repair %s: %w; when that is cured `projector repair apply %s` goes on", op.ID, remedied(err), op.ID)
	}
	result := newRepairResult(run.Operation(), scope, items)
	if printed := result.print(p.stdout, c.json()); err != nil || printed != nil {
		return errors.Join(err, printed)
	}
	if n := result.Counts.Skipped; n > 0 {
		return answerNo{fmt.Sprintf("%s of %d skipped: a side has changed since the plan, or refused; `projector repair plan` compares again", count(n, "record"), len(items))}
	}
	return nil
}

// approve records a second person's approval of a removal.
func (c repairApply) approve(ctx context.Context, p *program, r *openedRepair, actor string) error {
	op, scope := r.op, r.scope
	if strings.EqualFold(strings.TrimSpace(actor), strings.TrimSpace(op.Actor)) {
		return fmt.Errorf("repair %s removes rows, and %s has planned it: a second person must apply it, as another --actor; nothing was removed", op.ID, op.Actor)
	}
	if !c.Yes {
		if err := p.confirm(fmt.Sprintf("Remove %s from %s, of which the source knows nothing, as planned by %s?", count(scope.Records, "record"), scope.Table, op.Actor)); err != nil {
			return err
		}
	}
	_, err := r.log.Change(ctx, op.ID, actor, audit.Approved, nil)
	return err
}

type repairVerify struct {
	Operation string `arg:"" help:"The repair, as plan and list name it." placeholder:"OPERATION"`
	output
	Actor  string        `help:"Who verifies it, for the record (default USER@HOST, or PROJECTOR_ACTOR)." placeholder:"NAME" envs:"PROJECTOR_ACTOR"`
	Settle time.Duration `help:"How long to wait for events under way before a difference counts." default:"15s" placeholder:"DURATION"`
}

func (repairVerify) Help() string {
	return `Compares exactly the records of an applied repair with the source, as projector reconcile
does: by the field contract, record by record, in a run of its own that only reads. If all of
them are equal the repair is verified; if one is not it is refuted. Records that the repair
skipped are compared too. It may be repeated, with whatever answer.

Exit codes: 0 verified; 3 refuted; 4 records did not come to rest, and the state is as before.

Examples:

    projector repair verify 20261130T134512-4f2a9c
    projector repair verify 20261130T134512-4f2a9c -o json`
}

func (c repairVerify) Run(ctx context.Context, p *program) error {
	if c.Settle <= 0 {
		return usageError{errors.New("--settle must be positive"), "projector repair verify"}
	}
	r, err := openRepair(ctx, p, c.Operation, (*config.Config).CheckSource)
	if err != nil {
		return err
	}
	defer r.close()
	op := r.op
	if op.State == audit.Withdrawn {
		return fmt.Errorf("repair %s is withdrawn: `projector reconcile` compares what it had done", op.ID)
	}
	if !slices.Contains([]audit.State{audit.Applied, audit.Verified, audit.Refuted}, op.State) {
		return fmt.Errorf("repair %s is %s: only what was applied can be verified; `projector repair apply %[1]s` first", op.ID, op.State)
	}
	pr, rules, err := r.projection()
	if err != nil {
		return err
	}
	how := comparing
	how.Settle = c.Settle
	scales, err := how.open(ctx, p, r.cfg, pr, rules)
	if err != nil {
		return err
	}
	defer scales.close()
	before, err := scales.sightings(ctx, "")
	if err != nil {
		return err
	}
	done, reports, err := repair.Verify(ctx, &scales.Comparison, r.records)
	if errors.Is(err, repair.ErrUnsettled) {
		return inconclusive{fmt.Sprintf("repair %s: %v; run it again", op.ID, err)}
	}
	if err != nil {
		return fmt.Errorf("repair %s was not verified: %w", op.ID, err)
	}
	if err := r.items.Add(ctx, done...); err != nil {
		return err
	}
	if err := scales.settle(ctx, reports, before); err != nil {
		return err
	}
	counts, state := repair.Count(done), audit.Verified
	if counts.Refuted > 0 {
		state = audit.Refuted
	}
	actor := requester{Actor: c.Actor}.actor(p.environ)
	op, err = r.log.Change(ctx, op.ID, actor, state, func(o *audit.Operation) { o.Verification = encoded(counts) })
	if err != nil {
		return err
	}
	if err := newRepairResult(op, r.scope, done).print(p.stdout, c.json()); err != nil {
		return err
	}
	if state == audit.Refuted {
		return answerNo{fmt.Sprintf("%d of %s differ from the source; `projector repair plan` says what can be done", counts.Refuted, count(len(done), "record"))}
	}
	return nil
}

// comparing is how repairs and rebuilds compare: contents, with MySQL.
var comparing = reconcileCommand{
	Against: "mysql", Level: "fields", Buckets: reconcile.DefaultBuckets, Settle: reconcile.DefaultSettle, Limit: reconcile.DefaultLimit,
}

// settle records as settled what comparisons of single records have found equal.
func (s *scales) settle(ctx context.Context, reports []*reconcile.Report, before sightings) error {
	for _, r := range reports {
		list, err := s.settled(ctx, r, audit.Finding{Projection: s.projection.Name, Generation: s.projection.Generation, Against: "mysql", Campaign: r.Campaign}, before)
		if err != nil {
			return err
		}
		if err := s.findings.Add(ctx, list...); err != nil {
			return admitted(err)
		}
	}
	return nil
}
