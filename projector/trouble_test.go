//go:build synctests

package projector

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func logTo(log *bytes.Buffer) func(*Config, *Projection, *Deps) {
	return func(_ *Config, _ *Projection, d *Deps) { d.Log = zerolog.New(zerolog.SyncWriter(log)) }
}

func TestTopicAppears(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		if err := w.cluster.DeleteTopic(testTopic); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		m := w.newMember(testPlan(t), w.good(), logTo(&log)).live(t.Context())
		defer m.kill()
		time.Sleep(3 * time.Minute)
		if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "topic results: UNKNOWN_TOPIC_OR_PARTITION") {
			t.Errorf("ready without its topic: %v", err)
		}
		if err := m.Live(); err != nil {
			t.Error(err)
		}
		if err := w.cluster.CreateTopic(testTopic, 1, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.produce(10, plainEvent, 0)
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := m.Ready(); err != nil {
			t.Error(err)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "read from Kafka"); n != 2 {
			t.Errorf("%d lines about one streak of trouble, want one at its beginning and one at its end:\n%s", n, &log)
		}
	})
}

func TestTopicReplaced(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(50, plainEvent, 0)
		var log bytes.Buffer
		m := w.newMember(testPlan(t), w.good(), logTo(&log)).live(t.Context())
		defer m.kill()
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.cluster.DeleteTopic(testTopic), w.cluster.CreateTopic(testTopic, 1, nil)); err != nil {
			t.Fatal(err)
		}
		inserted := total(t, m.registry, "projector_rows_total")
		w.end[0] = 0
		w.producer.PurgeTopicsFromClient(testTopic)
		w.produce(20, plainEvent, 0)
		time.Sleep(5 * time.Minute)
		if n := total(t, m.registry, "projector_rows_total") - inserted; n != 20 {
			t.Errorf("%v rows of the new topic, want 20", n)
		}
		if n := total(t, m.registry, "projector_lane_restarts_total"); n == 0 {
			t.Error("the lane did not start over")
		}
		if err := errors.Join(m.Ready(), m.end()); err != nil {
			t.Error(err)
		}
	})
}

func TestExpiredRecordsAreCounted(t *testing.T) {
	for name, whileRunning := range map[string]bool{"between two lives": false, "while the database hangs": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				w.produce(100, plainEvent, 0)
				var log bytes.Buffer
				v := &valve{next: w.good(), open: make(chan struct{})}
				change := func(c *Config, p *Projection, d *Deps) {
					logTo(&log)(c, p, d)
					c.Batch.Rows, c.FetchBytes = 10, minFetch
				}
				m := w.newMember(testPlan(t), v, change).live(t.Context())
				if !whileRunning {
					close(v.open)
					if err := w.awaitCommits(t.Context()); err != nil {
						t.Fatal(err)
					}
					if err := m.end(); err != nil {
						t.Fatal(err)
					}
				} else {
					time.Sleep(10 * time.Second)
				}
				w.produce(5000, plainEvent, 0)
				if err := w.cluster.DeleteRecords(testTopic, 0, 4000); err != nil {
					t.Fatal(err)
				}
				if whileRunning {
					close(v.open)
				} else {
					m = w.newMember(testPlan(t), w.good(), change).live(t.Context())
				}
				defer m.kill()
				if err := w.store.await(t.Context(), func() bool { return w.store.has(0, w.end[0]-1) }); err != nil {
					t.Fatal(err)
				}
				if err := m.end(); err != nil {
					t.Error(err)
				}
				inserted, _, _ := w.store.counts()
				gone := total(t, m.registry, "projector_expired_records_total")
				if gone == 0 || int(gone)+inserted != int(w.end[0]) {
					t.Errorf("inserted %d, counted %v as expired, produced %d", inserted, gone, w.end[0])
				}
				if n := strings.Count(log.String(), "retention removed records"); n != 1 {
					t.Errorf("logged %d times:\n%s", n, &log)
				}
			})
		})
	}
}

