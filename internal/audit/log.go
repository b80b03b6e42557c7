package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chprojector/projector/chschema"
)

// Lease is how long a process may be silent before another one may take its
// operation over. A [Run] gives a sign of life three times as often.
const Lease = 30 * time.Second

// Log is the record. Its methods may be called by several goroutines.
//
// What was written is read at once by the same server. Replicas of a cluster
// are asked in the order of the configuration, so that a command reads where it
// wrote; after a failover a row may be missing for the moment of the lag, and
// an operation then resumes from an earlier checkpoint, which repeats work and
// loses none. insert_quorum with select_sequential_consistency in
// clickhouse.settings closes that gap, at the price of needing the quorum.
type Log struct {
	conn  chschema.Conn
	cfg   Config
	lease time.Duration
}

// Open returns the record. It does not connect.
func Open(conn chschema.Conn, cfg Config) *Log { return &Log{conn: conn, cfg: cfg, lease: Lease} }

// Begin writes a new operation in the state that op names, Planned or Running,
// and holds it. ID, Sequence, At, Began, By, Run and Holder are set here. The
// table is created if this is the first operation of all.
func (l *Log) Begin(ctx context.Context, op Operation) (*Run, error) {
	if op.State != Planned && op.State != Running {
		return nil, fmt.Errorf("an operation begins %s or %s, not %q", Planned, Running, op.State)
	}
	if err := l.cfg.Ensure(ctx, l.conn, Table, l.cfg.CreateTable()); err != nil {
		return nil, err
	}
	op.ID, op.Sequence, op.Run, op.Holder, op.By = NewID(time.Now()), 1, 1, newHolder(), op.Actor
	if err := l.insert(ctx, op, "now64(3)"); err != nil {
		return nil, err
	}
	stored, err := l.Get(ctx, op.ID)
	if err != nil {
		return nil, err
	}
	return &Run{log: l, op: stored}, nil
}

// Resume takes over an operation that is planned, approved or failed, or whose
// process has died, for by to go on with: it becomes Running, from its last
// checkpoint. A *BusyError says that its process lives; ErrTaken that another
// one was faster.
func (l *Log) Resume(ctx context.Context, id, by string) (*Run, error) {
	op, silent, err := l.current(ctx, id)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(next[op.State], Running) {
		return nil, &StateError{op.ID, op.State, Running}
	}
	if op.State == Running && silent < l.lease && !gone(op.Holder) {
		return nil, &BusyError{op.ID, op.Holder, silent, l.lease}
	}
	op.Sequence++
	op.Run++
	op.State, op.By, op.Holder, op.Error = Running, by, newHolder(), ""
	if err := l.insert(ctx, op, ""); err != nil {
		return nil, err
	}
	won, _, err := l.current(ctx, id)
	if err != nil {
		return nil, err
	}
	if won.Holder != op.Holder {
		return nil, fmt.Errorf("operation %s: %w: %s", id, ErrTaken, won.Holder)
	}
	return &Run{log: l, op: won}, nil
}

// Change writes a change of state by a person or by a run that only reads: an
// approval, a verification, a withdrawal. edit may set the fields that go with
// it. A running operation cannot be changed but by its holder.
func (l *Log) Change(ctx context.Context, id, by string, to State, edit func(*Operation)) (Operation, error) {
	op, silent, err := l.current(ctx, id)
	if err != nil {
		return op, err
	}
	if !slices.Contains(next[op.State], to) || to == Running {
		return op, &StateError{op.ID, op.State, to}
	}
	if op.State == Running && silent < l.lease && !gone(op.Holder) {
		return op, &BusyError{op.ID, op.Holder, silent, l.lease}
	}
	if edit != nil {
		edit(&op)
	}
	op.ID, op.State, op.By, op.Holder = id, to, by, newHolder()
	op.Sequence++
	if err := l.insert(ctx, op, ""); err != nil {
		return op, err
	}
	return l.Get(ctx, id)
}

// Get returns an operation as it is now.
func (l *Log) Get(ctx context.Context, id string) (Operation, error) {
	op, _, err := l.current(ctx, id)
	return op, err
}

// History returns every state that an operation has had, the first one first.
func (l *Log) History(ctx context.Context, id string) ([]Operation, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	return l.read(ctx, fmt.Sprintf("%s WHERE id = %s ORDER BY sequence, at, holder", l.states(), chschema.QuoteString(id)))
}

