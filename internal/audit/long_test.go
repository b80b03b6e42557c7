package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chprojector/projector/chschema"
)

// A record may be longer than the statement that a server takes by itself: a checkpoint names refused values, and JSON and SQL
// together write seven characters for some of theirs.
func TestLongRecord(t *testing.T) {
	l, db := newLog(t)
	run := begin(t, l)
	long, err := json.Marshal(strings.Repeat("<", 100_000))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := run.Advance(ctx, func(op *Operation) { op.Checkpoint, op.Outcome = long, long }); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Get(ctx, run.Operation().ID); err != nil || string(got.Checkpoint) != string(long) {
		t.Errorf("%d bytes of %d: %v", len(got.Checkpoint), len(long), err)
	}
	f := OpenFindings(l.conn, l.cfg)
	if err := f.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	if err := f.Add(ctx, Finding{Projection: "p", Campaign: "1", Key: "56", Kind: "content_conflict", Fields: string(long)}); err != nil {
		t.Fatal(err)
	}
	if n, err := db.Query(ctx, "SELECT length(fields) FROM "+FindingsTable); err != nil || n != fmt.Sprintln(len(long)) {
		t.Errorf("%s bytes: %v", n, err)
	}
}

// cancelling is a connection after whose first failed statement the time is over.
type cancelling struct {
	chschema.Conn
	cancel context.CancelFunc
}

func (c cancelling) Exec(ctx context.Context, query string, args ...any) error {
	err := c.Conn.Exec(ctx, query, args...)
	if err != nil {
		c.cancel()
	}
	return err
}

// What kept a record from being written is told also when the time is over.
func TestEndTellsTheCause(t *testing.T) {
	l, db := newLog(t)
	run := begin(t, l)
	db.Exec(t, "ALTER TABLE "+Table+" ADD CONSTRAINT no CHECK run = 0")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l.conn = cancelling{l.conn, cancel}
	err := run.Advance(ctx, func(op *Operation) { op.State = Applied })
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "Constraint `no`") {
		t.Error(err)
	}
}
