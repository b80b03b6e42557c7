package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chprojector/projector/internal/mysql"
)

// Store is the outbox of one shard. Every transition is one short transaction
// at READ COMMITTED, repeated when the server chose it as the victim of a
// deadlock.
//
// Rows are picked in the order of the index and then changed by their primary
// key, with both indexes named, because the optimizer's own choice depends on
// statistics: an UPDATE that goes by the state instead would wait for the rows
// of every other relay.
type Store struct {
	shard    string
	db       *sql.DB
	name     string // of the table
	table    string // quoted
	index    string // quoted name of the index on (state, due_at, id); Probe finds it
	strict   bool
	owner    string            // claimed_by, for people
	repeated func(kind string) // told of each repeated transaction; may be nil
}

// NewStore makes the store of a shard's outbox; Probe has to look at it first.
// owner is noted in claims, for people.
func NewStore(shard string, db *sql.DB, table, owner string, strict bool) *Store {
	return &Store{shard: shard, db: db, name: table, table: mysql.QuoteName(table), strict: strict, owner: owner, repeated: func(string) {}}
}

// event is one claimed row.
type event struct {
	id            uint64
	eventID       string
	aggregateType string
	aggregateID   string
	version       uint64
	attempts      int           // this one included
	lapsed        bool          // its last claim ended with the lease, and nobody knows why
	age           time.Duration // since it was created, by the shard's clock, when it was claimed
}

// claim is a batch of events that one lease holds.
type claim struct {
	token  uint64
	events []event   // in the order of their ids
	since  time.Time // before the lease began, by this machine's monotonic clock
	more   bool      // it may have left due events behind
}

// sharedAttempts is how many leases may run out under an event that was claimed
// with others: one for a relay that was killed by chance, one more.
const sharedAttempts = 2

// alone reports whether a claim takes nothing beside this event. An event that
// brings its relay down burns an attempt of everything that was claimed with it,
// and the claim that could park an event must be its own.
func (e *event) alone(attempts int) bool {
	return e.attempts >= attempts || e.lapsed && e.attempts > sharedAttempts
}

// together is what one claim takes of the events that are due, the first of
// them in any case.
func together(due []event, attempts int) []event {
	if len(due) > 0 && due[0].alone(attempts) {
		return due[:1]
	}
	return slices.DeleteFunc(due, func(e event) bool { return e.alone(attempts) })
}

// older is what keeps an event back under strict order. Being read without a
// lock it sees the last committed state of rows that others are claiming, which
// is the state before their claim: an older version under way counts as unsent.
const older = ` AND NOT EXISTS (SELECT 1 FROM %[1]s p WHERE p.aggregate_type = o.aggregate_type AND p.aggregate_id = o.aggregate_id AND p.version < o.version AND p.state IN ('due', 'claimed', 'parked'))`

// pickDue is the SELECT of a claim, without its LIMIT. A due event that has a
// token has it from a claim that lapsed. A created_at that is no date has the
// age 0: one such row must not fail the claim of all others.
func (s *Store) pickDue() string {
	order := ""
	if s.strict {
		order = fmt.Sprintf(older, s.table)
	}
	return fmt.Sprintf("SELECT o.id, o.event_id, o.aggregate_type, o.aggregate_id, o.version, o.attempts + 1, o.claim_token <> 0, COALESCE(TIMESTAMPDIFF(MICROSECOND, o.created_at, NOW(6)), 0) FROM %s o FORCE INDEX (%s) WHERE o.state = 'due' AND o.due_at <= NOW(6)%s ORDER BY o.due_at, o.id", s.table, s.index, order)
}

const skipLocked = " FOR UPDATE SKIP LOCKED"

// claim takes up to limit due events, the longest due first, for the length of
// the lease; attempts is the number after which an event is parked. A crash from
// here on costs each of them one attempt.
func (s *Store) claim(ctx context.Context, limit, attempts int, lease time.Duration, token uint64) (c claim, err error) {
	err = s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		c, err = s.take(ctx, tx, limit, attempts, lease, token)
		return err
	})
	if err != nil {
		return claim{}, fmt.Errorf("claim up to %d events: %w", limit, err)
	}
	return c, nil
}

// take is a claim until its commit.
func (s *Store) take(ctx context.Context, tx *sql.Tx, limit, attempts int, lease time.Duration, token uint64) (claim, error) {
	c := claim{token: token, since: time.Now()}
	rows, err := tx.QueryContext(ctx, s.pickDue()+limited(limit)+skipLocked)
	if err != nil {
		return c, err
	}
	defer rows.Close()
	for rows.Next() {
		var e event
		var age int64
		if err := rows.Scan(&e.id, &e.eventID, &e.aggregateType, &e.aggregateID, &e.version, &e.attempts, &e.lapsed, &age); err != nil {
			return c, err
		}
		e.age = time.Duration(age) * time.Microsecond
		c.events = append(c.events, e)
	}
	if err := rows.Err(); err != nil || len(c.events) == 0 {
		return c, err
	}
	picked := len(c.events)
	c.events = together(c.events, attempts)
	c.more = picked == limit || len(c.events) < picked
	sortByID(c.events)
	_, err = tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s FORCE INDEX (PRIMARY) SET state = 'claimed', claim_token = %d, claimed_by = %s, attempts = attempts + 1, due_at = NOW(6) + INTERVAL %d MICROSECOND WHERE id IN (%s) AND state = 'due'",
		s.table, token, mysql.QuoteString(s.owner), lease.Microseconds(), ids(c.events)))
	return c, err
}

