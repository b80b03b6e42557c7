package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// patience is how long a shard that was cut off is tried again.
const patience = 2 * time.Minute

// Reader reads the rows of one query of one shard in key order. The result is
// streamed: one row is held, however many there are. A connection that is lost
// is replaced, and reading goes on after the last row's key, in a new snapshot.
// It belongs to one goroutine.
type Reader struct {
	session *Session
	query   Query
	layout  *Layout
	only    []Key

	rows   *sql.Rows
	values []sql.RawBytes
	dest   []any
	key    Key // of the row that values hold, within them
	last   Key // of the last row that was read, copied; nil before the first
	begun  bool
}

// Read begins to read a query's rows, those after a key if it is not nil, only
// those of the given keys if only is not nil.
func (s *Session) Read(ctx context.Context, q Query, l *Layout, after Key, only []Key) (*Reader, error) {
	r := &Reader{
		session: s, query: q, layout: l, only: only,
		values: make([]sql.RawBytes, len(l.Columns)), dest: make([]any, len(l.Columns)), key: make(Key, len(l.key)),
	}
	for i := range r.values {
		r.dest[i] = &r.values[i]
	}
	if after != nil {
		r.last = after.Clone(nil)
	}
	err := r.open(ctx)
	if err != nil && ctx.Err() == nil && lost(err) { // the session may have asked nothing for longer than wait_timeout
		err = r.again(ctx, err)
	}
	return r, err
}

func (r *Reader) open(ctx context.Context) error {
	text, args := r.query.Statement(r.layout, r.last, r.only)
	rows, err := r.session.conn.QueryContext(ctx, text, args...) //nolint:rowserrcheck // step does
	if err != nil {
		return fmt.Errorf("shard %s: %w", r.session.Shard, err)
	}
	r.rows = rows
	return nil
}

// Next moves to the next row and reports whether there is one.
func (r *Reader) Next(ctx context.Context) (bool, error) {
	if r.begun {
		r.last = r.key.Clone(r.last)
	}
	r.begun = false
	for {
		more, err := r.step()
		if err == nil || ctx.Err() != nil || !lost(err) {
			r.begun = more && err == nil
			return r.begun, err
		}
		if err := r.again(ctx, err); err != nil {
			return false, err
		}
	}
}

func (r *Reader) step() (bool, error) {
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return false, fmt.Errorf("read from shard %s: %w", r.session.Shard, err)
		}
		return false, nil
	}
	if err := r.rows.Scan(r.dest...); err != nil {
		return false, fmt.Errorf("read from shard %s: %w", r.session.Shard, err)
	}
	for i, c := range r.layout.key {
		r.key[i] = r.values[c]
	}
	return true, nil
}

// again opens the result once more behind the last row, on a new connection.
func (r *Reader) again(ctx context.Context, cause error) error {
	if r.rows != nil {
		r.rows.Close()
	}
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := r.session.Begin(ctx)
		if err == nil {
			err = r.open(ctx)
		}
		if err != nil && !lost(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(backoff.NewExponentialBackOff()), backoff.WithMaxElapsedTime(patience))
	if err != nil {
		return errors.Join(fmt.Errorf("the connection was lost: %w", cause), fmt.Errorf("and could not be replaced within %s: %w", patience, err))
	}
	return nil
}

// Close ends the reading; the session goes on.
func (r *Reader) Close() error { return r.rows.Close() }

// compare orders two rows' keys as the servers do. NULL comes first.
func (l *Layout) compare(a, b Key) int {
	for i, c := range l.key {
		if d := compareTexts(a[i], b[i], l.Columns[c].IsInteger()); d != 0 {
			return d
		}
	}
	return 0
}

func compareTexts(a, b []byte, integers bool) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	case !integers:
		return bytes.Compare(a, b)
	}
	negative := a[0] == '-'
	switch {
	case negative != (b[0] == '-'):
		if negative {
			return -1
		}
		return 1
	case negative:
		a, b = b[1:], a[1:]
	}
	// Digits without leading zeros: the longer number is the larger one.
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return bytes.Compare(a, b)
}

// String shows a key to people.
func (k Key) String() string {
	var b []byte
	for i, text := range k {
		if i > 0 {
			b = append(b, ", "...)
		}
		switch {
		case text == nil:
			b = append(b, "NULL"...)
		default:
			if _, err := strconv.ParseInt(string(text), 10, 64); err == nil {
				b = append(b, text...)
				continue
			}
			b = strconv.AppendQuote(b, string(text))
		}
	}
	return string(b)
}
