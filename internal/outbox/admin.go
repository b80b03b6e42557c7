package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/chprojector/projector/internal/mysql"
)

// Filter chooses events of one state. Zero values choose all.
type Filter struct {
	State       string        // Due, Claimed, Sent, Parked or Superseded
	Type        string        // of the aggregate
	Aggregate   string        // its id
	Error       string        // part of last_error, in any case
	OlderThan   time.Duration // in this state (or, while due or claimed, due or leased until then) for at least so long
	YoungerThan time.Duration // and at most so long
}

// Event is a row of the outbox without its payload.
type Event struct {
	Shard     string    `json:"shard"`
	ID        uint64    `json:"id"`
	EventID   string    `json:"event_id"`
	Type      string    `json:"aggregate_type"`
	Aggregate string    `json:"aggregate_id"`
	Version   uint64    `json:"version"`
	State     string    `json:"state"`
	Attempts  int       `json:"attempts"`
	Created   time.Time `json:"created_at"` // zero if the row has a date that is none
	DueAt     time.Time `json:"due_at"`     // what it means depends on State
	Age       float64   `json:"age_seconds"`
	Bytes     int64     `json:"payload_bytes"`
	ClaimedBy string    `json:"claimed_by,omitempty"`
	Error     string    `json:"last_error,omitempty"`
	Partition *int32    `json:"sent_partition,omitempty"`
	Offset    *int64    `json:"sent_offset,omitempty"`
}

// String is the filter as its flags.
func (f Filter) String() string {
	var parts []string
	for _, flag := range []struct{ name, value string }{{"type", f.Type}, {"aggregate", f.Aggregate}, {"error", f.Error}} {
		if flag.value != "" {
			parts = append(parts, fmt.Sprintf("--%s=%q", flag.name, flag.value))
		}
	}
	if f.OlderThan > 0 {
		parts = append(parts, "--older-than="+f.OlderThan.String())
	}
	if f.YoungerThan > 0 {
		parts = append(parts, "--younger-than="+f.YoungerThan.String())
	}
	return strings.Join(parts, " ")
}

// where is the filter as a condition.
func (f Filter) where() (condition string, args []any) {
	parts := []string{"state = '" + f.State + "'"}
	for _, equal := range []struct{ column, value string }{{"aggregate_type", f.Type}, {"aggregate_id", f.Aggregate}} {
		if equal.value != "" {
			parts, args = append(parts, equal.column+" = ?"), append(args, equal.value)
		}
	}
	if f.Error != "" {
		parts, args = append(parts, "LOCATE(LOWER(?), LOWER(last_error)) > 0"), append(args, f.Error)
	}
	if f.OlderThan > 0 {
		parts = append(parts, fmt.Sprintf("due_at <= NOW(6) - INTERVAL %d MICROSECOND", f.OlderThan.Microseconds()))
	}
	if f.YoungerThan > 0 {
		parts = append(parts, fmt.Sprintf("due_at >= NOW(6) - INTERVAL %d MICROSECOND", f.YoungerThan.Microseconds()))
	}
	return strings.Join(parts, " AND "), args
}

// List returns up to limit events, the oldest in their state first. It locks
// nothing.
func (s *Store) List(ctx context.Context, f Filter, limit int) ([]Event, error) {
	where, args := f.where()
	rows, err := s.db.QueryContext(ctx, fmt.Sprintf("SELECT id, event_id, aggregate_type, aggregate_id, version, state, attempts, created_at, due_at, COALESCE(TIMESTAMPDIFF(MICROSECOND, created_at, NOW(6)), 0), COALESCE(LENGTH(payload), 0), COALESCE(claimed_by, ''), COALESCE(last_error, ''), sent_partition, sent_offset FROM %s FORCE INDEX (%s) WHERE %s ORDER BY due_at, id",
		s.table, s.index, where)+limited(limit), args...)
	if err != nil {
		return nil, fmt.Errorf("shard %s: list events: %w", s.shard, err)
	}
	defer rows.Close()
	var list []Event
	for rows.Next() {
		e := Event{Shard: s.shard}
		var created, due string
		var age int64
		var partition sql.Null[int32]
		var offset sql.Null[int64]
		if err := rows.Scan(&e.ID, &e.EventID, &e.Type, &e.Aggregate, &e.Version, &e.State, &e.Attempts, &created, &due, &age, &e.Bytes, &e.ClaimedBy, &e.Error, &partition, &offset); err != nil {
			return nil, fmt.Errorf("shard %s: list events: %w", s.shard, err)
		}
		if e.Created, err = instant(created); err == nil {
			e.DueAt, err = instant(due)
		}
		if err != nil {
			return nil, fmt.Errorf("shard %s: event %d: %w", s.shard, e.ID, err)
		}
		e.Age = float64(age) / 1e6
		if partition.Valid && offset.Valid {
			e.Partition, e.Offset = &partition.V, &offset.V
		}
		list = append(list, e)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("shard %s: list events: %w", s.shard, err)
	}
	return list, nil
}

