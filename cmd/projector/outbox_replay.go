package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/internal/outbox"
)

type outboxReplay struct {
	eventFilter
	requester
	output
	Max      int  `help:"So many events of each shard at most; 0 is all." placeholder:"N"`
	Rate     int  `help:"So many events a second at most, in each shard; 0 is as fast as it goes." default:"100" placeholder:"N"`
	DryRun   bool `help:"Show what would be replayed and change nothing."`
	Yes      bool `help:"Do not ask."`
	NoRecord bool `help:"Write the record to the log instead of to ClickHouse: for those who have none."`
}

func (outboxReplay) Help() string {
	return `Makes parked events due again, with all their attempts before them; a running relay then
publishes them. Versions decide what readers see, so replaying an old event is harmless.
Correct the cause first: events that fail again are parked again.

The replay is recorded in ClickHouse, like every operation, with its --reason, which only
--dry-run does without. --no-record writes the record to the log instead.

Examples:

    projector outbox replay --dry-run
    projector outbox replay --dry-run -o json
    projector outbox replay --error MESSAGE_TOO_LARGE --reason "max.message.bytes raised"
    projector outbox replay --shard s1 --older-than 1h --max 1000 --rate 50 --yes --reason "CHG-12"`
}

// replayScope is what the record says of a replay.
type replayScope struct {
	Shards []string `json:"shards"`
	Table  string   `json:"table"`
	Filter string   `json:"filter"`
	Max    int      `json:"max,omitempty"`
	Rate   int      `json:"rate,omitempty"`
}

func (c outboxReplay) Run(ctx context.Context, p *program) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	switch {
	case c.Max < 0 || c.Rate < 0:
		return usageError{errors.New("--max and --rate must not be negative"), "projector outbox replay"}
	case c.Reason == "" && !c.DryRun:
		return usageError{errors.New("give --reason: it goes into the record of the replay"), "projector outbox replay"}
	}
	if !c.DryRun && !c.NoRecord {
		if err := cfg.CheckClickHouse(); err != nil {
			return err
		}
	}
	r := &replayedEvents{DryRun: c.DryRun, Shards: []replayedShard{}}
	err = c.stores(ctx, cfg, func(shard mysql.Shard, s *outbox.Store) error {
		parked, err := s.Count(ctx, outbox.Filter{State: outbox.Parked})
		if err != nil {
			return err
		}
		n, err := s.Count(ctx, c.filter(outbox.Parked))
		r.Shards = append(r.Shards, replayedShard{Shard: shard.Name, Parked: parked, Chosen: min(n, int64(c.limit()))})
		return err
	})
	if !c.json() && len(r.Shards) > 0 {
		err = errors.Join(r.print(p.stdout), err)
	}
	if err != nil {
		return err // not even partly: the person who asks sees all or nothing of what would happen
	}
	if !c.DryRun && r.chosen() > 0 {
		if err := c.ask(p, r); err != nil {
			return err
		}
		err = c.replay(ctx, p, cfg, r)
	}
	if c.json() {
		return errors.Join(printJSON(p.stdout, r), err)
	}
	return err
}

func (c outboxReplay) ask(p *program, r *replayedEvents) error {
	if c.Yes {
		return nil
	}
	if c.json() { // stdout is for the result
		if err := r.print(p.stderr); err != nil {
			return err
		}
	}
	return p.confirm(fmt.Sprintf("Make %s due again?", count(int(r.chosen()), "event")))
}

// replayedEvents is what a replay has chosen, and what came of it.
type replayedEvents struct {
	Operation string          `json:"operation,omitempty"` // in ClickHouse's record
	DryRun    bool            `json:"dry_run"`
	Shards    []replayedShard `json:"shards"`
}

type replayedShard struct {
	Shard    string `json:"shard"`
	Parked   int64  `json:"parked"` // before the replay
	Chosen   int64  `json:"chosen"`
	DueAgain int    `json:"due_again"`
}

func (r *replayedEvents) chosen() (n int64) {
	for _, s := range r.Shards {
		n += s.Chosen
	}
	return n
}

func (r *replayedEvents) dueAgain() (n int) {
	for _, s := range r.Shards {
		n += s.DueAgain
	}
	return n
}