// payloads calls each with the payloads of claimed events, in the order of
// their ids. They are read outside of the claim's transaction and one by one,
// so that neither locks nor memory grow with them. A row that is gone was sent
// by somebody else after the lease ended; it is left out.
func (s *Store) payloads(ctx context.Context, events []event, each func(e *event, payload []byte) error) error {
	if len(events) == 0 {
		return nil
	}
	rows, err := s.db.QueryContext(ctx, fmt.Sprintf("SELECT id, payload FROM %s FORCE INDEX (PRIMARY) WHERE id IN (%s) ORDER BY id", s.table, ids(events)))
	if err != nil {
		return fmt.Errorf("read %d payloads: %w", len(events), err)
	}
	defer rows.Close()
	at := 0
	for rows.Next() {
		var id uint64
		var payload []byte
		if err := rows.Scan(&id, &payload); err != nil {
			return fmt.Errorf("read a payload: %w", err)
		}
		for events[at].id != id {
			at++
		}
		if err := each(&events[at], payload); err != nil {
			return err
		}
		at++
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read %d payloads: %w", len(events), err)
	}
	return nil
}

// acknowledged is an event with its place in Kafka.
type acknowledged struct {
	event     *event
	partition int32
	offset    int64
}

// complete marks events as sent. It returns how many it did not: their lease
// was lost, and whoever holds or has completed them now goes on undisturbed.
func (s *Store) complete(ctx context.Context, token uint64, sent []acknowledged) (rejected int, err error) {
	if len(sent) == 0 {
		return 0, nil
	}
	// INTERVAL finds a row's place by bisection; a CASE over the rows of a batch
	// would compare each row with half of the others.
	list := make([]event, len(sent))
	var partitions, offsets strings.Builder
	for i, a := range sent {
		list[i] = *a.event
		fmt.Fprintf(&partitions, ", %d", a.partition)
		fmt.Fprintf(&offsets, ", %d", a.offset)
	}
	in := ids(list)
	held := fmt.Sprintf("id IN (%s) AND claim_token = %d", in, token)
	place := fmt.Sprintf("ELT(INTERVAL(id, %s)", in)
	err = s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := changed(tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s FORCE INDEX (PRIMARY) SET state = 'sent', due_at = NOW(6), sent_partition = %[2]s%[3]s), sent_offset = %[2]s%[4]s), last_error = NULL WHERE %[5]s AND state = 'claimed'",
			s.table, place, partitions.String(), offsets.String(), held)))
		if rejected = len(sent) - n; err != nil || rejected == 0 {
			return err
		}
		// A completion whose answer was lost with the connection is no rejection:
		// a sent row keeps the token that completed it.
		var mine int
		err = tx.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM %s FORCE INDEX (PRIMARY) WHERE %s AND state = 'sent'", s.table, held)).Scan(&mine)
		rejected = len(sent) - mine
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("mark %d events as sent: %w", len(sent), err)
	}
	return rejected, nil
}

// failed is an event that was refused for what it is, with what happens next.
type failed struct {
	event *event
	err   error
	park  bool
	delay time.Duration // before the next attempt, unless it is parked
}

// fail notes refused events.
func (s *Store) fail(ctx context.Context, token uint64, refused []failed) (rejected int, err error) {
	if len(refused) == 0 {
		return 0, nil
	}
	err = s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		rejected = len(refused)
		for _, f := range refused {
			state := Due
			if f.park {
				state, f.delay = Parked, 0
			}
			n, err := changed(tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s FORCE INDEX (PRIMARY) SET state = '%s', due_at = NOW(6) + INTERVAL %d MICROSECOND, claim_token = 0, last_error = ? WHERE id = %d AND claim_token = %d AND state = 'claimed'",
				s.table, state, f.delay.Microseconds(), f.event.id, token), cut(f.err.Error())))
			if err != nil {
				return err
			}
			rejected -= n
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("note the failure of %d events: %w", len(refused), err)
	}
	return rejected, nil
}

// giveBack returns events that were not published for a reason that is not
// theirs. The attempt that the claim counted is taken back, and what the claim
// before it left is as it was. An empty reason leaves last_error as it is.
func (s *Store) giveBack(ctx context.Context, token uint64, list []event, delay time.Duration, reason string) (rejected int, err error) {
	if len(list) == 0 {
		return 0, nil
	}
	lapsed := []event{{}} // no event has the id 0, but IN wants one
	for _, e := range list {
		if e.lapsed {
			lapsed = append(lapsed, e)
		}
	}
	err = s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := changed(tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s FORCE INDEX (PRIMARY) SET state = 'due', due_at = NOW(6) + INTERVAL %d MICROSECOND, claim_token = IF(id IN (%s), claim_token, 0), attempts = attempts - 1, last_error = COALESCE(NULLIF(?, ''), last_error) WHERE id IN (%s) AND claim_token = %d AND state = 'claimed'",
			s.table, delay.Microseconds(), ids(lapsed), ids(list), token), cut(reason)))
		rejected = len(list) - n
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("give %d events back: %w", len(list), err)
	}
	return rejected, nil
}

func limited(n int) string { return " LIMIT " + strconv.Itoa(n) }

// ids lists the ids of events for IN. They are numbers that this program has
// read, so they need no placeholders, which would cost a prepared statement.
func ids(events []event) string {
	var b strings.Builder
	for i, e := range events {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(strconv.AppendUint(nil, e.id, 10))
	}
	return b.String()
}

func changed(r sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	return int(n), err
}
