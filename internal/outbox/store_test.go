package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// An id is given out when a row is inserted, and seen by others when its
// transaction commits: what commits late is claimed late, and never skipped.
func TestTransactionsThatCommitOutOfIDOrderAreNotSkipped(t *testing.T) {
	db, s := outboxOn(t, false)
	late, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback() }()
	execute(t, late, insert("late", 1, "{}"))
	execute(t, db, insert("early", 1, "{}"))
	for _, want := range []string{"early", "late"} {
		c, err := s.claim(t.Context(), 10, testAttempts, time.Minute, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.events) != 1 || c.events[0].aggregateID != want {
			t.Fatalf("claimed %+v, want the event of %s alone", c.events, want)
		}
		if _, err := s.complete(t.Context(), 1, []acknowledged{{&c.events[0], 3, 41}}); err != nil {
			t.Fatal(err)
		}
		if want == "early" {
			if err := late.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := ask(t, db, "SELECT GROUP_CONCAT(CONCAT_WS(' ', aggregate_id, state, attempts, sent_partition, sent_offset) ORDER BY id) FROM outbox"); got != "late sent 1 3 41,early sent 1 3 41" {
		t.Errorf("the outbox holds %q", got)
	}
}

// A claim locks what it takes and nothing else: two records a row, one in the
// index and one in the table. Another relay claims its own rows at once, and the
// application inserts at once, also when a claim found less than it asked for.
func TestClaimLocksOnlyWhatItTakes(t *testing.T) {
	db, s := outboxOn(t, false)
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict order %t", strict), func(t *testing.T) {
			execute(t, db, "TRUNCATE TABLE outbox")
			fill(t, db, 20_000)
			s := NewStore("s0", db, "outbox", "test", strict)
			if err := s.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			first := openClaim(t, s)
			if len(first.events) != 500 || first.picked < 1000 || first.picked > 1010 || first.locked > 1010 {
				t.Errorf("a claim of %d among 20,000 locks %d records when it has picked them and %d before its commit, want about 1,000", len(first.events), first.picked, first.locked)
			}
			began := time.Now()
			c, err := s.claim(t.Context(), 500, testAttempts, time.Minute, 7)
			if err != nil || len(c.events) != 500 || c.events[0].id != first.events[499].id+1 {
				t.Fatalf("a second claim beside an open one takes %d events, %v", len(c.events), err)
			}
			t.Logf("first claim: %d records locked; second claim: 500 events in %s", first.locked, time.Since(began))
			insertsAtOnce(t, db, "beside-full")
			first.rollback()
		})
	}
	for _, due := range []int{0, 3} {
		t.Run(fmt.Sprintf("%d due, 500 asked for", due), func(t *testing.T) {
			execute(t, db, "TRUNCATE TABLE outbox")
			fill(t, db, due+4)
			execute(t, db, fmt.Sprintf("UPDATE outbox SET state = 'claimed', due_at = NOW(6) + INTERVAL 1 HOUR WHERE id IN (%d, %d)", due+1, due+2),
				fmt.Sprintf("UPDATE outbox SET due_at = NOW(6) + INTERVAL 1 HOUR WHERE id IN (%d, %d)", due+3, due+4))
			first := openClaim(t, s)
			if len(first.events) != due {
				t.Fatalf("%d picked, want %d", len(first.events), due)
			}
			insertsAtOnce(t, db, "beside-few")
			first.rollback()
		})
	}
}

// opened is a claim of 500 events in a transaction that is still open.
type opened struct {
	claim
	picked, locked int    // records that are locked after the SELECT, and before the commit
	rollback       func() // and wait
}

