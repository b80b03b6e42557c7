package projector

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/mapping"
)

// insert returns nil once every row of c is either inserted or, rejected by ClickHouse on its own, a letter of c.
func (l *lane) insert(ctx context.Context, c *cut) error {
	n, rejected := c.rows.Len(), 0
	return Bisect(0, n,
		func(from, to int) error {
			if to-from < n {
				l.metrics.divided.Inc()
			}
			b := Batch{Rows: c.rows, From: from, To: to, Token: fmt.Sprintf("%s-%d-%d-%d", l.token, c.id, from, to)}
			err := l.persist(ctx, &l.health.inserts, func() error { return l.attempt(ctx, b) })
			if err == nil {
				l.rejectedRun = 0
			}
			return err
		},
		func(i int, reason *InsertError) error {
			rejected++
			l.rejectedRun++
			if err := l.cfg.tooManyRejected(c, rejected, l.rejectedRun, reason); err != nil {
				return err
			}
			return l.reject(ctx, c, i, reason)
		})
}

// attempt is one insert with its own deadline.
func (l *lane) attempt(ctx context.Context, b Batch) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.InsertTimeout)
	defer cancel()
	start := l.deps.Clock()
	err := l.inserter.Insert(ctx, b)
	l.metrics.insertSeconds.Observe(l.deps.Clock().Sub(start).Seconds())
	if err != nil {
		l.metrics.failed.Inc()
		return err
	}
	l.metrics.inserted.Inc()
	l.metrics.rows.Add(float64(b.To - b.From))
	return nil
}

// Bisect inserts the rows [from,to). A range that is rejected or too large is halved and each half inserted, down to
// single rows; a single row that is rejected goes to reject. With k rejected rows of n that takes at most
// 2·k·⌈log₂n⌉ + 1 calls of insert.
//
// Every range has its own rows and so its own token; what was inserted before a range was halved stays inserted.
func Bisect(from, to int, insert func(from, to int) error, reject func(i int, reason *InsertError) error) error {
	err := insert(from, to)
	reason, ok := errors.AsType[*InsertError](err)
	if !ok || reason.Class != Rejected && reason.Class != Split {
		return err
	}
	if to-from == 1 {
		if reason.Class == Split {
			return fmt.Errorf("a single row is too large for an insert: %w", err)
		}
		return reject(from, reason)
	}
	middle := from + (to-from)/2
	if err := Bisect(from, middle, insert, reject); err != nil {
		return err
	}
	return Bisect(middle, to, insert, reject)
}

// reject makes a letter of row i. A cut does not keep the records it was made from, which would double its memory for
// the sake of a rare case, so the record is read again from its place.
func (l *lane) reject(ctx context.Context, c *cut, i int, reason *InsertError) error {
	at := c.rows.Lineage(i)
	parked := Letter{Topic: at.Topic, Partition: at.Partition, Offset: at.Offset, Timestamp: at.Timestamp, Projection: l.projection.Name, Gone: true}
	err := l.persist(ctx, &l.health.rereads, func() error {
		r, err := l.deps.Records.Again(ctx, at)
		switch {
		case errors.Is(err, ErrRecordGone):
			l.log.Error().Str("topic", at.Topic).Int32("partition", at.Partition).Int64("offset", at.Offset).
				Str("record", c.rows.Identity(i)).Msg("ClickHouse rejected a record that is no longer in its topic: only what is known of it can be parked")
			return nil
		case err != nil:
			return err
		case !l.becomes(r, c.rows, i):
			l.log.Error().Str("topic", at.Topic).Int32("partition", at.Partition).Int64("offset", at.Offset).
				Str("record", c.rows.Identity(i)).Msg("ClickHouse rejected a record whose place holds another one now, the topic was created anew: only what is known of it can be parked")
			return nil
		}
		parked = letter(l.projection.Name, r, nil)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s/%d offset %d again: %w", at.Topic, at.Partition, at.Offset, err)
	}
	text := reason.Message
	if parked.Gone { // what is left of it is its row; first, for a letter's reason is cut at its end
		text = fmt.Sprintf("the event is gone, its row was %s of version %s: %s", c.rows.Identity(i), c.rows.Version(i), text)
	}
	parked.Error = &mapping.Error{Class: ClassRejected, Reason: text}
	parked.Code = reason.Code
	c.refuse(parked)
	return nil
}

// becomes reports whether r is what row i was made from. A place is no proof: a topic that was deleted and created
// again has other records at the same offsets, and parking one of those would lose the record that was refused.
func (l *lane) becomes(r *kgo.Record, rows *mapping.Rows, i int) bool {
	again := l.projection.Plan.NewRows()
	if err := l.projection.Append(again, r); err != nil {
		return false
	}
	want := rows.Columns()
	for k, got := range again.Columns() {
		if got.Format(0) != want[k].Format(i) {
			return false
		}
	}
	return true
}
