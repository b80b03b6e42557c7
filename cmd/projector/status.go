package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/offsets"
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

// projectionStatus is what is known of one projection. Nil is unknown.
type projectionStatus struct {
	Projection string            `json:"projection"`
	Table      string            `json:"table"`
	Group      string            `json:"group"`
	Lag        *int64            `json:"lag"`
	Newest     *time.Time        `json:"newest_row_at"`
	Age        *float64          `json:"newest_row_age_seconds"`
	Partitions []partitionStatus `json:"partitions"`
	Letters    []letterStatus    `json:"dead_letters"`
	Trouble    []string          `json:"trouble,omitempty"` // lost offsets, each with what to do
	// Discrepancies are unresolved findings of comparisons, by kind;
	// version_conflict is one version with two contents.
	Discrepancies map[string]uint64  `json:"discrepancies"`
	Reconciled    []comparisonStatus `json:"last_reconciled"`
	Unknown       []string           `json:"unknown,omitempty"`
}

type partitionStatus struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"`
	End       *int64 `json:"end"`
	Lag       *int64 `json:"lag"`
	Expired   int64  `json:"expired,omitempty"` // removed by retention before it was read
	Stored    *int64 `json:"stored"`

	State offsets.State `json:"state,omitempty"` // absent while Kafka or ClickHouse is unknown
	start int64
}

// comparisonStatus is the newest comparison with one kind of source.
type comparisonStatus struct {
	Against  string    `json:"against"`
	Campaign string    `json:"campaign"`
	Level    string    `json:"level"`
	Verdict  string    `json:"verdict"`
	At       time.Time `json:"at"`
}

type letterStatus struct {
	Topic   string         `json:"topic"`
	Letters int64          `json:"letters"`
	Scanned int            `json:"scanned"` // the newest of them, read for the classes
	Classes map[string]int `json:"classes"`
	Newest  *time.Time     `json:"newest_at"`
}