// instant reads a DATETIME(6), which is UTC.
func instant(text string) (time.Time, error) {
	if strings.HasPrefix(text, "0000-00-00") {
		return time.Time{}, nil // of a server without NO_ZERO_DATE; one such row must not fail the list
	}
	return time.Parse("2006-01-02 15:04:05.999999", text)
}

// Kind is a group of events that have something in common.
type Kind struct {
	Shard  string    `json:"shard"`
	Value  string    `json:"value"`
	Events int64     `json:"events"`
	Oldest time.Time `json:"oldest"` // since when the first of them has been in this state
	Newest time.Time `json:"newest"`
}

// groupings are what Group can group by.
var groupings = map[string]string{"error": "COALESCE(last_error, '')", "type": "aggregate_type", "aggregate": "CONCAT(aggregate_type, ':', aggregate_id)"}

// Group counts events by what they have in common: error, type or aggregate.
// The most frequent up to limit are returned.
func (s *Store) Group(ctx context.Context, f Filter, by string, limit int) ([]Kind, error) {
	where, args := f.where()
	rows, err := s.db.QueryContext(ctx, fmt.Sprintf("SELECT %s AS value, COUNT(*) AS events, MIN(due_at), MAX(due_at) FROM %s FORCE INDEX (%s) WHERE %s GROUP BY value ORDER BY events DESC, value",
		groupings[by], s.table, s.index, where)+limited(limit), args...)
	if err != nil {
		return nil, fmt.Errorf("shard %s: count events by %s: %w", s.shard, by, err)
	}
	defer rows.Close()
	var list []Kind
	for rows.Next() {
		k := Kind{Shard: s.shard}
		var oldest, newest string
		if err = rows.Scan(&k.Value, &k.Events, &oldest, &newest); err == nil {
			if k.Oldest, err = instant(oldest); err == nil {
				k.Newest, err = instant(newest)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("shard %s: count events by %s: %w", s.shard, by, err)
		}
		list = append(list, k)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("shard %s: count events by %s: %w", s.shard, by, err)
	}
	return list, nil
}

// Count is how many events a filter chooses.
func (s *Store) Count(ctx context.Context, f Filter) (n int64, err error) {
	where, args := f.where()
	err = s.db.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM %s FORCE INDEX (%s) WHERE %s", s.table, s.index, where), args...).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("shard %s: count events: %w", s.shard, err)
	}
	return n, nil
}

// replayBatch bounds one transaction of Replay.
const replayBatch = 100

// Replay makes parked events due again, with all their attempts before them:
// those that f chooses (its State is Parked) and that were parked before it
// began, at most limit of them, at most rate a second (0 = as fast as it goes).
// last_error stays until an event is sent. progress is told of each batch; what
// it was told of is done also when an error is returned.
func (s *Store) Replay(ctx context.Context, f Filter, limit, rate int, progress func(ids []uint64)) error {
	var begun string
	if err := s.db.QueryRowContext(ctx, "SELECT CAST(NOW(6) AS CHAR)").Scan(&begun); err != nil {
		return fmt.Errorf("shard %s: read the clock: %w", s.shard, err)
	}
	where, args := f.where()
	where += " AND due_at <= " + mysql.QuoteString(begun)
	step := replayBatch
	if rate > 0 {
		step = min(step, rate)
	}
	for limit > 0 {
		var picked []event
		err := s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			picked = nil
			rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT id FROM %s FORCE INDEX (%s) WHERE %s ORDER BY due_at, id", s.table, s.index, where)+limited(min(step, limit))+skipLocked, args...)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var e event
				if err := rows.Scan(&e.id); err != nil {
					return err
				}
				picked = append(picked, e)
			}
			if err := rows.Err(); err != nil || len(picked) == 0 {
				return err
			}
			sortByID(picked)
			_, err = tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s FORCE INDEX (PRIMARY) SET state = 'due', due_at = NOW(6), attempts = 0, claim_token = 0 WHERE id IN (%s) AND state = 'parked'", s.table, ids(picked)))
			return err
		})
		if err != nil {
			return fmt.Errorf("shard %s: make parked events due: %w", s.shard, err)
		}
		if len(picked) == 0 {
			return nil
		}
		limit -= len(picked)
		list := make([]uint64, len(picked))
		for i, e := range picked {
			list[i] = e.id
		}
		progress(list)
		if rate > 0 && limit > 0 && !wait(ctx, time.Duration(len(picked))*time.Second/time.Duration(rate)) {
			return fmt.Errorf("shard %s: interrupted: %w", s.shard, ctx.Err())
		}
	}
	return nil
}
