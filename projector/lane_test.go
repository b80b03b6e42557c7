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
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// life is a member that runs in the background of a test.
type life struct {
	member
	drain, kill context.CancelFunc
	ended       chan struct{}
	err         error
}

func (m member) live(ctx context.Context) *life {
	l := &life{member: m, ended: make(chan struct{})}
	soft, drain := context.WithCancel(ctx)
	hard, kill := context.WithCancel(context.Background())
	l.drain, l.kill = drain, kill
	go func() {
		defer close(l.ended)
		l.err = m.Run(soft, hard)
	}()
	return l
}

// end drains the member and returns what Run returned.
func (l *life) end() error {
	l.drain()
	<-l.ended
	l.kill()
	return l.err
}

// bubble runs a test in virtual time with a world of its own.
func bubble(t *testing.T, partitions int32, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, partitions)
		defer w.close()
		test(t, w)
	})
}

// good is a database without faults.
func (w *world) good() Inserter {
	return insertFunc(func(_ context.Context, b Batch) error { w.store.insert(b); return nil })
}

func plainEvent(p int32, o int64) []byte { return event(uint64(p)<<32|uint64(o), 1, "x") }

func ids(clientID string) func(*Config, *Projection, *Deps) {
	return func(_ *Config, _ *Projection, d *Deps) { d.Kafka = append(d.Kafka, kgo.ClientID(clientID)) }
}

// valve is a database that answers only while it is open.
type valve struct {
	next     Inserter
	open     chan struct{}
	attempts atomic.Int64
}