// openClaim makes a claim as the store does, but for its commit.
func openClaim(t *testing.T, s *Store) (o opened) {
	t.Helper()
	ready, release, ended := make(chan error), make(chan struct{}), make(chan struct{})
	back := errors.New("roll back")
	locked := func(tx *sql.Tx) (n int, err error) {
		// The server answers from a copy, which it renews when nobody has asked for 0.1 s.
		if _, err := tx.Exec("DO SLEEP(0.2)"); err != nil {
			return 0, err
		}
		err = tx.QueryRow("SELECT trx_rows_locked FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID()").Scan(&n)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, nil // a transaction that has locked nothing is none
		}
		return n, err
	}
	go func() {
		defer close(ended)
		err := s.once(t.Context(), func(ctx context.Context, tx *sql.Tx) (err error) {
			if err = try(ctx, tx, s.pickDue()+limited(500)+skipLocked); err == nil {
				o.picked, err = locked(tx)
			}
			if err == nil {
				o.claim, err = s.take(ctx, tx, 500, testAttempts, time.Minute, 1)
			}
			if err == nil {
				o.locked, err = locked(tx)
			}
			ready <- err
			<-release
			return back
		})
		if !errors.Is(err, back) {
			t.Error(err)
		}
	}()
	select {
	case err := <-ready:
		if err != nil {
			t.Error(err)
		}
	case <-ended:
		t.FailNow()
	}
	o.rollback = sync.OnceFunc(func() { close(release); <-ended })
	t.Cleanup(o.rollback)
	return o
}

// insertsAtOnce holds that the application does not wait for a lock.
func insertsAtOnce(t *testing.T, db *sql.DB, name string) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "SET SESSION innodb_lock_wait_timeout = 0"); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = conn.ExecContext(t.Context(), "SET SESSION innodb_lock_wait_timeout = DEFAULT") }()
	for i := range 50 {
		if _, err := conn.ExecContext(t.Context(), insert(fmt.Sprintf("%s-%d", name, i), 1, "{}")); err != nil {
			t.Fatalf("an insert would have had to wait: %v", err)
		}
	}
}

// Whoever has lost its lease changes nothing any more, by no transition, and
// each is counted.
func TestStaleClaimantChangesNothing(t *testing.T) {
	db, s := outboxOn(t, false)
	execute(t, db, insert("a", 1, "{}"), insert("b", 1, "{}"))
	stale, err := s.claim(t.Context(), 10, testAttempts, time.Microsecond, 11)
	if err != nil || len(stale.events) != 2 {
		t.Fatal(stale, err)
	}
	due, parked, err := s.reap(t.Context(), 10, func(int) time.Duration { return 0 })
	if err != nil || due != 2 || parked != 0 {
		t.Fatalf("reaped %d, parked %d, %v", due, parked, err)
	}
	fresh, err := s.claim(t.Context(), 10, testAttempts, time.Minute, 12)
	if err != nil || len(fresh.events) != 2 || fresh.events[0].attempts != 2 {
		t.Fatal(fresh, err)
	}
	before := ask(t, db, "SELECT GROUP_CONCAT(CONCAT_WS(' ', state, claim_token, attempts, due_at) ORDER BY id) FROM outbox")
	for name, transition := range map[string]func() (int, error){
		"complete": func() (int, error) {
			return s.complete(t.Context(), 11, []acknowledged{{&stale.events[0], 0, 0}, {&stale.events[1], 0, 1}})
		},
		"fail": func() (int, error) {
			return s.fail(t.Context(), 11, []failed{{event: &stale.events[0], err: errNoAnswer, park: true}, {event: &stale.events[1], err: errNoAnswer}})
		},
		"give back": func() (int, error) { return s.giveBack(t.Context(), 11, stale.events, 0, "") },
	} {
		if rejected, err := transition(); rejected != 2 || err != nil {
			t.Errorf("%s of a stale claimant: %d rejected, %v; want 2", name, rejected, err)
		}
	}
	if after := ask(t, db, "SELECT GROUP_CONCAT(CONCAT_WS(' ', state, claim_token, attempts, due_at) ORDER BY id) FROM outbox"); after != before {
		t.Errorf("a stale claimant has changed\n%s to\n%s", before, after)
	}
	// The same completion twice, as after an answer that was lost: no rejection.
	for range 2 {
		if rejected, err := s.complete(t.Context(), 12, []acknowledged{{&fresh.events[0], 5, 7}, {&fresh.events[1], 6, 8}}); rejected != 0 || err != nil {
			t.Errorf("%d rejected, %v", rejected, err)
		}
	}
	if got := ask(t, db, "SELECT GROUP_CONCAT(CONCAT_WS(' ', state, sent_partition, sent_offset) ORDER BY id) FROM outbox"); got != "sent 5 7,sent 6 8" {
		t.Errorf("the outbox holds %q", got)
	}
}