func TestOffsetBeyondTheEnd(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(30, plainEvent, 0)
		commitAs(t, w.producer, 0, 5000) // as after a topic was replaced by a shorter one
		var log bytes.Buffer
		m := w.newMember(testPlan(t), w.good(), logTo(&log)).live(t.Context())
		defer m.kill()
		if err := w.store.await(t.Context(), w.acknowledgedAll); err != nil {
			t.Fatal(err)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
		if n := total(t, m.registry, "projector_offset_resets_total", "kind", "went_back"); n != 1 {
			t.Errorf("%v resets counted:\n%s", n, &log)
		}
		if got := w.committed(); !maps.Equal(got, w.end) {
			t.Errorf("committed %v, want %v", got, w.end)
		}
	})
}

func TestStart(t *testing.T) {
	for name, c := range map[string]struct {
		start     Start
		committed map[int32]int64
		first     [2]int64 // of 50 records that were there before, and 50 more produced later
	}{
		"earliest":                             {StartEarliest, nil, [2]int64{0, 0}},
		"earliest, with commits":               {StartEarliest, map[int32]int64{0: 10, 1: 20}, [2]int64{10, 20}},
		"latest":                               {StartLatest, nil, [2]int64{50, 50}},
		"latest, with commits":                 {StartLatest, map[int32]int64{0: 10, 1: 20}, [2]int64{10, 20}},
		"latest, with a commit of another one": {StartLatest, map[int32]int64{0: 10}, [2]int64{10, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, w *world) {
				w.produce(50, plainEvent, 0, 1)
				for p, offset := range c.committed {
					commitAs(t, w.producer, p, offset)
				}
				m := w.newMember(testPlan(t), w.good(), func(_ *Config, p *Projection, _ *Deps) { p.Start, p.Lanes = c.start, 2 }).live(t.Context())
				defer m.kill()
				time.Sleep(10 * time.Second)
				w.produce(50, plainEvent, 0, 1)
				time.Sleep(10 * time.Second)
				if err := m.end(); err != nil {
					t.Error(err)
				}
				for p, want := range c.first {
					if w.store.has(int32(p), want-1) || w.store.acknowledgedFrom(int32(p), want) != 100 {
						t.Errorf("partition %d: read from %d to %d, want from %d to 100", p, want, w.store.acknowledgedFrom(int32(p), want), want)
					}
				}
			})
		})
	}
}

func TestLatestDoesNotMove(t *testing.T) {
	latest := func(_ *Config, p *Projection, _ *Deps) { p.Start = StartLatest }
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(50, plainEvent, 0)
		m := w.newMember(testPlan(t), &valve{open: make(chan struct{})}, latest).live(t.Context())
		time.Sleep(10 * time.Second)
		w.produce(50, plainEvent, 0)
		time.Sleep(10 * time.Second)
		m.kill() // before its first commit of anything read
		<-m.ended
		w.produce(50, plainEvent, 0)

		m = w.newMember(testPlan(t), w.good(), latest).live(t.Context())
		defer m.kill()
		time.Sleep(20 * time.Second)
		if got := w.store.acknowledgedFrom(0, 50); got != 150 || w.store.has(0, 49) {
			t.Errorf("read from 50 to %d, want to 150", got)
		}
		// A partition that is added later has records before the group knows of it.
		if _, err := kadm.NewClient(w.producer).CreatePartitions(t.Context(), 1, testTopic); err != nil {
			t.Fatal(err)
		}
		w.producer.ForceMetadataRefresh()
		time.Sleep(time.Second)
		w.produce(50, plainEvent, 1)
		time.Sleep(10 * time.Minute)
		if got := w.store.acknowledgedFrom(1, 0); got != 50 {
			t.Errorf("the new partition was read up to %d, want 50", got)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
	})
}

// commitAs commits an offset of the group from outside.
func commitAs(t *testing.T, client *kgo.Client, partition int32, offset int64) {
	t.Helper()
	offsets := kadm.Offsets{}
	offsets.AddOffset(testTopic, partition, offset, -1)
	if err := kadm.NewClient(client).CommitAllOffsets(t.Context(), testGroup, offsets); err != nil {
		t.Fatal(err)
	}
}