func (v *valve) Insert(ctx context.Context, b Batch) error {
	v.attempts.Add(1)
	select {
	case <-v.open:
		return v.next.Insert(ctx, b)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (*valve) Close() error { return nil }

func TestRevokeOutstaysBudget(t *testing.T) {
	bubble(t, 4, func(t *testing.T, w *world) {
		w.produce(200, plainEvent, 0, 1, 2, 3)
		stalled := &valve{next: w.good(), open: make(chan struct{})}
		a := w.newMember(testPlan(t), stalled, func(c *Config, p *Projection, d *Deps) {
			ids("a")(c, p, d)
			c.Batch.Rows = 10_000 // one cut holds records of every partition
		}).live(t.Context())
		defer a.kill()
		time.Sleep(3 * time.Second)
		start := time.Now()
		b := w.newMember(testPlan(t), w.good(), ids("b")).live(t.Context())
		defer b.kill()

		// The rebalance ends although a's insert does not.
		info, err := w.cluster.WaitGroupInfo(t.Context(), testGroup, balanced(2, 4))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > testConfig().RebalanceTimeout {
			t.Errorf("the rebalance took %v, the stalled member should have let go after its budget of %v", took, testConfig().RevokeBudget)
		}
		moved := map[int32]bool{}
		for _, m := range info.Members {
			if strings.HasPrefix(m.MemberID, "b") {
				for _, p := range m.Assignment[testTopic] {
					moved[p] = true
				}
			}
		}
		if len(moved) == 0 {
			t.Fatal("b owns nothing")
		}
		// b reads from the start what a holds and cannot insert.
		if err := w.store.await(t.Context(), func() bool {
			for p := range moved {
				if w.store.acknowledged(p) < w.end[p] {
					return false
				}
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		close(stalled.open) // a's old cuts are inserted now, rows of b's partitions included
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(a.end(), b.end()); err != nil {
			t.Error(err)
		}
		for _, c := range w.check.seen {
			if moved[c.partition] && strings.HasPrefix(c.member, "a") {
				t.Errorf("a committed offset %d of partition %d, which it had given up", c.offset, c.partition)
			}
		}
		if n := total(t, a.registry, "projector_offsets_forgotten_total"); n == 0 {
			t.Error("a gave no offset up: the test did not outstay the budget")
		}
		if got := w.committed(); !maps.Equal(got, w.end) {
			t.Errorf("committed %v, want %v", got, w.end)
		}
		w.mustBeSound(t)
	})
}

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
		time.Sleep(30 * time.Second)
		held := total(t, m.registry, "projector_records_total")
		if limit := float64(cutsPerLane * testConfig().Batch.Rows); held == 0 || held > limit {
			t.Errorf("%v records are held while nothing is inserted, want some and at most %v", held, limit)
		}
		before, beats := w.cluster.GroupInfo(testGroup), heartbeats.Load()
		time.Sleep(10 * time.Minute) // far beyond the session and the rebalance timeout
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

func TestDrain(t *testing.T) {
	slow := func(w *world, latency time.Duration) Inserter {
		return insertFunc(func(ctx context.Context, b Batch) error {
			if !sleep(ctx, latency) {
				return ctx.Err()
			}
			w.store.insert(b)
			return nil
		})
	}
	t.Run("mid-insert, healthy: everything once", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, w *world) {
			w.produce(1000, plainEvent, 0, 1, 2)
			m := w.newMember(testPlan(t), slow(w, 500*time.Millisecond), nil).live(t.Context())
			defer m.kill()
			time.Sleep(2200 * time.Millisecond)
			start := time.Now()
			if err := m.end(); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("the drain took %v for at most three cuts of 500 ms", took)
			}
			inserted, _, repeated := w.store.counts()
			consumed := total(t, m.registry, "projector_records_total")
			if inserted == 0 || float64(inserted) != consumed || repeated != 0 {
				t.Errorf("consumed %v, inserted %d, repeated %d: what was read must be inserted, and once", consumed, inserted, repeated)
			}
			var committed int64
			for _, offset := range w.committed() {
				committed += offset
			}
			if committed != int64(inserted) {
				t.Errorf("inserted %d, committed %d", inserted, committed)
			}
			if n := len(w.cluster.GroupInfo(testGroup).Members); n != 0 {
				t.Errorf("%d members are still in the group", n)
			}
			w.mustBeSound(t)
		})
	})
	t.Run("the drain timeout passes", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, w *world) {
			w.produce(150, plainEvent, 0)
			m := w.newMember(testPlan(t), slow(w, time.Hour), nil).live(t.Context())
			defer m.kill()
			time.Sleep(time.Second)
			start := time.Now()
			err := m.end()
			if took, limit := time.Since(start), testConfig().DrainTimeout+testConfig().LeaveTimeout; took > limit {
				t.Errorf("took %v, more than %v", took, limit)
			}
			const want = "projection results lane 0: 150 records are not acknowledged and will be read again (results/0 offsets 0 to 99, results/0 offsets 100 to 149): the drain timeout passed"
			if err == nil || err.Error() != want || !errors.Is(err, errDrainTimeout) {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			w.mustBeSound(t)
		})
	})
	t.Run("hard stop", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, w *world) {
			w.produce(150, plainEvent, 0)
			m := w.newMember(testPlan(t), slow(w, time.Hour), nil).live(t.Context())
			time.Sleep(time.Second)
			start := time.Now()
			m.kill()
			<-m.ended
			if took := time.Since(start); took > 100*time.Millisecond {
				t.Errorf("took %v", took)
			}
			if m.err == nil || !strings.Contains(m.err.Error(), "150 records are not acknowledged") {
				t.Errorf("got %v, want the unacknowledged records", m.err)
			}
			w.mustBeSound(t)
		})
	})
	t.Run("hard stop with nothing to do", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, w *world) {
			m := w.newMember(testPlan(t), w.good(), nil).live(t.Context())
			time.Sleep(10 * time.Second)
			m.kill()
			<-m.ended
			if m.err != nil {
				t.Error(m.err)
			}
		})
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
		time.Sleep(5 * time.Second)
		for range seconds * 50 {
			w.produce(1, plainEvent, 0, 1, 2)
			time.Sleep(20 * time.Millisecond)
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
		time.Sleep(20 * time.Minute)
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

// parkFunc is a DeadLetters without state.
type parkFunc func(ctx context.Context, letters []Letter) error

func (f parkFunc) Park(ctx context.Context, letters []Letter) error { return f(ctx, letters) }

func TestLettersBeforeCommit(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(90, func(p int32, o int64) []byte {
			if o == 42 {
				return nil // a tombstone
			}
			return plainEvent(p, o)
		}, 0)
		var down atomic.Bool
		down.Store(true)
		var attempts atomic.Int64
		m := w.newMember(testPlan(t), w.good(), func(_ *Config, _ *Projection, d *Deps) {
			d.DeadLetters = parkFunc(func(ctx context.Context, letters []Letter) error {
				attempts.Add(1)
				if down.Load() {
					return errors.New("not enough replicas")
				}
				return w.store.Park(ctx, letters)
			})
		}).live(t.Context())
		defer m.kill()
		time.Sleep(2 * time.Minute)
		if inserted, parked, _ := w.store.counts(); inserted != 89 || parked != 0 || attempts.Load() < 5 {
			t.Errorf("inserted %d, parked %d after %d attempts; want the rows inserted and the letter tried again", inserted, parked, attempts.Load())
		}
		if got := w.committed(); len(got) != 0 || w.check.commits != 0 {
			t.Errorf("committed %v while the letter was not acknowledged", got)
		}
		if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "cannot park dead letters for") {
			t.Errorf("ready although letters cannot be parked: %v", err)
		}
		down.Store(false)
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
		if l := w.store.letters[place{0, 42}]; l.Error == nil || l.Error.Class != "tombstone" || l.Value != nil {
			t.Errorf("letter %+v", l)
		}
		w.mustBeSound(t)
	})
}

