package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
)

type statusCommand struct {
	output
	Projection string        `help:"Only this projection." placeholder:"NAME"`
	Timeout    time.Duration `help:"How long to wait for each server." default:"10s" placeholder:"DURATION"`
}

func (statusCommand) Help() string {
	return `Asks Kafka and ClickHouse how far each projection is: committed offsets against the ends
of the topics (lag), the highest offset stored in the table, the newest row's age
(freshness), the dead letters by topic and class, and what comparisons have found and not
seen settled since (projector reconcile). It reads only.

A part that cannot be reached is shown as unknown with the reason; the exit code is then 1.

Columns: COMMITTED is the next offset the group will read, "none" before its first commit;
STORED is the highest offset in the table, "-" for a partition without rows. It may lie
beyond COMMITTED-1 for a moment (inserted, not yet committed) and stays below it where
events became dead letters or tombstones were ignored.

Lost offsets are told below the table, each with the exact gap and what to do: records that
retention removed unread, a topic that was created anew, a group that Kafka has forgotten.

Examples:

    projector status
    projector status --projection fitness_results -o json`
}

func (c statusCommand) Run(ctx context.Context, p *program) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	if c.Timeout <= 0 {
		return usageError{errors.New("--timeout must be positive"), "projector status"}
	}
	if err := cfg.CheckFiles(); err != nil {
		return err
	}
	list, err := projections(cfg, c.Projection)
	if err != nil {
		return err
	}
	ask, err := newQuestions(cfg, p, c.Timeout)
	if err != nil {
		return err
	}
	defer ask.close()
	var all []*projectionStatus
	unknown := 0
	for _, pr := range list {
		s := ask.projection(ctx, pr)
		unknown += len(s.Unknown)
		all = append(all, s)
	}
	if c.json() {
		err = printJSON(p.stdout, all)
	} else {
		err = printEach(p.stdout, all)
	}
	if err == nil && unknown > 0 {
		return fmt.Errorf("%s could not be asked: what is missing is shown as unknown", count(unknown, "part"))
	}
	return err
}

// questions asks the servers.
type questions struct {
	cfg     *config.Config
	timeout time.Duration
	admin   *kafka.Admin
	letters *deadletter.Reader
	control control
}

func newQuestions(cfg *config.Config, p *program, timeout time.Duration) (*questions, error) {
	opts, err := cfg.KafkaClient().Options(p.logger())
	if err != nil {
		return nil, err
	}
	admin, err := kafka.NewAdmin(opts...)
	if err != nil {
		return nil, err
	}
	letters, err := deadletter.NewReader(cfg.Letters(), opts...)
	if err != nil {
		admin.Close()
		return nil, err
	}
	control, err := clickhouse.Open(cfg.Control())
	if err != nil {
		admin.Close()
		letters.Close()
		return nil, err
	}
	return &questions{cfg, timeout, admin, letters, control}, nil
}

func (q *questions) close() {
	q.admin.Close()
	q.letters.Close()
	_ = q.control.Close() // it has only read
}

// answers are what the servers said of one projection. An error takes the
// place of what one of them did not say.
type answers struct {
	offsets []kafka.PartitionLag
	stored  []storedRow
	letters []deadletter.Stats
	found   findings

	offsetsErr, storedErr, lettersErr, foundErr error
}

// projection asks everything about one projection; what one server does not
// answer does not keep the others from being asked.
func (q *questions) projection(ctx context.Context, p *config.Projection) *projectionStatus {
	var a answers
	a.offsets, a.offsetsErr = within(ctx, q.timeout, p, q.offsets)
	a.stored, a.storedErr = within(ctx, q.timeout, p, q.stored)
	a.letters, a.lettersErr = within(ctx, q.timeout, p, q.parked)
	a.found, a.foundErr = within(ctx, q.timeout, p, q.found)
	return newStatus(q.cfg, p, a)
}

