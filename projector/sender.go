package projector

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// parkAtOnce is how many letters go to one Park, and so how many a failed Park repeats.
	parkAtOnce = 1000
	// maxConflictLogs bounds the conflicts logged for one cut. All are counted.
	maxConflictLogs = 3
)

// send settles the sealed cuts in order until the queue is closed and empty, a cut fails for good, or ctx is done.
// After a cut that failed nothing is committed any more, so that what is committed stays a prefix.
func (l *lane) send(ctx context.Context) error {
	var (
		again   <-chan time.Time // set while a commit that Kafka refused is due
		refused error            // why
	)
	pause := newBackoff(l.cfg)
	for {
		l.health.sender.rest()
		var settled *cut
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again:
		case c, ok := <-l.queue:
			if !ok {
				return l.lastCommits(ctx, refused)
			}
			if err := l.deliver(ctx, c); err != nil {
				return err
			}
			l.ledger.acknowledge(c, func(s *slot) {
				l.lags.visible(s)
				l.freshness.acknowledge(s)
			})
			settled = c
		}
		l.health.sender.beat(l.deps.Clock())
		if refused = l.commit(ctx); refused == nil {
			again = nil
			pause.Reset()
		} else {
			again = time.After(pause.NextBackOff())
		}
		if settled != nil {
			l.ledger.settle(settled)
			settled.reset()
			l.free <- settled
		}
	}
}

// commit commits what is due and returns why something is left to commit. A commit that Kafka refuses is counted and
// repeated, not fatal: the records are acknowledged, and at worst they are read again.
func (l *lane) commit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.CommitTimeout)
	defer cancel()
	if err := l.ledger.flush(ctx); err != nil {
		l.health.commits.fail(err)
		return err
	}
	l.health.commits.over()
	return nil
}

// lastCommits tries a few more times if a commit is still due: what is not committed at the end is read again. A
// bounded projection has then not come to its end, and whoever looks at its group later must not be surprised.
func (l *lane) lastCommits(ctx context.Context, refused error) error {
	pause := newBackoff(l.cfg)
	for i := 0; refused != nil && i < 3 && sleep(ctx, pause.NextBackOff()); i++ {
		refused = l.commit(ctx)
	}
	if l.robbed.Load() {
		return fmt.Errorf("group %s: %w before everything was committed", l.projection.Group, ErrShared)
	}
	if refused != nil && l.complete {
		return fmt.Errorf("everything that was read is acknowledged, and not all of it is committed: %w", refused)
	}
	return nil
}

// deliver returns nil once every record of c is acknowledged: its rows by ClickHouse, its letters by the dead-letter
// topic.
func (l *lane) deliver(ctx context.Context, c *cut) error {
	if err := l.cfg.tooManyRefused(c); err != nil {
		return err
	}
	l.reportConflicts(c)
	refused := len(c.letters)
	if rows := c.rows.Len(); rows > 0 {
		if err := l.insert(ctx, c); err != nil {
			return fmt.Errorf("insert %d rows of projection %s: %w", rows, l.projection.Name, err)
		}
	}
	if len(c.letters) > refused { // what ClickHouse rejected counts as well
		if err := l.cfg.tooManyRefused(c); err != nil {
			return err
		}
	}
	for letters := range slices.Chunk(c.letters, parkAtOnce) {
		err := l.persist(ctx, &l.health.parking, func() error { return l.deps.DeadLetters.Park(ctx, letters) })
		if err != nil {
			return fmt.Errorf("park %d letters of projection %s: %w", len(letters), l.projection.Name, err)
		}
	}
	l.metrics.delivered(c, l.deps.Clock())
	return nil
}

// reportConflicts counts pairs of rows in c that claim the same identity and version with different content. Both are
// inserted: the conflict is the producer's, and the view <table>_conflicts shows it.
func (l *lane) reportConflicts(c *cut) {
	n := 0
	c.rows.Conflicts(func(i, j int) bool {
		if n++; n <= maxConflictLogs {
			a, b := c.rows.Lineage(i), c.rows.Lineage(j)
			l.log.Warn().Str("identity", c.rows.Identity(i)).Str("version", c.rows.Version(i)).
				Str("first", fmt.Sprintf("%s/%d@%d", a.Topic, a.Partition, a.Offset)).
				Str("second", fmt.Sprintf("%s/%d@%d", b.Topic, b.Partition, b.Offset)).
				Msg("two events have the same identity and version and different content")
		}
		return true
	})
	l.metrics.conflicts.Add(float64(n))
}
