package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/chprojector/projector/internal/mysql"
)

// row is one that upkeep has picked and locked.
type row struct {
	id       uint64
	token    uint64
	attempts int
}

// pickUntil picks up to limit rows of a state whose due_at lies at least the
// given time back, in the order of the index. What others have locked is left
// out, so that several relays may keep up one table.
func (s *Store) pickUntil(ctx context.Context, tx *sql.Tx, state string, ago time.Duration, limit int) ([]row, error) {
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT id, claim_token, attempts FROM %s FORCE INDEX (%s) WHERE state = '%s' AND due_at <= NOW(6) - INTERVAL %d MICROSECOND ORDER BY due_at, id",
		s.table, s.index, state, ago.Microseconds())+limited(limit)+skipLocked)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var picked []row
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.id, &r.token, &r.attempts); err != nil {
			return nil, err
		}
		picked = append(picked, r)
	}
	return picked, rows.Err()
}

// reapBatch bounds one transaction of reap.
const reapBatch = 500

// reap ends claims whose lease is over: their relay died, hangs, or could not
// reach the shard. Whether it had published them nobody knows, so they become
// due again; after the last attempt they are parked, because an event that
// brings its relay down would otherwise do so for ever. They keep their token,
// by which the next claim knows what has happened to them. delay spreads the
// next attempts.
func (s *Store) reap(ctx context.Context, attempts int, delay func(attempts int) time.Duration) (due, parked int, err error) {
	err = s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		due, parked = 0, 0
		picked, err := s.pickUntil(ctx, tx, Claimed, 0, reapBatch)
		if err != nil {
			return err
		}
		type lost struct {
			token    uint64
			attempts int
		}
		claims := map[lost][]event{}
		for _, r := range picked {
			key := lost{r.token, r.attempts}
			claims[key] = append(claims[key], event{id: r.id})
		}
		for key, list := range claims {
			state, pause, count := Due, delay(key.attempts), &due
			if key.attempts >= attempts {
				state, pause, count = Parked, 0, &parked
			}
			n, err := changed(tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s FORCE INDEX (PRIMARY) SET state = '%s', due_at = NOW(6) + INTERVAL %d MICROSECOND, last_error = CONCAT('the lease of ', COALESCE(claimed_by, 'a relay'), ' ended in attempt ', attempts) WHERE id IN (%s) AND claim_token = %d AND state = 'claimed' AND due_at <= NOW(6)",
				s.table, state, pause.Microseconds(), ids(list), key.token)))
			if err != nil {
				return err
			}
			*count += n
		}
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("end expired claims: %w", err)
	}
	return due, parked, nil
}

// purge deletes up to limit events that have been sent or superseded for the
// length of the retention.
func (s *Store) purge(ctx context.Context, retention time.Duration, limit int) (purged int, err error) {
	err = s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		purged = 0
		for _, state := range []string{Sent, Superseded} {
			picked, err := s.pickUntil(ctx, tx, state, retention, limit-purged)
			if err != nil || len(picked) == 0 {
				if err != nil {
					return err
				}
				continue
			}
			list := make([]event, len(picked))
			for i, r := range picked {
				list[i].id = r.id
			}
			// The rows are locked, and a DELETE takes no index hint: by the id alone.
			n, err := changed(tx.ExecContext(ctx, fmt.Sprintf("DELETE FROM %s WHERE id IN (%s)", s.table, ids(list))))
			if err != nil {
				return err
			}
			if purged += n; purged >= limit {
				break
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("purge up to %d events: %w", limit, err)
	}
	return purged, nil
}

// position is a place in the index among the rows of one state.
type position struct {
	dueAt string
	id    uint64
}

// supersedeBatch bounds one look at the parked events.
const supersedeBatch = 1000

// supersede looks at the next parked events behind from, and marks those of
// whose aggregate a newer version has been sent since. It returns where to go
// on; the zero position is the beginning again.
func (s *Store) supersede(ctx context.Context, from position) (next position, superseded int, err error) {
	if from.dueAt == "" {
		from.dueAt = "1000-01-01"
	}
	rows, err := s.db.QueryContext(ctx, fmt.Sprintf("SELECT o.id, o.due_at, EXISTS (SELECT 1 FROM %[1]s n WHERE n.aggregate_type = o.aggregate_type AND n.aggregate_id = o.aggregate_id AND n.version > o.version AND n.state = 'sent') FROM %[1]s o FORCE INDEX (%[2]s) WHERE o.state = 'parked' AND o.due_at >= %[3]s AND (o.due_at > %[3]s OR o.id > %[4]d) ORDER BY o.due_at, o.id",
		s.table, s.index, mysql.QuoteString(from.dueAt), from.id)+limited(supersedeBatch))
	if err != nil {
		return position{}, 0, fmt.Errorf("look for superseded events: %w", err)
	}
	defer rows.Close()
	var list []event
	seen := 0
	for rows.Next() {
		var id uint64
		var newer bool
		if err := rows.Scan(&id, &next.dueAt, &newer); err != nil {
			return position{}, 0, fmt.Errorf("look for superseded events: %w", err)
		}
		seen, next.id = seen+1, id
		if newer {
			list = append(list, event{id: id})
		}
	}
	if err := rows.Err(); err != nil {
		return position{}, 0, fmt.Errorf("look for superseded events: %w", err)
	}
	rows.Close()
	if seen < supersedeBatch {
		next = position{}
	}
	if len(list) == 0 {
		return next, 0, nil
	}
	sortByID(list)
	err = s.tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		superseded, err = changed(tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s FORCE INDEX (PRIMARY) SET state = 'superseded', due_at = NOW(6) WHERE id IN (%s) AND state = 'parked'", s.table, ids(list))))
		return err
	})
	if err != nil {
		return position{}, 0, fmt.Errorf("mark %d events as superseded: %w", len(list), err)
	}
	return next, superseded, nil
}

