package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/offsets"
)

type offsetsCommand struct {
	Show    offsetsShow    `cmd:"" help:"Show committed against stored offsets."`
	Restore offsetsRestore `cmd:"" help:"Set the offsets of a lost group from the rows in ClickHouse."`
}

// offsetFlags are those of both commands.
type offsetFlags struct {
	output
	Projection string `help:"Only this projection; restore needs it when there are several." placeholder:"NAME"`
	BatchRows  int    `help:"The largest batch.rows that the group has ever run with, if it was larger than today's." placeholder:"ROWS"`
}

type offsetsShow struct{ offsetFlags }

func (offsetsShow) Help() string {
	return `Shows for each partition what Kafka holds (START, END), what the group has committed, the
highest offset that is stored in ClickHouse, and where the group could go on without losing
a record if its commits were lost (RESTORE). It reads only.

STATE: ok; unread (no commit, no rows); forgotten (no commit, but rows: "offsets restore");
expired (retention removed records before they were read: backfill them); replaced (the topic
was created anew or its log cut: the group begins again at its start).

Examples:

    projector offsets show
    projector offsets show --projection fitness_results -o json`
}

type offsetsRestore struct {
	offsetFlags
	requester
	DryRun bool `help:"Show what would be committed, and commit nothing."`
	Force  bool `help:"Also if the group has commits, which are then replaced."`
	Yes    bool `help:"Do not ask."`
}

func (offsetsRestore) Help() string {
	return `Gives a group that has lost its commits new ones, from the lineage of the rows that the stream
has stored: for each partition the highest offset of which it is certain that everything below
it is stored, parked or ignored. That is about one batch below the highest row: the last batch
may not have been finished. What lies between is read again, which changes nothing in the views.
Without it the group reads its topics from their start, which is safe too, and takes longer.

It refuses while the group has members, and without --force if it has commits. It never commits
beyond the end of a log, and says which offsets nobody can read any more.

Exit codes: 0 committed; 1 refused, or failed.

Examples:

    projector offsets restore --projection fitness_results --dry-run
    projector offsets restore --projection fitness_results --reason "group expired, ticket 4711"
    projector offsets restore --projection fitness_results --force --yes`
}

// shownOffsets is one projection's answer.
type shownOffsets struct {
	Projection string           `json:"projection"`
	Group      string           `json:"group"`
	Table      string           `json:"table"`
	Members    []string         `json:"members"`
	Partitions []shownPartition `json:"partitions"`
	Restored   string           `json:"restored,omitempty"` // the operation
}

type shownPartition struct {
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	Start     int64         `json:"start"`
	End       int64         `json:"end"`
	Committed *int64        `json:"committed"`
	Stored    *int64        `json:"stored"`
	State     offsets.State `json:"state"`
	Restore   int64         `json:"restore"`
	Reason    string        `json:"reason"`
	Lost      int64         `json:"lost"`         // offsets that are gone and may not have been stored
	Certain   int64         `json:"certain_lost"` // of them, those above everything stored
}

// look asks about one projection.
func (f *offsetFlags) look(ctx context.Context, q *questions, records *kafka.Records, pr *config.Projection) (*shownOffsets, error) {
	table, group := q.cfg.Table(pr), q.cfg.Group(pr)
	plan, err := pr.Plan()
	if err != nil {
		return nil, err
	}
	rows, err := clickhouse.NewInserter(q.cfg.ClickHouseClient(), table.Physical())
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // it has only read
	if err := q.admin.Ping(ctx); err != nil {
		return nil, err
	}
	members, err := q.admin.Members(ctx, group)
	if err != nil {
		return nil, err
	}
	survey := offsets.Survey{
		Table: table, Group: group, Topics: pr.Topics, Plan: plan, Batch: max(q.cfg.Batch.Rows, f.BatchRows),
		Admin: q.admin, Records: records, Conn: q.control, Rows: rows,
	}
	partitions, err := survey.Look(ctx)
	if err != nil {
		return nil, noTable(err, table)
	}
	s := &shownOffsets{Projection: pr.Name, Group: group, Table: table.Physical(), Members: members}
	for _, p := range partitions {
		s.Partitions = append(s.Partitions, shownPartition{
			Topic: p.Topic, Partition: p.Partition, Start: p.Start, End: p.End, Committed: known(p.Committed), Stored: known(p.Stored),
			State: p.State, Restore: p.Restore, Reason: p.Reason, Lost: p.Lost, Certain: p.Certain,
		})
	}
	return s, nil
}

