package outbox

import (
	"context"
	"time"

	"github.com/chprojector/projector/internal/ops"
)

// chore is something that is done from time to time.
type chore struct {
	name  string // label of the metric of errors
	every time.Duration
	do    func(context.Context) (again bool, err error) // again: there is more of it
	next  time.Time
}

// again is the pause before more of the same chore: it must not crowd out the
// application.
const again = 50 * time.Millisecond

// choreTimeout bounds one round of a chore. Counting a backlog of tens of
// millions may take that long.
const choreTimeout = time.Minute

// upkeep does the chores of one shard until ctx is done. Several relays do them
// side by side and pass over each other's rows.
func (r *Relay) upkeep(ctx context.Context) {
	chores := []*chore{
		{name: "upkeep", every: min(time.Second, r.config.Lease/4), do: r.reap},
		{name: "upkeep", every: 5 * time.Second, do: r.purge},
		{name: "upkeep", every: 5 * time.Second, do: r.superseder()},
		{name: "count", every: 5 * time.Second, do: r.count},
	}
	if every := r.config.Heartbeat.Interval; every > 0 {
		chores = append(chores, &chore{name: "heartbeat", every: every, do: r.beat})
	}
	streaks := map[*chore]*ops.Streak{}
	for _, c := range chores {
		streaks[c] = ops.NewStreak(r.log, "keep up the outbox")
	}
	for ctx.Err() == nil {
		nearest := time.Now().Add(time.Second)
		for _, c := range chores {
			if start := time.Now(); !start.Before(c.next) {
				limited, cancel := context.WithTimeout(ctx, choreTimeout)
				more, err := c.do(limited)
				cancel()
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					r.metrics.add(r.metrics.m.errors, 1, c.name)
					streaks[c].Fail(err)
				default:
					streaks[c].Succeed()
				}
				// What takes long on a large table is done the more seldom.
				c.next = time.Now().Add(max(c.every, 20*time.Since(start)))
				if err != nil { // which took long because a server hung, not because of the table
					c.next = time.Now().Add(c.every)
				}
				if more {
					c.next = time.Now().Add(again)
				}
			}
			if c.next.Before(nearest) {
				nearest = c.next
			}
		}
		wait(ctx, time.Until(nearest))
	}
}

func (r *Relay) reap(ctx context.Context) (bool, error) {
	due, parked, err := r.store.reap(ctx, r.config.Attempts, func(attempts int) time.Duration {
		return jittered(attempts, r.config.BackoffMin, r.config.BackoffMax)
	})
	r.metrics.add(r.metrics.m.expired, due+parked)
	r.metrics.add(r.metrics.m.parked, parked)
	if due+parked > 0 {
		r.log.Warn().Int("due_again", due).Int("parked", parked).Msg("claims ended because their lease was over: a relay died, hung, or could not reach the shard")
	}
	return due+parked >= reapBatch, err
}

func (r *Relay) purge(ctx context.Context) (bool, error) {
	n, err := r.store.purge(ctx, r.config.Retention, r.config.PurgeBatch)
	r.metrics.add(r.metrics.m.purged, n)
	return n >= r.config.PurgeBatch, err
}

// superseder goes through the parked events, a stretch at a time.
func (r *Relay) superseder() func(context.Context) (bool, error) {
	var at position
	return func(ctx context.Context) (bool, error) {
		next, n, err := r.store.supersede(ctx, at)
		r.metrics.add(r.metrics.m.superseded, n)
		at = next
		return at != position{}, err
	}
}

func (r *Relay) count(ctx context.Context) (bool, error) {
	c, err := r.store.Counts(ctx)
	if err != nil {
		r.metrics.uncounted()
		return false, err
	}
	r.metrics.counts(c)
	return false, nil
}

func (r *Relay) beat(ctx context.Context) (bool, error) {
	return false, r.store.heartbeat(ctx, r.config.Heartbeat.Interval)
}