// two makes an engine with two projections over topics a and b.
func (w *world) two(t *testing.T, inserters map[string]Inserter, change func(*Config)) member {
	t.Helper()
	for _, topic := range []string{"a", "b"} {
		if err := w.cluster.CreateTopic(topic, 2, nil); err != nil {
			t.Fatal(err)
		}
	}
	cfg := testConfig()
	if change != nil {
		change(&cfg)
	}
	registry := prometheus.NewRegistry()
	var projections []Projection
	for _, name := range []string{"a", "b"} {
		projections = append(projections, Projection{Name: name, Topics: []string{name}, Group: "g." + name, Plan: testPlan(t), Lanes: 2})
	}
	e, err := New(cfg, projections, Deps{
		Kafka:       []kgo.Opt{kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.net.DialContext)},
		NewInserter: func(p Projection) (Inserter, error) { return inserters[p.Name], nil },
		DeadLetters: w.store, Records: w, Log: zerolog.Nop(), Registerer: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	return member{e, registry}
}

func (w *world) send(t *testing.T, topic string, n int) {
	t.Helper()
	for i := range n {
		w.producer.Produce(t.Context(), &kgo.Record{Topic: topic, Partition: int32(i % 2), Value: plainEvent(0, int64(i))}, nil)
	}
	if err := w.producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestFailingTableHoldsUpOnlyItself(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		accept := insertFunc(func(context.Context, Batch) error { return nil })
		stalled := &valve{next: accept, open: make(chan struct{})}
		m := w.two(t, map[string]Inserter{"a": stalled, "b": accept}, nil).live(t.Context())
		defer m.kill()
		time.Sleep(10 * time.Second) // the groups are in balance
		for range 5 {
			w.send(t, "a", 100)
			w.send(t, "b", 100)
			time.Sleep(20 * time.Second)
		}
		if a, b := total(t, m.registry, "projector_rows_total", "projection", "a"), total(t, m.registry, "projector_rows_total", "projection", "b"); a != 0 || b != 500 {
			t.Errorf("a inserted %v and b %v, want 0 and 500", a, b)
		}
		if err := m.Ready(); err == nil || strings.Contains(err.Error(), "projection b") {
			t.Errorf("want a alone to be reported: %v", err)
		}
		close(stalled.open)
		time.Sleep(10 * time.Second)
		if a := total(t, m.registry, "projector_rows_total", "projection", "a"); a != 500 {
			t.Errorf("a inserted %v, want 500", a)
		}
		if err := errors.Join(m.Ready(), m.end()); err != nil {
			t.Error(err)
		}
	})
}

func TestFatalErrorDrainsTheOthers(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		fatal := insertFunc(func(context.Context, Batch) error {
			return &InsertError{Class: Fatal, Code: 60, Message: "Table reporting.a_g1 does not exist"}
		})
		var inFlight atomic.Int64
		slow := insertFunc(func(ctx context.Context, b Batch) error {
			inFlight.Add(1)
			if !sleep(ctx, time.Second) {
				return ctx.Err()
			}
			return nil
		})
		m := w.two(t, map[string]Inserter{"a": fatal, "b": slow}, nil).live(t.Context())
		defer m.kill()
		time.Sleep(10 * time.Second)
		w.send(t, "b", 100)
		time.Sleep(100 * time.Millisecond)
		w.send(t, "a", 100)
		<-m.ended
		if inFlight.Load() == 0 {
			t.Error("b was not inserting: the test shows nothing")
		}
		const want = "insert 50 rows of projection a: fatal error 60: Table reporting.a_g1 does not exist"
		if m.err == nil || !strings.Contains(m.err.Error(), want) || strings.Contains(m.err.Error(), "projection b") {
			t.Errorf("got  %v\nwant …%s", m.err, want)
		}
		var committed [2]int64
		for i, group := range []string{"g.a", "g.b"} {
			for _, c := range w.cluster.GroupInfo(group).Commits[group[2:]] {
				committed[i] += c.Offset
			}
		}
		if committed != [2]int64{0, 100} {
			t.Errorf("committed %v, want nothing of a and all of b", committed)
		}
	})
}