// known is an offset, or nil for -1, which stands for none.
func known(offset int64) *int64 {
	if offset < 0 {
		return nil
	}
	return &offset
}

// with runs do with what asks the servers.
func (f *offsetFlags) with(p *program, do func(*questions, *kafka.Records) error) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	if f.BatchRows < 0 {
		return usageError{errors.New("--batch-rows cannot be negative"), ""}
	}
	if err := cfg.CheckFiles(); err != nil {
		return err
	}
	q, err := newQuestions(cfg, p, attemptTimeout)
	if err != nil {
		return err
	}
	defer q.close()
	opts, err := cfg.KafkaClient().Options(p.logger())
	if err != nil {
		return err
	}
	records, err := kafka.NewRecords(opts...)
	if err != nil {
		return err
	}
	defer records.Close()
	return do(q, records)
}

func (c offsetsShow) Run(ctx context.Context, p *program) error {
	return c.with(p, func(q *questions, records *kafka.Records) error {
		list, err := projections(q.cfg, c.Projection)
		if err != nil {
			return err
		}
		var all []*shownOffsets
		for _, pr := range list {
			s, err := c.look(ctx, q, records, pr)
			if err != nil {
				return err
			}
			all = append(all, s)
		}
		if c.json() {
			return printJSON(p.stdout, all)
		}
		return printEach(p.stdout, all)
	})
}

func (c offsetsRestore) Run(ctx context.Context, p *program) error {
	return c.with(p, func(q *questions, records *kafka.Records) error {
		pr, err := projection(q.cfg, c.Projection)
		if err != nil {
			return err
		}
		s, err := c.look(ctx, q, records, pr)
		if err != nil {
			return err
		}
		if c.DryRun {
			return c.print(p, s)
		}
		if err := c.admissible(s); err != nil {
			_ = s.print(p.stderr)
			return err
		}
		if !c.Yes {
			if err := s.print(p.stderr); err != nil {
				return err
			}
			if err := p.confirm(fmt.Sprintf("\nCommit the offsets under RESTORE for the group %s?", s.Group)); err != nil {
				return err
			}
		}
		if err := c.restore(ctx, q, p, s); err != nil {
			return err
		}
		return c.print(p, s)
	})
}

func (c offsetsRestore) print(p *program, s *shownOffsets) error {
	if c.json() {
		return printJSON(p.stdout, s)
	}
	return s.print(p.stdout)
}

// admissible says whether the group may be given other commits.
func (c offsetsRestore) admissible(s *shownOffsets) error {
	if len(s.Members) > 0 {
		return fmt.Errorf("the group %s has members (%s), which would overwrite what is restored: stop them first, or wait until Kafka has noticed that they died", s.Group, strings.Join(s.Members, ", "))
	}
	committed := 0
	for _, p := range s.Partitions {
		if p.Committed != nil {
			committed++
		}
	}
	if committed > 0 && !c.Force {
		return fmt.Errorf("the group %s has commits for %d of %s and is not lost; --force replaces them", s.Group, committed, count(len(s.Partitions), "partition"))
	}
	return nil
}

// restore commits, under a record of it.
func (c offsetsRestore) restore(ctx context.Context, q *questions, p *program, s *shownOffsets) error {
	run, err := audit.Open(q.control, q.cfg.Audit()).Begin(ctx, audit.Operation{
		Kind: audit.OffsetsRestore, Projection: s.Projection, State: audit.Running, Actor: c.actor(p.environ), Reason: c.Reason,
		Scope: encoded(map[string]any{"group": s.Group, "force": c.Force}), Before: encoded(s.Partitions),
	})
	if err != nil {
		return err
	}
	commits := kafka.Commits{}
	for _, p := range s.Partitions {
		commits.Set(p.Topic, p.Partition, kafka.Commit{Offset: p.Restore, Epoch: -1})
	}
	err = q.admin.Commit(ctx, s.Group, commits)
	s.Restored = run.Operation().ID
	return run.End(ctx, err, func(op *audit.Operation) {
		if err == nil {
			op.Outcome = encoded(commits)
		}
	})
}
