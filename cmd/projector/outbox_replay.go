package main

import (
	"context"
	"errors"
	"fmt"
	"math"
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

The replay is recorded in ClickHouse, like every operation. --no-record writes the record
to the log instead.

Examples:

    projector outbox replay --dry-run
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
	found, total := map[string]int64{}, int64(0)
	t := newTable(p.stdout, "SHARD", "PARKED", "CHOSEN")
	err = c.stores(ctx, cfg, func(shard mysql.Shard, s *outbox.Store) error {
		parked, err := s.Count(ctx, outbox.Filter{State: outbox.Parked})
		if err != nil {
			return err
		}
		n, err := s.Count(ctx, c.filter(outbox.Parked))
		n = min(n, int64(c.limit()))
		found[shard.Name], total = n, total+n
		t.row(shard.Name, strconv.FormatInt(parked, 10), strconv.FormatInt(n, 10))
		return err
	})
	if err := errors.Join(t.flush(), err); err != nil {
		return err // not even partly: the person who asks sees all or nothing of what would happen
	}
	if c.DryRun || total == 0 {
		return nil
	}
	if !c.Yes {
		if err := p.confirm(fmt.Sprintf("Make %s due again?", count(int(total), "event"))); err != nil {
			return err
		}
	}
	return c.replay(ctx, p, cfg, found)
}

func (c outboxReplay) limit() int {
	if c.Max == 0 {
		return math.MaxInt
	}
	return c.Max
}

func (c outboxReplay) replay(ctx context.Context, p *program, cfg *config.Config, found map[string]int64) error {
	log := p.logger()
	record, err := c.record(ctx, p, cfg, found)
	if err != nil {
		return err
	}
	defer record.close()
	done, told := map[string]int{}, time.Now()
	err = c.stores(ctx, cfg, func(shard mysql.Shard, s *outbox.Store) error {
		done[shard.Name] = 0
		return s.Replay(ctx, c.filter(outbox.Parked), c.limit(), c.Rate, func(ids []uint64) {
			done[shard.Name] += len(ids)
			log.Debug().Str("shard", shard.Name).Uints64("ids", ids).Msg("due again")
			if time.Since(told) > 10*time.Second {
				told = time.Now()
				log.Info().Str("shard", shard.Name).Int("events", done[shard.Name]).Int64("of", found[shard.Name]).Msg("replaying")
			}
		})
	})
	err = record.end(ctx, done, err)
	total := 0
	for _, n := range done {
		total += n
	}
	if err != nil {
		return fmt.Errorf("%s made due again, then: %w", count(total, "event"), err)
	}
	_, err = fmt.Fprintf(p.stdout, "%s made due again\n", count(total, "event"))
	return err
}

// replayRecord is where the replay is recorded: in ClickHouse, or in the log.
type replayRecord struct {
	run   *audit.Run // nil: in the log
	log   zerolog.Logger
	close func()
}

func (c outboxReplay) record(ctx context.Context, p *program, cfg *config.Config, found map[string]int64) (*replayRecord, error) {
	f := c.filter(outbox.Parked)
	scope := replayScope{Table: cfg.Outbox.Table, Filter: f.String(), Max: c.Max, Rate: c.Rate}
	shards, err := c.shards(cfg)
	if err != nil {
		return nil, err
	}
	for _, s := range shards {
		scope.Shards = append(scope.Shards, s.Name)
	}
	text, before, actor := encoded(scope), encoded(map[string]any{"parked": found}), c.actor(p.environ)
	r := &replayRecord{log: p.logger().With().Str("operation", string(audit.OutboxReplay)).Str("actor", actor).Str("reason", c.Reason).RawJSON("scope", text).Logger(), close: func() {}}
	if c.NoRecord {
		r.log.Info().RawJSON("before", before).Msg("replay begins")
		return r, nil
	}
	conn, err := clickhouse.Open(cfg.Control())
	if err != nil {
		return nil, err
	}
	r.close = func() { _ = conn.Close() }
	store := audit.Open(conn, cfg.Audit())
	r.run, err = store.Begin(ctx, audit.Operation{Kind: audit.OutboxReplay, State: audit.Running, Actor: actor, Reason: c.Reason, Scope: text, Before: before})
	if err != nil {
		r.close()
		return nil, fmt.Errorf("record the replay in ClickHouse, before which nothing is changed (--no-record writes the record to the log instead): %w", err)
	}
	return r, nil
}

// end writes how the replay ended, and returns failed.
func (r *replayRecord) end(ctx context.Context, done map[string]int, failed error) error {
	outcome := encoded(map[string]any{"due_again": done})
	if r.run == nil {
		r.log.Info().RawJSON("outcome", outcome).AnErr("error", failed).Msg("replay ended")
		return failed
	}
	return r.run.End(ctx, failed, func(op *audit.Operation) { op.Outcome = outcome })
}