// heartbeat writes a heartbeat, once in each interval however many relays there
// are: the version is the interval's beginning, and it is unique.
func (s *Store) heartbeat(ctx context.Context, interval time.Duration) error {
	seconds := int64(interval / time.Second)
	err := s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var at, version string
		err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT DATE_FORMAT(NOW(6), '%%Y-%%m-%%dT%%H:%%i:%%s.%%fZ'), CAST(FLOOR(UNIX_TIMESTAMP(NOW(6)) / %[1]d) * %[1]d AS UNSIGNED)", seconds)).Scan(&at, &version)
		if err != nil {
			return err
		}
		id := fmt.Sprintf("heartbeat-%s-%s", s.shard, version)
		payload := fmt.Sprintf(`{"eventId":%q,"shard":%q,"version":%s,"at":%q}`, id, s.shard, version, at)
		_, err = tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (event_id, aggregate_type, aggregate_id, version, payload) VALUES (%s, '%s', %s, %s, %s) ON DUPLICATE KEY UPDATE id = id",
			s.table, mysql.QuoteString(id), HeartbeatType, mysql.QuoteString(s.shard), version, mysql.QuoteString(payload)))
		return err
	})
	if err != nil {
		return fmt.Errorf("write a heartbeat: %w", err)
	}
	return nil
}

// Counts is what the outbox holds.
type Counts struct {
	Due, Retry, Claimed, Expired, Parked int64

	OldestUnsent time.Duration // age of the oldest event that is neither sent nor parked, by the shard's clock
}

// Counts reads the index of everything unsent; its time grows with that number.
func (s *Store) Counts(ctx context.Context) (c Counts, err error) {
	rows, err := s.db.QueryContext(ctx, fmt.Sprintf("SELECT state, due_at <= NOW(6) AS past, COUNT(*), MIN(id) FROM %s FORCE INDEX (%s) WHERE state IN ('due', 'claimed', 'parked') GROUP BY state, past", s.table, s.index))
	if err != nil {
		return c, fmt.Errorf("count the events: %w", err)
	}
	defer rows.Close()
	var first []uint64
	for rows.Next() {
		var state string
		var past bool
		var n int64
		var id uint64
		if err := rows.Scan(&state, &past, &n, &id); err != nil {
			return c, fmt.Errorf("count the events: %w", err)
		}
		switch {
		case state == Parked:
			c.Parked += n
			continue
		case state == Due && past:
			c.Due = n
		case state == Due:
			c.Retry = n
		case past:
			c.Expired = n
		default:
			c.Claimed = n
		}
		first = append(first, id)
	}
	if err := rows.Err(); err != nil {
		return c, fmt.Errorf("count the events: %w", err)
	}
	rows.Close()
	if len(first) == 0 {
		return c, nil
	}
	var age sql.NullInt64
	err = s.db.QueryRowContext(ctx, fmt.Sprintf("SELECT MAX(TIMESTAMPDIFF(MICROSECOND, created_at, NOW(6))) FROM %s FORCE INDEX (PRIMARY) WHERE id = %d", s.table, slices.Min(first))).Scan(&age)
	if err != nil {
		return c, fmt.Errorf("read the age of the oldest event: %w", err)
	}
	c.OldestUnsent = max(0, time.Duration(age.Int64)*time.Microsecond)
	return c, nil
}

// byState is the counts with the names that metrics and lists use.
func (c Counts) byState() map[string]int64 {
	return map[string]int64{Due: c.Due, "retry": c.Retry, Claimed: c.Claimed, "expired": c.Expired, Parked: c.Parked}
}
