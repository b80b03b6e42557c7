package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newLog(t *testing.T) (*Log, *testenv.ClickHouseDatabase) {
	t.Helper()
	db := testenv.SharedClickHouse(t)
	conn, err := clickhouse.Open(clickhouse.Config{Addresses: []string{db.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return Open(conn, Config{Database: db.Name}), db
}

func begin(t *testing.T, l *Log) *Run {
	t.Helper()
	run, err := l.Begin(t.Context(), Operation{
		Kind: Backfill, Projection: "results", State: Running, Actor: "eve@desk", Reason: `it's "wrong" \ 🏃 {a:String} ?`,
		Digest: "d1", Scope: json.RawMessage(`{"campaigns":["1"]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func advance(t *testing.T, r *Run, to State, edit func(*Operation)) {
	t.Helper()
	err := r.Advance(t.Context(), func(op *Operation) {
		op.State = to
		if edit != nil {
			edit(op)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// dead makes the operation's holder a process that has ended.
func dead(t *testing.T, r *Run) {
	t.Helper()
	command := exec.Command("true")
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
	host, _, _ := strings.Cut(r.op.Holder, "/")
	r.op.Sequence++
	r.op.Holder = fmt.Sprintf("%s/%d/%s", host, command.Process.Pid, chance(3))
	if err := r.log.insert(t.Context(), r.op, ""); err != nil {
		t.Fatal(err)
	}
}

func TestLifeOfAnOperation(t *testing.T) {
	l, db := newLog(t)
	run := begin(t, l)
	first := run.Operation()
	if err := CheckID(first.ID); err != nil || first.Origin() != "backfill:"+first.ID {
		t.Errorf("ID %q, origin %q: %v", first.ID, first.Origin(), err)
	}
	if age := time.Since(first.At); age > time.Minute || age < -time.Minute || first.At.Sub(first.Began) > time.Second {
		t.Errorf("began %s, at %s", first.Began, first.At)
	}
	advance(t, run, Running, func(op *Operation) { op.Checkpoint = json.RawMessage(`{"key":["18446744073709551615"]}`) })
	advance(t, run, Applied, func(op *Operation) { op.Outcome = json.RawMessage(`{"rows":7}`) })
	got, err := l.Change(t.Context(), first.ID, "bob@ops", Verified, func(op *Operation) { op.Verification = json.RawMessage(`{"by":"reconcile"}`) })
	if err != nil {
		t.Fatal(err)
	}
	want := first
	want.Sequence, want.State, want.By, want.Holder, want.At = 4, Verified, "bob@ops", got.Holder, got.At
	want.Checkpoint, want.Outcome, want.Verification = json.RawMessage(`{"key":["18446744073709551615"]}`), json.RawMessage(`{"rows":7}`), json.RawMessage(`{"by":"reconcile"}`)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	history, err := l.History(t.Context(), first.ID)
	if err != nil {
		t.Fatal(err)
	}
	var states []State
	for _, op := range history {
		states = append(states, op.State)
	}
	if !slices.Equal(states, []State{Running, Running, Applied, Verified}) {
		t.Errorf("history %v", states)
	}
	if n, err := db.Query(t.Context(), "SELECT count() FROM "+Table); err != nil || n != "4\n" {
		t.Errorf("%q rows: %v", n, err)
	}
}

func TestStatesThatDoNotFollow(t *testing.T) {
	l, _ := newLog(t)
	run := begin(t, l)
	id := run.Operation().ID
	if _, err := l.Change(t.Context(), id, "x", Verified, nil); !isState(err) {
		t.Errorf("a running operation was verified: %v", err)
	}
	if err := run.Advance(t.Context(), func(op *Operation) { op.State = Verified }); !isState(err) {
		t.Errorf("an operation verified itself: %v", err)
	}
	advance(t, run, Applied, nil)
	if _, err := l.Resume(t.Context(), id, "x"); !isState(err) {
		t.Errorf("an applied operation was resumed: %v", err)
	}
	if err := run.Advance(t.Context(), func(op *Operation) { op.State = Running }); !isState(err) {
		t.Errorf("an applied operation runs again: %v", err)
	}
	if _, err := l.Begin(t.Context(), Operation{Kind: Backfill, State: Applied}); err == nil {
		t.Error("an operation began applied")
	}
}

// TestEnd: the last line is written although the signal that ended the work has
// cancelled everything.
func TestEnd(t *testing.T) {
	l, _ := newLog(t)
	signalled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		failed error
		want   State
		text   string
	}{{nil, Applied, ""}, {context.Canceled, Failed, "context canceled"}} {
		run := begin(t, l)
		if err := run.End(signalled, c.failed, func(op *Operation) { op.Outcome = json.RawMessage(`{"rows":1}`) }); !errors.Is(err, c.failed) {
			t.Errorf("it ends with %v, want %v", err, c.failed)
		}
		op, err := l.Get(t.Context(), run.Operation().ID)
		if err != nil || op.State != c.want || op.Error != c.text || string(op.Outcome) != `{"rows":1}` {
			t.Errorf("%v: the record ends with %s, %q, %s; want %s", err, op.State, op.Error, op.Outcome, c.want)
		}
	}
}

// TestWaiting: what one process leaves to the next is taken over at once, by a
// process of any machine, though the one before it lives.
func TestWaiting(t *testing.T) {
	l, _ := newLog(t)
	run := begin(t, l)
	id := run.Operation().ID
	advance(t, run, Waiting, nil)
	if _, err := l.Change(t.Context(), id, "x", Verified, nil); !isState(err) {
		t.Errorf("a waiting operation was verified: %v", err)
	}
	next, err := l.Resume(t.Context(), id, "x")
	if err != nil || next.Operation().State != Running || next.Operation().Run != 2 {
		t.Fatalf("%v: %+v", err, next)
	}
	if err := run.Advance(t.Context(), func(op *Operation) { op.State = Running }); !errors.Is(err, ErrTaken) {
		t.Errorf("the first process goes on: %v", err)
	}
	advance(t, next, Waiting, nil)
	if op, err := l.Change(t.Context(), id, "x", Withdrawn, nil); err != nil || op.State != Withdrawn {
		t.Errorf("%v: %+v", err, op)
	}
}

func isState(err error) bool {
	_, ok := errors.AsType[*StateError](err)
	return ok
}

func TestUnknownOperation(t *testing.T) {
	l, _ := newLog(t)
	if _, err := l.Get(t.Context(), "20261130T134512-4f2a9c"); !errors.Is(err, ErrUnknown) {
		t.Errorf("before the table exists: %v", err)
	}
	if ops, err := l.List(t.Context(), Filter{}); err != nil || len(ops) != 0 {
		t.Errorf("before the table exists: %v, %v", ops, err)
	}
	begin(t, l)
	if _, err := l.Resume(t.Context(), "20261130T134512-4f2a9c", "x"); !errors.Is(err, ErrUnknown) {
		t.Errorf("with a table: %v", err)
	}
	if _, err := l.Get(t.Context(), "'; DROP TABLE x"); err == nil || !strings.Contains(err.Error(), "is no operation") {
		t.Errorf("a text that is no ID: %v", err)
	}
}

func TestResume(t *testing.T) {
	l, _ := newLog(t)
	run := begin(t, l)
	id := run.Operation().ID
	_, err := l.Resume(t.Context(), id, "bob@ops")
	if busy, ok := errors.AsType[*BusyError](err); !ok || busy.Holder != run.Operation().Holder {
		t.Errorf("the process lives, and resuming says %v", err)
	}
	if _, err := l.Change(t.Context(), id, "x", Withdrawn, nil); err == nil {
		t.Error("withdrawn under a living process")
	}
	advance(t, run, Failed, func(op *Operation) {
		op.Error, op.Checkpoint = "the disk is full", json.RawMessage(`{"n":5}`)
	})
	again, err := l.Resume(t.Context(), id, "bob@ops")
	if err != nil {
		t.Fatal(err)
	}
	op := again.Operation()
	if op.Run != 2 || op.By != "bob@ops" || op.Actor != "eve@desk" || op.Error != "" || string(op.Checkpoint) != `{"n":5}` || op.State != Running {
		t.Errorf("resumed as %+v", op)
	}
	if err := run.Advance(t.Context(), func(op *Operation) { op.State = Running }); !errors.Is(err, ErrTaken) {
		t.Errorf("the first process goes on: %v", err)
	}
	// Of a dead process of this machine nobody waits for the end of the lease.
	dead(t, again)
	if _, err := l.Resume(t.Context(), id, "bob@ops"); err != nil {
		t.Error(err)
	}
}

// A holder of another machine is known by its silence alone.
func TestLeaseRunsOut(t *testing.T) {
	l, _ := newLog(t)
	run := begin(t, l)
	run.op.Sequence++
	run.op.Holder = "elsewhere/1/abcdef"
	if err := l.insert(t.Context(), run.op, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Resume(t.Context(), run.op.ID, "x"); err == nil {
		t.Fatal("resumed at once")
	}
	l.lease = time.Millisecond
	testenv.Eventually(t, "the lease is over", func() bool {
		_, err := l.Resume(t.Context(), run.op.ID, "x")
		return err == nil
	})
}

// Of many processes that take a dead one's operation over at once, one goes on.
func TestOneTakesOver(t *testing.T) {
	l, _ := newLog(t)
	for range 10 {
		run := begin(t, l)
		dead(t, run)
		var group sync.WaitGroup
		runs := make([]*Run, 8)
		for i := range runs {
			group.Go(func() { runs[i], _ = l.Resume(t.Context(), run.op.ID, fmt.Sprint(i)) })
		}
		group.Wait()
		// A claim that came later by the server's clock may have been read alone. It ends with the first Advance.
		holders := 0
		for _, r := range runs {
			if r != nil && r.Advance(t.Context(), func(*Operation) {}) == nil {
				holders++
			}
		}
		if holders != 1 {
			t.Errorf("%d processes go on", holders)
		}
	}
}

func TestKeepGivesSignsOfLife(t *testing.T) {
	l, _ := newLog(t)
	l.lease = 60 * time.Millisecond
	run := begin(t, l)
	done := make(chan error, 1)
	go func() { done <- run.Keep(t.Context()) }()
	testenv.Eventually(t, "signs of life", func() bool { return run.Operation().Sequence > 2 })
	taken := run.Operation()
	taken.Sequence += 1_000_000 // whatever signs are given while the other process takes over
	dead(t, &Run{log: l, op: taken})
	testenv.Eventually(t, "the takeover is noticed", func() bool { return len(done) > 0 })
	if err := <-done; !errors.Is(err, ErrTaken) {
		t.Errorf("kept with %v", err)
	}
}

func TestList(t *testing.T) {
	l, _ := newLog(t)
	a, b := begin(t, l), begin(t, l)
	advance(t, a, Applied, nil)
	var many []string // most of them in one second
	for range 8 {
		many = slices.Insert(many, 0, begin(t, l).op.ID)
	}
	for _, c := range []struct {
		name   string
		filter Filter
		want   []string
	}{
		{"all", Filter{}, append(slices.Clone(many), b.op.ID, a.op.ID)},
		{"applied", Filter{States: []State{Applied, Verified}}, []string{a.op.ID}},
		{"running", Filter{States: []State{Running}}, append(slices.Clone(many), b.op.ID)},
		{"other kind", Filter{Kind: Repair}, nil},
		{"other projection", Filter{Projection: "none"}, nil},
		{"newest of both", Filter{Kind: Backfill, Projection: "results", Limit: 5}, many[:5]},
	} {
		t.Run(c.name, func(t *testing.T) {
			ops, err := l.List(t.Context(), c.filter)
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, op := range ops {
				ids = append(ids, op.ID)
			}
			if !slices.Equal(ids, c.want) {
				t.Errorf("%v, want %v", ids, c.want)
			}
		})
	}
}

func TestStatementsOfACluster(t *testing.T) {
	cfg := Config{Database: "rep`o", Cluster: "main"}
	text := cfg.CreateTable() + "\n" + strings.Join(cfg.Grants("writer", Table), "\n")
	for _, want := range []string{
		"CREATE TABLE IF NOT EXISTS `rep\\`o`.`projector_operations` ON CLUSTER `main`", "ENGINE = ReplicatedMergeTree\n",
		"GRANT ON CLUSTER `main` SELECT, INSERT, CREATE TABLE ON `rep\\`o`.`projector_operations` TO `writer`",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	db := testenv.SharedClickHouse(t)
	for _, statement := range append(cfg.Grants("writer", Table), cfg.CreateTable()) {
		if _, err := db.Query(t.Context(), "SELECT formatQuerySingleLine("+chschema.QuoteString(statement)+")"); err != nil {
			t.Error(err)
		}
	}
}

// TestUnsettled: what waits for nobody is neither listed nor counted.
func TestUnsettled(t *testing.T) {
	l, _ := newLog(t)
	if counts, err := l.Counts(t.Context()); err != nil || len(counts) > 0 {
		t.Errorf("before the first operation: %v, %v", counts, err)
	}
	want := map[string]uint64{}
	for _, kind := range []Kind{Backfill, Repair, Rebuild} {
		for _, path := range [][]State{
			{Planned}, {Planned, Withdrawn}, {Running}, {Running, Failed}, {Running, Applied}, {Running, Applied}, {Running, Applied, Verified}, {Running, Applied, Refuted},
		} {
			run, err := l.Begin(t.Context(), Operation{Kind: kind, Projection: "results", State: path[0]})
			if err != nil {
				t.Fatal(err)
			}
			for _, to := range path[1:] {
				if err := run.Advance(t.Context(), func(op *Operation) { op.State = to }); err != nil {
					t.Fatal(err)
				}
			}
			if end := path[len(path)-1]; end != Withdrawn && end != Verified && (end != Applied || kind != Backfill) {
				want[string(kind)+" "+string(end)]++
			}
		}
	}
	counts, err := l.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]uint64{}
	for _, c := range counts {
		counted[string(c.Kind)+" "+string(c.State)] += c.Operations
		if c.Projection != "results" || time.Since(c.Oldest) > time.Minute || time.Until(c.Oldest) > time.Minute {
			t.Errorf("%+v", c)
		}
	}
	if diff := cmp.Diff(want, counted); diff != "" {
		t.Errorf("counted: -want +got\n%s", diff)
	}
	list, err := l.List(t.Context(), Filter{Unsettled: true})
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]uint64{}
	for _, op := range list {
		listed[string(op.Kind)+" "+string(op.State)]++
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("listed: -want +got\n%s", diff)
	}
}
