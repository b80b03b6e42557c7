package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"
)

// curve is how many rows were visible at which time since the start.
type curve []point

type point struct {
	at   time.Duration
	rows int
}

// watch polls the number of rows of a table until it reaches want, and calls tick each time. The count of a MergeTree
// comes from the metadata of its parts: no row is read. Yet each question costs the server 1.7 ms of processor time, so
// that asking every 10 ms would take a tenth of a machine with two processors.
func watch(ctx context.Context, conn *ch.Client, table string, want int, start time.Time, tick func() error) (curve, error) {
	const pause = 50 * time.Millisecond
	var c curve
	var count proto.ColUInt64
	query := ch.Query{Body: "SELECT count() FROM " + table, Result: proto.Results{{Name: "count()", Data: &count}}}
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		if err := conn.Do(ctx, query); err != nil {
			return c, errors.Join(fmt.Errorf("count the rows of %s: %w", table, err), context.Cause(ctx))
		}
		rows := int(count.Row(0))
		if len(c) == 0 || c[len(c)-1].rows != rows {
			c = append(c, point{time.Since(start), rows})
		}
		if err := tick(); err != nil {
			return c, err
		}
		if rows >= want {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return c, fmt.Errorf("%d of %d rows are in %s: %w", rows, want, table, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// total is the time until the last row.
func (c curve) total() time.Duration { return c[len(c)-1].at }

// steady is the rate in rows a second between the first tenth and the last tenth of the rows: without the start of a
// process, the join of its group, and the wait for a batch that is not full. It is 0 when too few steps were seen.
func (c curve) steady() float64 {
	want := c[len(c)-1].rows
	var from, to *point
	for i := range c {
		if from == nil && c[i].rows >= want/10 {
			from = &c[i]
		}
		if to == nil && c[i].rows >= want-want/10 {
			to = &c[i]
		}
	}
	if to.rows-from.rows < want/3 {
		return 0
	}
	return float64(to.rows-from.rows) / (to.at - from.at).Seconds()
}