func TestRefresh(t *testing.T) {
	stale := &InsertError{Class: Refresh, Code: 16, Message: "No such column unit"}
	for name, c := range map[string]struct {
		answers []error // to inserts, in order; the rest succeeds
		refresh []error
		want    string
		calls   int
	}{
		"the schema fits after all": {answers: []error{stale}, calls: 1},
		"it does not":               {answers: []error{stale, stale}, calls: 1, want: "the table still does not fit after its schema was read again: refresh error 16: No such column unit"},
		"reading it fails for a while": {
			answers: []error{stale, stale}, refresh: []error{&InsertError{Class: Transient, Message: "connection refused"}}, calls: 2,
		},
		"it fits no more": {
			answers: []error{stale}, refresh: []error{&InsertError{Class: Fatal, Message: "column unit was dropped"}}, calls: 1,
			want: "fatal error: column unit was dropped",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				w.produce(10, plainEvent, 0)
				answers, refresh, calls := slices.Clone(c.answers), slices.Clone(c.refresh), 0
				next := func(from *[]error) error {
					if len(*from) == 0 {
						return nil
					}
					err := (*from)[0]
					*from = (*from)[1:]
					return err
				}
				m := w.newMember(testPlan(t), insertFunc(func(_ context.Context, b Batch) error {
					if err := next(&answers); err != nil {
						return err
					}
					w.store.insert(b)
					return nil
				}), func(_ *Config, _ *Projection, d *Deps) {
					d.Refresh = func(_ context.Context, projection string) error {
						if projection != "results" {
							t.Errorf("asked to refresh %q", projection)
						}
						calls++
						return next(&refresh)
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
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if calls != c.calls {
					t.Errorf("the schema was read %d times, want %d", calls, c.calls)
				}
			})
		})
	}
}

func TestUnknownErrorBecomesFatal(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(10, plainEvent, 0)
		start := time.Now()
		m := w.newMember(testPlan(t), insertFunc(func(context.Context, Batch) error {
			return &InsertError{Class: Unknown, Code: 4711, Message: "something new"}
		}), nil).live(t.Context())
		defer m.kill()
		<-m.ended
		took, limit := time.Since(start), testConfig().UnknownLimit
		if took < limit || took > limit+time.Minute {
			t.Errorf("stopped after %v, want after %v", took, limit)
		}
		if m.err == nil || !strings.Contains(m.err.Error(), "an error of no known class for 15m") || !strings.Contains(m.err.Error(), "something new") {
			t.Errorf("got %v", m.err)
		}
		if n := total(t, m.registry, "projector_insert_retries_total", "class", "unknown"); n < 100 {
			t.Errorf("only %v retries", n)
		}
	})
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

func TestRejectedRowAfterRow(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(100, plainEvent, 0)
		var calls atomic.Int64
		m := w.newMember(testPlan(t), insertFunc(func(context.Context, Batch) error {
			calls.Add(1)
			return &InsertError{Class: Rejected, Code: 469, Message: "Constraint c is violated"}
		}), func(c *Config, _ *Projection, _ *Deps) { c.StopRun = 5 }).live(t.Context())
		defer m.kill()
		<-m.ended
		if m.err == nil || !strings.Contains(m.err.Error(), "more than stop_run (5)") {
			t.Errorf("got %v", m.err)
		}
		if _, parked, _ := w.store.counts(); parked != 0 || len(w.committed()) != 0 {
			t.Errorf("parked %d, committed %v: want nothing", parked, w.committed())
		}
		if calls.Load() > 30 {
			t.Errorf("%d inserts before giving up", calls.Load())
		}
	})
}

func TestKafkaUnreachable(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(10, plainEvent, 0)
		way := &link{net: w.net}
		way.sever()
		m := w.newMember(testPlan(t), w.good(), func(_ *Config, _ *Projection, d *Deps) {
			d.Kafka = append(d.Kafka, kgo.Dialer(way.DialContext))
		}).live(t.Context())
		defer m.kill()
		time.Sleep(5 * time.Minute)
		if err := m.Ready(); err == nil {
			t.Error("ready without Kafka")
		}
		if err := m.Live(); err != nil {
			t.Errorf("Kafka is down, the process is not: %v", err)
		}
		way.heal()
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := m.Ready(); err != nil {
			t.Error(err)
		}
		way.sever()
		time.Sleep(2 * time.Minute)
		start := time.Now()
		err := m.end()
		if took := time.Since(start); took > 2*testConfig().LeaveTimeout {
			t.Errorf("leaving without a broker took %v", took)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

func TestCommitRefusedOnQuietTopic(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(10, plainEvent, 0)
		refusing := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.RebalanceInProgress, Count: 3})
		m := w.newMember(testPlan(t), w.good(), nil).live(t.Context())
		defer m.kill()
		time.Sleep(10 * time.Second)
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
