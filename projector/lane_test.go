//go:build synctests

package projector

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestBackPressure(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.produce(2000, plainEvent, 0, 1)
		var heartbeats atomic.Int64
		w.cluster.ControlKey(int16(kmsg.Heartbeat), func(kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			heartbeats.Add(1)
			return nil, nil, false
		})
		stalled := &valve{next: w.good(), open: make(chan struct{})}
		m := w.newMember(testPlan(t), stalled, nil).live(t.Context())
		defer m.kill()
		pass(30 * time.Second)
		held := total(t, m.registry, "projector_records_total")
		if limit := float64(cutsPerLane * testConfig().Batch.Rows); held == 0 || held > limit {
			t.Errorf("%v records are held while nothing is inserted, want some and at most %v", held, limit)
		}
		before, beats := w.cluster.GroupInfo(testGroup), heartbeats.Load()
		pass(10 * time.Minute) // far beyond the session and the rebalance timeout
		if now := total(t, m.registry, "projector_records_total"); now != held {
			t.Errorf("the lane went on polling: %v records, then %v", held, now)
		}
		after := w.cluster.GroupInfo(testGroup)
		if after.State != "Stable" || after.Epoch != before.Epoch || len(after.Members) != 1 {
			t.Errorf("the member was expelled or had to rejoin: %s generation %d, then %s generation %d with %d members",
				before.State, before.Epoch, after.State, after.Epoch, len(after.Members))
		}
		if heartbeats.Load() == beats {
			t.Error("no heartbeats")
		}
		if err := m.Live(); err != nil {
			t.Errorf("alive, but: %v", err)
		}
		if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "cannot insert into ClickHouse for") {
			t.Errorf("ready although nothing was inserted for ten minutes: %v", err)
		}
		close(stalled.open)
		if err := w.store.await(t.Context(), w.acknowledgedAll); err != nil {
			t.Fatal(err)
		}
		if err := m.Ready(); err != nil {
			t.Errorf("works again, but: %v", err)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
		w.mustBeSound(t)
	})
}

func TestSlowTraffic(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		const delay, seconds = time.Second, 20
		var mu sync.Mutex
		var times []time.Time
		var late time.Duration
		m := w.newMember(testPlan(t), insertFunc(func(_ context.Context, b Batch) error {
			mu.Lock()
			defer mu.Unlock()
			times = append(times, time.Now())
			first := b.Rows.Lineage(0)
			late = max(late, w.age(first.Partition, first.Offset))
			w.store.insert(b)
			return nil
		}), func(c *Config, _ *Projection, _ *Deps) { c.Batch.Rows, c.Batch.Delay = 10_000, delay }).live(t.Context())
		defer m.kill()
		pass(5 * time.Second)
		for range seconds * 50 {
			w.produce(1, plainEvent, 0, 1, 2)
			pass(20 * time.Millisecond)
		}
		if err := w.store.await(t.Context(), w.acknowledgedAll); err != nil {
			t.Fatal(err)
		}
		if len(times) > seconds+1 || len(times) < seconds/2 {
			t.Errorf("%d inserts in %d s, want about one in %v", len(times), seconds, delay)
		}
		for i := range len(times) - 1 {
			if gap := times[i+1].Sub(times[i]); gap < delay {
				t.Errorf("two inserts within %v", gap)
			}
		}
		if late > delay+100*time.Millisecond {
			t.Errorf("a record was inserted %v after it was produced", late)
		}
		// Silence costs nothing, and is neither unready nor dead.
		before := len(times)
		pass(20 * time.Minute)
		if len(times) != before {
			t.Error("inserts without records")
		}
		if err := errors.Join(m.Ready(), m.Live()); err != nil {
			t.Errorf("idle, but: %v", err)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
		w.mustBeSound(t)
	})
}

func TestConflictsCountedOnce(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.produce(30, func(p int32, o int64) []byte {
			if o == 20 {
				return event(7, 3, []string{"2.21", "2.31"}[p]) // the same version says two things
			}
			return plainEvent(p, o)
		}, 0, 1)
		attempts := 0
		var log bytes.Buffer
		m := w.newMember(testPlan(t), insertFunc(func(_ context.Context, b Batch) error {
			if attempts++; attempts < 4 {
				return &InsertError{Class: Transient, Code: 210, Message: "broken pipe"}
			}
			w.store.insert(b)
			return nil
		}), func(_ *Config, _ *Projection, d *Deps) { d.Log = zerolog.New(&log) }).live(t.Context())
		defer m.kill()
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
		if n := total(t, m.registry, "projector_conflicts_total"); n != 1 {
			t.Errorf("%v conflicts counted over %d attempts, want 1", n, attempts)
		}
		if n := strings.Count(log.String(), "different content"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, &log)
		}
		for _, want := range []string{"results/0@20", "results/1@20", "id=7"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not name %s:\n%s", want, &log)
			}
		}
		if inserted, _, _ := w.store.counts(); inserted != 60 {
			t.Errorf("inserted %d: both rows of a conflict belong in the table", inserted)
		}
		if n := total(t, m.registry, "projector_insert_retries_total", "class", "transient"); n != 3 {
			t.Errorf("%v retries counted, want 3", n)
		}
		// One line when the trouble begins, one when it is over.
		if n := strings.Count(log.String(), "insert into ClickHouse"); n != 2 {
			t.Errorf("%d lines about the inserts, want 2:\n%s", n, &log)
		}
	})
}

func TestCommitRefusedOnQuietTopic(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(10, plainEvent, 0)
		refusing := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.RebalanceInProgress, Count: 3})
		m := w.newMember(testPlan(t), w.good(), nil).live(t.Context())
		defer m.kill()
		pass(10 * time.Second)
		if n := refusing.Hits(); n != 3 {
			t.Errorf("%d commits were refused, want 3", n)
		}
		if got := w.committed(); !maps.Equal(got, w.end) {
			t.Errorf("committed %v, want %v without waiting for more records", got, w.end)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
		if refused, ok := total(t, m.registry, "projector_commits_total", "outcome", "refused"), total(t, m.registry, "projector_commits_total", "outcome", "accepted"); refused != 3 || ok != 1 {
			t.Errorf("counted %v refused and %v accepted, want 3 and 1", refused, ok)
		}
		w.mustBeSound(t)
	})
}

// TestCutsAreBoundedByBytes: large records make cuts of few rows. Only the first cut may exceed the limit by what was
// fetched, because nothing is known of the records before it.
func TestCutsAreBoundedByBytes(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		const limit, record = 100 << 10, 5 << 10
		w.produce(600, func(_ int32, o int64) []byte { return event(uint64(o), 1, strings.Repeat("x", record)) }, 0)
		var mu sync.Mutex
		var sizes []int
		m := w.newMember(testPlan(t), insertFunc(func(_ context.Context, b Batch) error {
			mu.Lock()
			defer mu.Unlock()
			sizes = append(sizes, b.Rows.Size())
			w.store.insert(b)
			return nil
		}), func(c *Config, _ *Projection, _ *Deps) {
			c.Batch = Limits{Rows: 10_000, Bytes: limit, Delay: time.Second}
		}).live(t.Context())
		defer m.kill()
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
		for i, size := range sizes[1 : len(sizes)-1] {
			if size < limit-2*record || size > limit+2*record {
				t.Errorf("cut %d holds %d bytes, want about %d", i+1, size, limit)
			}
		}
		if len(sizes) < 10 {
			t.Errorf("only %d cuts: %v", len(sizes), sizes)
		}
	})
}