func TestStopRules(t *testing.T) {
	bad := func(p int32, o int64) bool { return true }
	for name, c := range map[string]struct {
		records int
		bad     func(int32, int64) bool
		change  func(*Config)
		want    string // part of the error, "" = goes on
		rows    int
		letters int
	}{
		"ratio exceeded": {
			records: 100, bad: func(_ int32, o int64) bool { return o%5 != 0 },
			want: "80 of 100 records were refused, more than stop_ratio (0.5)",
		},
		"ratio of a small batch says nothing": {
			records: 99, bad: bad, letters: 99,
		},
		"ratio switched off": {
			records: 100, bad: bad, change: func(c *Config) { c.StopRatio = 0 }, letters: 100,
		},
		"half is not more than half": {
			records: 100, bad: func(_ int32, o int64) bool { return o%2 == 0 }, rows: 50, letters: 50,
		},
		"run across batches": {
			records: 60, bad: func(_ int32, o int64) bool { return o >= 12 && o < 42 },
			change: func(c *Config) { c.Batch.Rows, c.StopRun = 20, 30 },
			want:   "30 records in a row were refused, stop_run is 30",
			rows:   12, letters: 8 + 20, // the first two batches were sound by themselves
		},
		"a good record ends the run": {
			records: 60, bad: func(_ int32, o int64) bool { return o >= 12 && o != 40 },
			change: func(c *Config) { c.Batch.Rows, c.StopRun = 20, 30 },
			rows:   13, letters: 47,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				w.produce(c.records, func(p int32, o int64) []byte {
					if c.bad(p, o) {
						return []byte(`{"id":"none"}`)
					}
					return plainEvent(p, o)
				}, 0)
				m := w.newMember(testPlan(t), w.good(), func(cfg *Config, _ *Projection, _ *Deps) {
					cfg.Batch.Delay = time.Hour
					if c.want == "" {
						cfg.Batch.Delay = time.Second
					}
					if c.change != nil {
						c.change(cfg)
					}
				}).live(t.Context())
				defer m.kill()
				var err error
				if c.want == "" {
					if err := w.awaitCommits(t.Context()); err != nil {
						t.Fatal(err)
					}
					err = m.end()
				} else {
					<-m.ended
					err = m.err
				}
				switch {
				case c.want == "" && err != nil:
					t.Error(err)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("got  %v\nwant …%s…", err, c.want)
				}
				if inserted, parked, _ := w.store.counts(); inserted != c.rows || parked != c.letters {
					t.Errorf("inserted %d and parked %d, want %d and %d", inserted, parked, c.rows, c.letters)
				}
				w.mustBeSound(t)
			})
		})
	}
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
