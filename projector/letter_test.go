//go:build synctests

package projector

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

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
		pass(2 * time.Minute)
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

func TestLettersThatCannotBeParked(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(10, func(p int32, o int64) []byte { return []byte("?") }, 0)
		m := w.newMember(testPlan(t), w.good(), func(_ *Config, _ *Projection, d *Deps) {
			d.DeadLetters = parkFunc(func(context.Context, []Letter) error {
				return &InsertError{Class: Fatal, Message: "topic results-dlq: TOPIC_AUTHORIZATION_FAILED"}
			})
		}).live(t.Context())
		defer m.kill()
		<-m.ended
		const want = "park 10 letters of projection results: fatal error: topic results-dlq: TOPIC_AUTHORIZATION_FAILED"
		if m.err == nil || !strings.Contains(m.err.Error(), want) {
			t.Errorf("got  %v\nwant %s", m.err, want)
		}
		if w.check.commits != 0 {
			t.Error("committed without the letters")
		}
	})
}

func TestStopRules(t *testing.T) {
	bad := func(int32, int64) bool { return true }
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

func TestRejectedRecordThatIsGone(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(100, plainEvent, 0)
		delete(w.values, place{0, 33})
		m := w.newMember(testPlan(t), insertFunc(func(_ context.Context, b Batch) error {
			for i := b.From; i < b.To; i++ {
				if o := b.Rows.Lineage(i).Offset; o == 33 || o == 66 {
					return &InsertError{Class: Rejected, Code: 469, Message: "Constraint c is violated"}
				}
			}
			w.store.insert(b)
			return nil
		}), nil).live(t.Context())
		defer m.kill()
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
		gone, kept := w.store.letters[place{0, 33}], w.store.letters[place{0, 66}]
		if !gone.Gone || gone.Value != nil || gone.Topic != testTopic || gone.Code != 469 {
			t.Errorf("letter of a record that is gone: %+v", gone)
		}
		if kept.Gone || string(kept.Value) != string(plainEvent(0, 66)) || kept.Error.Class != ClassRejected || kept.Error.Reason != "Constraint c is violated" {
			t.Errorf("letter of a record that is there: %+v", kept)
		}
		w.mustBeSound(t)
	})
}

// TestRejectedRowAfterRow: a constraint that no row meets stops the lane after a few rows, not after the topic.
func TestRejectedRowAfterRow(t *testing.T) {
	rejects := func(odd bool) func(Batch) bool {
		return func(b Batch) bool {
			for i := b.From; i < b.To; i++ {
				if !odd || b.Rows.Lineage(i).Offset%2 == 1 {
					return true
				}
			}
			return false
		}
	}
	for name, c := range map[string]struct {
		change  func(*Config)
		rejects func(Batch) bool
		want    string
		calls   int64
		parked  int
	}{
		"in a row":                {func(c *Config) { c.StopRun = 5 }, rejects(false), "ClickHouse rejected 5 rows in a row, stop_run is 5", 30, 0},
		"in one batch":            {func(c *Config) { c.StopRun = 5 }, rejects(true), "ClickHouse rejected 6 rows of one batch, more than stop_run (5)", 60, 0},
		"a share of the batch":    {func(c *Config) { c.StopRun, c.StopRatio = 0, 0.1 }, rejects(true), "ClickHouse rejected 11 of 100 records, more than stop_ratio (0.1)", 60, 0},
		"in a row, small batches": {func(c *Config) { c.StopRun, c.Batch.Rows = 25, 10 }, rejects(false), "ClickHouse rejected 25 rows in a row, stop_run is 25", 80, 20},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				w.produce(100, plainEvent, 0)
				var calls atomic.Int64
				m := w.newMember(testPlan(t), insertFunc(func(_ context.Context, b Batch) error {
					calls.Add(1)
					if c.rejects(b) {
						return &InsertError{Class: Rejected, Code: 469, Message: "Constraint c is violated"}
					}
					return nil
				}), func(cfg *Config, _ *Projection, _ *Deps) { c.change(cfg) }).live(t.Context())
				defer m.kill()
				<-m.ended
				if m.err == nil || !strings.Contains(m.err.Error(), c.want) || !strings.Contains(m.err.Error(), "wrong deployment") {
					t.Errorf("got %v, want %q", m.err, c.want)
				}
				if _, parked, _ := w.store.counts(); parked != c.parked || w.committed()[0] != int64(c.parked) {
					t.Errorf("parked %d, committed %v: want %d", parked, w.committed(), c.parked)
				}
				if calls.Load() > c.calls {
					t.Errorf("%d inserts before giving up", calls.Load())
				}
				if divided := total(t, m.registry, "projector_divided_inserts_total"); divided < 5 || divided >= float64(calls.Load()) {
					t.Errorf("%v of %d inserts are counted as divided", divided, calls.Load())
				}
			})
		})
	}
}