// print shows what was chosen.
func (r *replayedEvents) print(w io.Writer) error {
	t := newTable(w, "SHARD", "PARKED", "CHOSEN")
	for _, s := range r.Shards {
		t.row(s.Shard, strconv.FormatInt(s.Parked, 10), strconv.FormatInt(s.Chosen, 10))
	}
	return t.flush()
}

func (c outboxReplay) limit() int {
	if c.Max == 0 {
		return math.MaxInt
	}
	return c.Max
}

func (c outboxReplay) replay(ctx context.Context, p *program, cfg *config.Config, r *replayedEvents) error {
	log := p.logger()
	record, err := c.record(ctx, p, cfg, r)
	if err != nil {
		return err
	}
	defer record.close()
	told := time.Now()
	err = c.stores(ctx, cfg, func(shard mysql.Shard, s *outbox.Store) error {
		at := &r.Shards[slices.IndexFunc(r.Shards, func(s replayedShard) bool { return s.Shard == shard.Name })]
		return s.Replay(ctx, c.filter(outbox.Parked), c.limit(), c.Rate, func(ids []uint64) {
			at.DueAgain += len(ids)
			log.Debug().Str("shard", shard.Name).Uints64("ids", ids).Msg("due again")
			if time.Since(told) > 10*time.Second {
				told = time.Now()
				log.Info().Str("shard", shard.Name).Int("events", at.DueAgain).Int64("of", at.Chosen).Msg("replaying")
			}
		})
	})
	if err = record.end(ctx, r, err); err != nil {
		return fmt.Errorf("%s made due again, then: %w", count(r.dueAgain(), "event"), err)
	}
	if !c.json() {
		_, err = fmt.Fprintf(p.stdout, "%s made due again\n", count(r.dueAgain(), "event"))
	}
	return err
}

// replayRecord is where the replay is recorded: in ClickHouse, or in the log.
type replayRecord struct {
	run   *audit.Run // nil: in the log
	log   zerolog.Logger
	close func()
}

func (c outboxReplay) record(ctx context.Context, p *program, cfg *config.Config, r *replayedEvents) (*replayRecord, error) {
	scope := replayScope{Table: cfg.Outbox.Table, Filter: c.filter(outbox.Parked).String(), Max: c.Max, Rate: c.Rate}
	chosen := map[string]int64{}
	for _, s := range r.Shards {
		scope.Shards = append(scope.Shards, s.Shard)
		chosen[s.Shard] = s.Chosen
	}
	text, before, actor := encoded(scope), encoded(map[string]any{"parked": chosen}), c.actor(p.environ)
	record := &replayRecord{log: p.logger().With().Str("operation", string(audit.OutboxReplay)).Str("actor", actor).Str("reason", c.Reason).RawJSON("scope", text).Logger(), close: func() {}}
	if c.NoRecord {
		record.log.Info().RawJSON("before", before).Msg("replay begins")
		return record, nil
	}
	conn, err := clickhouse.Open(cfg.Control())
	if err != nil {
		return nil, err
	}
	record.close = func() { _ = conn.Close() } // everything it wrote was answered
	record.run, err = audit.Open(conn, cfg.Audit()).Begin(ctx, audit.Operation{Kind: audit.OutboxReplay, State: audit.Running, Actor: actor, Reason: c.Reason, Scope: text, Before: before})
	if err != nil {
		record.close()
		return nil, fmt.Errorf("record the replay in ClickHouse, before which nothing is changed (--no-record writes the record to the log instead): %w", err)
	}
	r.Operation = record.run.Operation().ID
	return record, nil
}

// end writes how the replay ended, and returns failed.
func (r *replayRecord) end(ctx context.Context, events *replayedEvents, failed error) error {
	done := map[string]int{}
	for _, s := range events.Shards {
		done[s.Shard] = s.DueAgain
	}
	outcome := encoded(map[string]any{"due_again": done})
	if r.run == nil {
		r.log.Info().RawJSON("outcome", outcome).AnErr("error", failed).Msg("replay ended")
		return failed
	}
	return r.run.End(ctx, failed, func(op *audit.Operation) { op.Outcome = outcome })
}