func (c statusCommand) Run(ctx context.Context, p *program) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	if err := cfg.CheckFiles(); err != nil {
		return err
	}
	projections := cfg.Projections
	if c.Projection != "" {
		pr, err := projection(cfg, c.Projection)
		if err != nil {
			return err
		}
		projections = []config.Projection{*pr}
	}
	ask, err := newQuestions(cfg, p, c.Timeout)
	if err != nil {
		return err
	}
	defer ask.close()
	var all []*projectionStatus
	unknown := 0
	for i := range projections {
		s := ask.projection(ctx, &projections[i])
		unknown += len(s.Unknown)
		all = append(all, s)
	}
	if c.json() {
		err = printJSON(p.stdout, all)
	} else {
		err = printStatus(p.stdout, all)
	}
	if err == nil && unknown > 0 {
		return fmt.Errorf("%s could not be asked; what they would have told is shown as unknown", count(unknown, "part"))
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

// projection asks everything about one projection; what one server does not
// answer does not keep the others from being asked.
func (q *questions) projection(ctx context.Context, p *config.Projection) *projectionStatus {
	s := &projectionStatus{Projection: p.Name, Table: q.cfg.Table(p).Physical(), Group: q.cfg.Group(p)}
	parts := []struct {
		name string
		ask  func(context.Context, *config.Projection, *projectionStatus) error
	}{
		{"offsets", q.offsets}, {"stored rows", q.stored}, {"dead letters", q.parked}, {"discrepancies", q.found},
	}
	for _, part := range parts {
		ctx, cancel := context.WithTimeout(ctx, q.timeout)
		if err := part.ask(ctx, p, s); err != nil {
			s.Unknown = append(s.Unknown, fmt.Sprintf("%s: %v", part.name, err))
		}
		cancel()
	}
	return s
}

func (q *questions) offsets(ctx context.Context, p *config.Projection, s *projectionStatus) error {
	// Other requests are repeated inside the client until the time is up, which
	// would then be the only reason given.
	if err := q.admin.Ping(ctx); err != nil {
		return err
	}
	lags, err := q.admin.Lag(ctx, s.Group, p.Topics...)
	if err != nil {
		return err
	}
	var total int64
	for _, l := range lags {
		lag := l.Lag()
		part := partitionStatus{Topic: l.Topic, Partition: l.Partition, End: &l.End, Lag: &lag, Expired: l.Expired(), start: l.Start}
		if l.Committed >= 0 {
			part.Committed = &l.Committed
		}
		total += lag
		s.Partitions = append(s.Partitions, part)
	}
	s.Lag = &total
	return nil
}

func (q *questions) parked(ctx context.Context, p *config.Projection, s *projectionStatus) error {
	if err := q.admin.Ping(ctx); err != nil {
		return err
	}
	stats, err := q.letters.Stats(ctx, p.Topics...)
	if err != nil {
		return err
	}
	for _, st := range stats {
		l := letterStatus{Topic: st.Topic, Letters: st.Letters, Scanned: st.Scanned, Classes: st.Classes}
		if !st.Newest.IsZero() {
			l.Newest = &st.Newest
		}
		s.Letters = append(s.Letters, l)
	}
	return nil
}

// found reads what comparisons have recorded.
func (q *questions) found(ctx context.Context, p *config.Projection, s *projectionStatus) error {
	record := audit.OpenFindings(q.control, q.cfg.Audit())
	counts, err := record.Counts(ctx)
	if err != nil {
		return admitted(err)
	}
	s.Discrepancies = map[string]uint64{}
	for _, c := range counts {
		if c.Projection == p.Name {
			s.Discrepancies[c.Kind] = c.Count
		}
	}
	last, err := record.LastComparisons(ctx, "")
	if err != nil {
		return admitted(err)
	}
	for _, l := range last {
		if l.Projection == p.Name && l.Generation == p.Generation {
			s.Reconciled = append(s.Reconciled, comparisonStatus{l.Against, l.Campaign, l.Level, l.Verdict, l.At})
		}
	}
	return nil
}

// stored reads the lineage of what the stream has written: a backfill says
// nothing of how far the stream has come.
func (q *questions) stored(ctx context.Context, p *config.Projection, s *projectionStatus) error {
	t := q.cfg.Table(p)
	var rows []struct {
		Topic     string    `ch:"_topic"`
		Partition int32     `ch:"_partition"`
		Offset    int64     `ch:"newest_offset"`
		Newest    time.Time `ch:"newest"`
		Now       time.Time `ch:"now"`
	}
	// The server's clock for both times: the age must not depend on this one.
	err := q.control.Select(ctx, &rows, fmt.Sprintf(`SELECT _topic, _partition, max(_offset) AS newest_offset, max(_ingested_at) AS newest, now64(3, 'UTC') AS now
FROM %s WHERE _origin = '%s' GROUP BY _topic, _partition ORDER BY _topic, _partition SETTINGS final = 0`, t.Qualified(t.Physical()), chschema.OriginStream))
	if err != nil {
		return noTable(admitted(fmt.Errorf("ask ClickHouse: %w", err)), t)
	}
	for _, r := range rows {
		if s.Newest == nil || r.Newest.After(*s.Newest) {
			age := r.Now.Sub(r.Newest).Seconds()
			s.Newest, s.Age = &r.Newest, &age
		}
		i := slices.IndexFunc(s.Partitions, func(p partitionStatus) bool { return p.Topic == r.Topic && p.Partition == r.Partition })
		if i < 0 { // Kafka did not answer, or the topic is no longer consumed
			i = len(s.Partitions)
			s.Partitions = append(s.Partitions, partitionStatus{Topic: r.Topic, Partition: r.Partition})
		}
		s.Partitions[i].Stored = &r.Offset
	}
	s.judge()
	return nil
}

// judge finds partitions whose commit does not fit what Kafka and the table
// hold. It needs both answers.
func (s *projectionStatus) judge() {
	for i := range s.Partitions {
		p := &s.Partitions[i]
		if p.End == nil { // not asked, or a topic that is no longer consumed
			continue
		}
		l := kafka.PartitionLag{Topic: p.Topic, Partition: p.Partition, Start: p.start, End: *p.End, Committed: orNone(p.Committed)}
		p.State = offsets.Judge(l, orNone(p.Stored))
		if trouble := troubleOf(p.Topic, p.Partition, p.State, p.start, p.Committed, p.Stored, s.Projection); trouble != "" {
			s.Trouble = append(s.Trouble, trouble)
		}
	}
}

// orNone is an offset, -1 for none.
func orNone(offset *int64) int64 {
	if offset == nil {
		return -1
	}
	return *offset
}

// noTable names the remedy for a table that does not exist.
func noTable(err error, t chschema.Table) error {
	const unknownTable, unknownDatabase = 60, 81
	if code := clickhouse.Code(err); code == unknownTable || code == unknownDatabase {
		return fmt.Errorf("table %s does not exist; run `projector schema apply`", t.Qualified(t.Physical()))
	}
	return err
}
