package outbox

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/ops"
)

// Publisher is what a relay needs of a [Producer].
type Publisher interface {
	Publish(ctx context.Context, records []*kgo.Record) []Outcome
	Ping(ctx context.Context) error
}

// Deps is what a relay works with.
type Deps struct {
	DB      *sql.DB // of the shard; two sessions suffice
	Kafka   Publisher
	Metrics *Metrics
	Log     zerolog.Logger
	Owner   string // noted in claims, for people: which process holds them
}

// Relay publishes the outbox of one shard. Any number of them may work on one
// shard, in any number of processes. Relays of different shards share nothing
// but the producer, so that a shard that is away holds up only itself.
type Relay struct {
	shard   string
	config  Config
	store   *Store
	kafka   Publisher
	metrics shardMetrics
	log     zerolog.Logger
	health  health

	closed  map[string]time.Time // topics that take nothing, and until when they are left alone
	unknown map[string]time.Time // aggregate types without a topic, and until when that is not logged again
}

// New makes the relay of a shard. Nothing is connected.
func New(shard string, config Config, deps Deps) *Relay {
	r := &Relay{
		shard: shard, config: config, kafka: deps.Kafka, metrics: deps.Metrics.of(shard),
		store:  NewStore(shard, deps.DB, config.Table, deps.Owner, config.StrictOrder),
		log:    deps.Log.With().Str("shard", shard).Logger(),
		closed: map[string]time.Time{}, unknown: map[string]time.Time{},
	}
	r.store.repeated = func(kind string) { r.metrics.add(deps.Metrics.transactions, 1, kind) }
	r.health.start(r.stuckAfter())
	return r
}

// Run relays until ctx is done, then finishes or gives back what it has claimed
// and returns nil. hard ends also that: claims that are left then run out with
// their lease. A *DesignError, of a table or a server that no waiting makes
// right, is returned before anything is claimed; all other trouble is waited
// for.
func (r *Relay) Run(ctx, hard context.Context) error {
	if err := r.prepare(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	r.log.Info().Str("table", r.config.Table).Int("batch", r.config.Batch).Bool("strict_order", r.config.StrictOrder).Msg("relaying")
	var upkeep sync.WaitGroup
	upkeep.Go(func() { r.upkeep(ctx) })
	r.relay(ctx, hard)
	upkeep.Wait()
	r.health.stop()
	return nil
}

// prepare waits until the shard can be worked on.
func (r *Relay) prepare(ctx context.Context) error {
	streak := ops.NewStreak(r.log, "wait for the outbox")
	for attempt := 1; ; attempt++ {
		err := r.store.Probe(ctx)
		if err == nil {
			err = r.store.ProbeRights(ctx, r.config.Heartbeat.Interval > 0)
		}
		r.health.turn()
		switch _, final := errors.AsType[*DesignError](err); {
		case err == nil:
			streak.Succeed()
			return nil
		case final:
			return err
		case ctx.Err() != nil:
			return nil //nolint:nilerr // asked to stop while trying: what was tried no longer matters
		}
		r.health.waiting(err)
		r.metrics.uncounted()
		streak.Fail(err)
		if !wait(ctx, jittered(attempt, least, most)) {
			return nil
		}
	}
}

// Pauses after trouble with a server, whose end is not to be missed by long.
const (
	least = 200 * time.Millisecond
	most  = 5 * time.Second
)

// relay claims, publishes and settles, one claim after another.
func (r *Relay) relay(ctx, hard context.Context) {
	shard, kafka := ops.NewStreak(r.log, "claim events"), ops.NewStreak(r.log, "publish to Kafka")
	failures := 1 // so that nothing is claimed before Kafka has answered once
	for ctx.Err() == nil {
		r.health.turn()
		// While Kafka is away nothing is claimed: a claim would only have to be given back.
		if failures > 0 {
			if err := r.ping(ctx); err != nil {
				failures++
				r.trouble(ctx, kafka, "publish", err)
				wait(ctx, jittered(failures, least, most))
				continue
			}
		}
		c, err := r.store.claim(ctx, r.config.Batch, r.config.Attempts, r.config.Lease, rand.Uint64()|1)
		if err != nil {
			r.trouble(ctx, shard, "claim", err)
			wait(ctx, jittered(3, least, most))
			continue
		}
		shard.Succeed()
		if len(c.events) == 0 {
			r.health.well()
			wait(ctx, r.config.Poll/2+rand.N(r.config.Poll))
			continue
		}
		r.metrics.add(r.metrics.m.claims, 1)
		r.metrics.add(r.metrics.m.claimed, len(c.events))
		trouble := r.handle(ctx, hard, c)
		if trouble != nil {
			failures++
			r.trouble(ctx, kafka, "publish", trouble)
			wait(ctx, jittered(failures, least, most))
			continue
		}
		failures = 0
		kafka.Succeed()
		r.health.well()
		if !c.more {
			wait(ctx, r.config.Poll/2+rand.N(r.config.Poll))
		}
	}
}

func (r *Relay) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.PublishTimeout)
	defer cancel()
	return r.kafka.Ping(ctx)
}

func (r *Relay) trouble(ctx context.Context, streak *ops.Streak, task string, err error) {
	if ctx.Err() != nil {
		return // what was under way was cut off
	}
	r.metrics.add(r.metrics.m.errors, 1, task)
	r.health.trouble(err)
	streak.Fail(err)
}

// handle publishes a claim and settles it. It returns an error if Kafka or the
// shard was in the way and nothing at all was published.
func (r *Relay) handle(ctx, hard context.Context, c claim) error {
	b := newBatch(r, c)
	// The deadline is counted from before the claim, so that slowness anywhere
	// leaves the lease's remainder for settling.
	publish, cancel := context.WithDeadline(hard, c.since.Add(r.config.PublishTimeout))
	defer cancel()
	if ctx.Err() == nil {
		b.publish(publish)
	}
	// A lease that is over may not have been ended by anybody yet, and if it was,
	// the token keeps this from doing harm: it is worth a try.
	settle, cancelSettle := context.WithTimeout(hard, max(time.Until(c.since.Add(r.config.Lease)), statementTimeout))
	defer cancelSettle()
	b.settle(settle)
	if b.trouble != nil && len(b.sent) == 0 && len(b.refused) == 0 {
		return b.trouble
	}
	return nil
}