// within bounds one question.
func within[T any](ctx context.Context, timeout time.Duration, p *config.Projection, ask func(context.Context, *config.Projection) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return ask(ctx, p)
}

func (q *questions) offsets(ctx context.Context, p *config.Projection) ([]kafka.PartitionLag, error) {
	// Other requests are repeated inside the client until the time is up, which
	// would then be the only reason given.
	if err := q.admin.Ping(ctx); err != nil {
		return nil, err
	}
	return q.admin.Lag(ctx, q.cfg.Group(p), p.Topics...)
}

func (q *questions) parked(ctx context.Context, p *config.Projection) ([]deadletter.Stats, error) {
	if err := q.admin.Ping(ctx); err != nil {
		return nil, err
	}
	return q.letters.Stats(ctx, p.Topics...)
}

// findings are what comparisons and repairs have recorded of one projection.
type findings struct {
	discrepancies map[string]uint64
	reconciled    []comparisonStatus
	repairs       map[audit.State]int
}

// repairs counts the repairs that are not at their end.
func (q *questions) repairs(ctx context.Context, p *config.Projection) (map[audit.State]int, error) {
	list, err := audit.Open(q.control, q.cfg.Audit()).Counts(ctx)
	if err != nil {
		return nil, admitted(err)
	}
	counts := map[audit.State]int{}
	for _, c := range list {
		if c.Kind == audit.Repair && c.Projection == p.Name {
			counts[c.State] = int(c.Operations)
		}
	}
	return counts, nil
}

// found reads what comparisons have recorded.
func (q *questions) found(ctx context.Context, p *config.Projection) (f findings, err error) {
	record := audit.OpenFindings(q.control, q.cfg.Audit())
	counts, err := record.Counts(ctx)
	if err != nil {
		return f, admitted(err)
	}
	f.discrepancies = map[string]uint64{}
	for _, c := range counts {
		if c.Projection == p.Name && c.Generation == p.Generation {
			f.discrepancies[c.Kind] = c.Count
		}
	}
	last, err := record.LastComparisons(ctx, "")
	if err != nil {
		return f, admitted(err)
	}
	for _, l := range last {
		if l.Projection == p.Name && l.Generation == p.Generation {
			f.reconciled = append(f.reconciled, comparisonStatus{l.Against, l.Campaign, l.Level, l.Verdict, l.At})
		}
	}
	f.repairs, err = q.repairs(ctx, p)
	return f, err
}

// storedRow is the newest that the table has of a partition.
type storedRow struct {
	Topic     string    `ch:"_topic"`
	Partition int32     `ch:"_partition"`
	Offset    int64     `ch:"newest_offset"`
	Newest    time.Time `ch:"newest"`
	Now       time.Time `ch:"now"`
}

// stored reads the lineage of what the stream has written: a backfill says
// nothing of how far the stream has come.
func (q *questions) stored(ctx context.Context, p *config.Projection) ([]storedRow, error) {
	t := q.cfg.Table(p)
	var rows []storedRow
	// The server's clock for both times: the age must not depend on this one.
	err := q.control.Select(ctx, &rows, fmt.Sprintf(`SELECT _topic, _partition, max(_offset) AS newest_offset, max(_ingested_at) AS newest, now64(3, 'UTC') AS now
FROM %s WHERE _origin = '%s' GROUP BY _topic, _partition ORDER BY _topic, _partition SETTINGS final = 0`, t.Qualified(t.Physical()), chschema.OriginStream))
	if err != nil {
		return nil, noTable(admitted(fmt.Errorf("ask ClickHouse: %w", err)), t)
	}
	return rows, nil
}

// noTable names the remedy for a table that does not exist.
func noTable(err error, t chschema.Table) error {
	const unknownTable, unknownDatabase = 60, 81
	if code := clickhouse.Code(err); code == unknownTable || code == unknownDatabase {
		return fmt.Errorf("table %s does not exist; run `projector schema apply`", t.Qualified(t.Physical()))
	}
	return err
}