// A claim that is given back has cost no attempt; one that failed has; one whose
// relay died has, and after the last attempt it is parked.
func TestAttempts(t *testing.T) {
	db, s := outboxOn(t, false)
	execute(t, db, insert("a", 1, "{}"))
	claim := func(attempts int) claim {
		t.Helper()
		c, err := s.claim(t.Context(), 10, testAttempts, time.Microsecond, 9)
		if err != nil || len(c.events) != 1 || c.events[0].attempts != attempts {
			t.Fatalf("claimed %+v, %v; want one event in attempt %d", c.events, err, attempts)
		}
		return c
	}
	c := claim(1)
	if _, err := s.giveBack(t.Context(), 9, c.events, 0, "away"); err != nil {
		t.Fatal(err)
	}
	c = claim(1)
	if _, err := s.fail(t.Context(), 9, []failed{{event: &c.events[0], err: errors.New("schlecht 🏃")}}); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, db, "SELECT CONCAT_WS(' ', state, attempts, last_error) FROM outbox"); got != "due 1 schlecht 🏃" {
		t.Errorf("after a failure: %q", got)
	}
	claim(2)
	for _, want := range []struct{ limit, due, parked int }{{3, 1, 0}, {3, 0, 1}} {
		due, parked, err := s.reap(t.Context(), want.limit, func(int) time.Duration { return 0 })
		if err != nil || due != want.due || parked != want.parked {
			t.Fatalf("reap: %d due, %d parked, %v; want %+v", due, parked, err, want)
		}
		if due == 1 {
			claim(3)
		}
	}
	contains(t, ask(t, db, "SELECT CONCAT_WS(' ', state, attempts, last_error) FROM outbox"), "parked 3 the lease of test ended in attempt 3")
}