// Filter chooses operations; an empty field admits all.
type Filter struct {
	Kind       Kind
	Projection string
	States     []State
	Unsettled  bool // only those that go on, that failed, or that wait for a person
	Limit      int  // the newest so many; 0 = 100
}

// unsettled is the condition of Filter.Unsettled. Only repairs and rebuilds are
// verified by a command of their own; the others have nothing to wait for once
// they are applied.
var unsettled = fmt.Sprintf("(state NOT IN ('%s', '%s') AND (state != '%s' OR kind IN ('%s', '%s')))", Verified, Withdrawn, Applied, Repair, Rebuild)

// List returns operations as they are now, the newest first by the server's
// clock: identities count only whole seconds. Where no operation has ever begun
// it returns none.
func (l *Log) List(ctx context.Context, f Filter) ([]Operation, error) {
	exists, err := l.cfg.readable(ctx, l.conn, Table)
	if err != nil || !exists {
		return nil, err
	}
	where := []string{"1"}
	if f.Kind != "" {
		where = append(where, "kind = "+chschema.QuoteString(string(f.Kind)))
	}
	if f.Projection != "" {
		where = append(where, "`projection` = "+chschema.QuoteString(f.Projection))
	}
	having := "1"
	if len(f.States) > 0 {
		names := make([]string, len(f.States))
		for i, s := range f.States {
			names[i] = chschema.QuoteString(string(s))
		}
		having = "state IN (" + strings.Join(names, ", ") + ")"
	}
	if f.Unsettled {
		having += " AND " + unsettled
	}
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	return l.read(ctx, fmt.Sprintf("SELECT * FROM (%s WHERE %s %s) WHERE %s ORDER BY began DESC, id DESC LIMIT %d", l.states(), strings.Join(where, " AND "), newest, having, limit))
}

// Count is how many operations of a kind are in a state.
type Count struct {
	Projection string
	Kind       Kind
	State      State
	Operations uint64
	// Oldest is when the one that has waited longest came to this state; of
	// running ones, the oldest last sign of life. By the server's clock.
	Oldest time.Time
}

// Counts counts the unsettled operations. Where no operation has ever begun it
// returns none.
func (l *Log) Counts(ctx context.Context) ([]Count, error) {
	exists, err := l.cfg.readable(ctx, l.conn, Table)
	if err != nil || !exists {
		return nil, err
	}
	var rows []struct {
		Projection string    `ch:"projection"`
		Kind       string    `ch:"kind"`
		State      string    `ch:"state"`
		Operations uint64    `ch:"operations"`
		Oldest     time.Time `ch:"oldest"`
	}
	query := fmt.Sprintf("SELECT `projection`, kind, state, count() AS operations, min(at) AS oldest FROM\n(\n    SELECT `projection`, kind, state, at FROM %s\n    %s\n)\nWHERE %s GROUP BY projection, kind, state ORDER BY projection, kind, state",
		l.cfg.Qualified(Table), newest, unsettled)
	if err := l.conn.Select(ctx, &rows, query); err != nil {
		return nil, fmt.Errorf("read the record of operations: %w", err)
	}
	list := make([]Count, len(rows))
	for i, r := range rows {
		list[i] = Count{r.Projection, Kind(r.Kind), State(r.State), r.Operations, r.Oldest}
	}
	return list, nil
}

// newest keeps each operation's current row. Two processes that took an
// operation over at once have written the same sequence: the earlier one wins,
// for every reader alike.
const newest = "ORDER BY id, sequence DESC, at, holder LIMIT 1 BY id"

// row is an Operation as the driver reads it.
type row struct {
	ID           string    `ch:"id"`
	Sequence     uint64    `ch:"sequence"`
	Kind         string    `ch:"kind"`
	Projection   string    `ch:"projection"`
	State        string    `ch:"state"`
	Began        time.Time `ch:"began"`
	Actor        string    `ch:"actor"`
	By           string    `ch:"by"`
	Reason       string    `ch:"reason"`
	Digest       string    `ch:"digest"`
	Scope        string    `ch:"scope"`
	Source       string    `ch:"source"`
	Before       string    `ch:"before"`
	Outcome      string    `ch:"outcome"`
	Checkpoint   string    `ch:"checkpoint"`
	Error        string    `ch:"error"`
	Verification string    `ch:"verification"`
	Run          uint32    `ch:"run"`
	Holder       string    `ch:"holder"`
	At           time.Time `ch:"at"`
	Silent       int64     `ch:"silent"` // milliseconds
}