// A parked event is superseded when, and only when, a newer version was sent.
func TestSupersede(t *testing.T) {
	db, s := outboxOn(t, false)
	execute(t, db, insert("a", 1, "{}"), insert("a", 2, "{}"), insert("b", 2, "{}"), insert("b", 1, "{}"), insert("c", 1, "{}"), insert("c", 2, "{}"))
	execute(t, db, "UPDATE outbox SET state = 'parked' WHERE event_id IN ('a-1', 'b-2', 'c-1')", "UPDATE outbox SET state = 'sent' WHERE event_id IN ('a-2', 'b-1')")
	next, n, err := s.supersede(t.Context(), position{})
	if err != nil || n != 1 || next != (position{}) {
		t.Fatalf("%d superseded, next %v, %v", n, next, err)
	}
	if got := ask(t, db, "SELECT GROUP_CONCAT(event_id) FROM outbox WHERE state = 'superseded'"); got != "a-1" {
		t.Errorf("superseded: %s", got)
	}
	// Many parked ones are gone through a stretch at a time.
	execute(t, db, "TRUNCATE TABLE outbox")
	fill(t, db, 2*supersedeBatch+10)
	execute(t, db, "UPDATE outbox SET state = 'parked', due_at = '2026-01-01 00:00:00.5'", insert("fill-2010", 2, "{}"), "UPDATE outbox SET state = 'sent' WHERE version = 2")
	total, rounds := 0, 0
	for at := (position{}); rounds == 0 || at != (position{}); rounds++ {
		if at, n, err = s.supersede(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if total != 1 || rounds != 3 {
		t.Errorf("%d superseded in %d rounds, want 1 in 3", total, rounds)
	}
}

func TestPurge(t *testing.T) {
	db, s := outboxOn(t, false)
	fill(t, db, 100)
	execute(t, db, "UPDATE outbox SET due_at = NOW(6) - INTERVAL 1 DAY",
		"UPDATE outbox SET state = 'sent' WHERE id <= 40", "UPDATE outbox SET state = 'superseded' WHERE id BETWEEN 41 AND 50",
		"UPDATE outbox SET state = 'parked' WHERE id BETWEEN 51 AND 60", "UPDATE outbox SET due_at = NOW(6) WHERE id <= 5")
	for _, want := range []int{30, 15, 0} {
		if n, err := s.purge(t.Context(), time.Hour, 30); n != want || err != nil {
			t.Fatalf("%d purged, %v; want %d", n, err, want)
		}
	}
	if got := states(t, db); got != "due 40, parked 10, sent 5" {
		t.Errorf("left: %s", got)
	}
}

func TestCounts(t *testing.T) {
	db, s := outboxOn(t, false)
	if c, err := s.Counts(t.Context()); err != nil || c != (Counts{}) {
		t.Errorf("an empty outbox: %+v, %v", c, err)
	}
	fill(t, db, 21)
	execute(t, db, "UPDATE outbox SET state = 'sent' WHERE id = 1", "UPDATE outbox SET state = 'parked' WHERE id IN (2, 3)",
		"UPDATE outbox SET state = 'claimed', due_at = NOW(6) + INTERVAL 1 HOUR, created_at = NOW(6) - INTERVAL 90 SECOND WHERE id = 4",
		"UPDATE outbox SET state = 'claimed', due_at = NOW(6) - INTERVAL 1 SECOND WHERE id BETWEEN 5 AND 7",
		"UPDATE outbox SET due_at = NOW(6) + INTERVAL 1 HOUR WHERE id BETWEEN 8 AND 11")
	c, err := s.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c.OldestUnsent < 90*time.Second || c.OldestUnsent > 120*time.Second {
		t.Errorf("the oldest is %s old, want 90 s", c.OldestUnsent)
	}
	c.OldestUnsent = 0
	if want := (Counts{Due: 10, Retry: 4, Claimed: 1, Expired: 3, Parked: 2}); c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
}

// However many relays write it, there is one heartbeat in an interval.
func TestHeartbeatOncePerInterval(t *testing.T) {
	db, s := outboxOn(t, false)
	for range 5 {
		if err := s.heartbeat(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if got := ask(t, db, "SELECT CONCAT_WS(' ', COUNT(*), MAX(aggregate_type), MAX(aggregate_id), MAX(version) % 3600, JSON_VALUE(MAX(payload), '$.shard'), JSON_VALUE(MAX(payload), '$.version') = MAX(version)) FROM outbox"); got != "1 projector.heartbeat s0 0 s0 1" {
		t.Errorf("the outbox holds %q", got)
	}
	at := ask(t, db, "SELECT JSON_VALUE(payload, '$.at') FROM outbox")
	if when, err := time.Parse(time.RFC3339Nano, at); err != nil || time.Since(when).Abs() > time.Minute {
		t.Errorf("the heartbeat is of %s, %v", at, err)
	}
}

// A row with a date that is none, as servers without NO_ZERO_DATE take it, is an
// event like any other.
func TestZeroDateBlocksNothing(t *testing.T) {
	db, s := outboxOn(t, false)
	execute(t, db, insert("odd", 1, "{}"), insert("even", 1, "{}"),
		"SET STATEMENT sql_mode = '' FOR UPDATE outbox SET created_at = '0000-00-00 00:00:00' WHERE aggregate_id = 'odd'")
	if list, err := s.List(t.Context(), Filter{State: Due}, 10); err != nil || len(list) != 2 {
		t.Errorf("listed %d, %v", len(list), err)
	}
	if c, err := s.claim(t.Context(), 10, testAttempts, testLease, 1); err != nil || len(c.events) != 2 || c.events[0].age != 0 {
		t.Errorf("claimed %+v, %v", c.events, err)
	}
}