func (r row) operation() Operation {
	return Operation{
		ID: r.ID, Sequence: r.Sequence, Kind: Kind(r.Kind), Projection: r.Projection, State: State(r.State), At: r.At, Began: r.Began,
		Actor: r.Actor, By: r.By, Reason: r.Reason, Digest: r.Digest,
		Scope: raw(r.Scope), Source: raw(r.Source), Before: raw(r.Before), Outcome: raw(r.Outcome),
		Checkpoint: raw(r.Checkpoint), Error: r.Error, Verification: raw(r.Verification), Run: r.Run, Holder: r.Holder,
	}
}

func raw(s string) json.RawMessage {
	if s == "" {
		return nil
	}
	return json.RawMessage(s)
}

const fields = columns + ", at, dateDiff('millisecond', at, now64(3)) AS silent"

// states is the start of a query for states of operations.
func (l *Log) states() string { return "SELECT " + fields + " FROM " + l.cfg.Qualified(Table) }

func (l *Log) rows(ctx context.Context, query string) ([]row, error) {
	var rows []row
	if err := l.conn.Select(ctx, &rows, query); err != nil {
		return nil, fmt.Errorf("read the record of operations: %w", err)
	}
	return rows, nil
}

func (l *Log) read(ctx context.Context, query string) ([]Operation, error) {
	rows, err := l.rows(ctx, query)
	if err != nil {
		return nil, err
	}
	ops := make([]Operation, len(rows))
	for i, r := range rows {
		ops[i] = r.operation()
	}
	return ops, nil
}

// current returns an operation as it is now, and how long ago that was written.
func (l *Log) current(ctx context.Context, id string) (Operation, time.Duration, error) {
	if err := CheckID(id); err != nil {
		return Operation{}, 0, err
	}
	exists, err := l.cfg.readable(ctx, l.conn, Table)
	if err != nil {
		return Operation{}, 0, err
	}
	var rows []row
	if exists {
		if rows, err = l.rows(ctx, fmt.Sprintf("%s WHERE id = %s %s", l.states(), chschema.QuoteString(id), newest)); err != nil {
			return Operation{}, 0, err
		}
	}
	if len(rows) != 1 {
		return Operation{}, 0, fmt.Errorf("operation %s: %w in %s.%s", id, ErrUnknown, l.cfg.Database, Table)
	}
	return rows[0].operation(), time.Duration(rows[0].Silent) * time.Millisecond, nil
}

// insert writes one row. INSERT … SELECT carries the values within the
// statement: no block is sent that the server could take for a repeated one.
func (l *Log) insert(ctx context.Context, op Operation, began string) error {
	if began == "" {
		began = fmt.Sprintf("fromUnixTimestamp64Milli(toInt64(%d))", op.Began.UnixMilli())
	}
	text := func(s json.RawMessage) string { return chschema.QuoteString(string(s)) }
	values := []string{
		chschema.QuoteString(op.ID), fmt.Sprint(op.Sequence), chschema.QuoteString(string(op.Kind)), chschema.QuoteString(op.Projection), chschema.QuoteString(string(op.State)),
		began, chschema.QuoteString(op.Actor), chschema.QuoteString(op.By), chschema.QuoteString(op.Reason), chschema.QuoteString(op.Digest),
		text(op.Scope), text(op.Source), text(op.Before), text(op.Outcome), text(op.Checkpoint), chschema.QuoteString(op.Error), text(op.Verification),
		fmt.Sprint(op.Run), chschema.QuoteString(op.Holder),
	}
	query := fmt.Sprintf("INSERT INTO %s (%s) SELECT %s SETTINGS async_insert = 0", l.cfg.Qualified(Table), columns, strings.Join(values, ", "))
	if err := l.conn.Exec(ctx, query); err != nil {
		return fmt.Errorf("write operation %s (%s) to the record: %w", op.ID, op.State, err)
	}
	return nil
}
