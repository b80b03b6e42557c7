//go:build synctests

package projector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/mapping"
)

// bounded makes a member read up to the offsets given.
func bounded(until map[int32]int64) func(*Config, *Projection, *Deps) {
	return func(_ *Config, p *Projection, _ *Deps) { p.Until = map[string]map[int32]int64{testTopic: until} }
}

// TestBoundedRunEnds: it reads what lies below its bounds and nothing else, commits it, and returns by itself, however
// long the database takes for the last of it.
func TestBoundedRunEnds(t *testing.T) {
	bubble(t, 4, func(t *testing.T, w *world) {
		w.produce(300, plainEvent, 0, 1, 2)
		until := map[int32]int64{0: 250, 1: 300, 2: 0, 3: 0}
		v := &valve{next: w.good(), open: make(chan struct{})}
		m := w.newMember(testPlan(t), v, bounded(until)).live(t.Context())
		defer m.kill()
		pass(10 * testConfig().DrainTimeout)
		close(v.open)
		<-m.ended
		if m.err != nil {
			t.Fatal(m.err)
		}
		if inserted, _, repeated := w.store.counts(); inserted != 550 || repeated != 0 || w.store.has(0, 250) {
			t.Errorf("inserted %d, %d of them again; want 550 and none", inserted, repeated)
		}
		if got, want := w.committed(), map[int32]int64{0: 250, 1: 300}; !maps.Equal(got, want) {
			t.Errorf("committed %v, want %v", got, want)
		}
		w.mustBeSound(t)

		// From there to a further end: only what is left.
		until[0], until[2] = 260, 10
		m = w.newMember(testPlan(t), w.good(), bounded(until)).live(t.Context())
		defer m.kill()
		<-m.ended
		if inserted, _, repeated := w.store.counts(); m.err != nil || inserted != 570 || repeated != 0 {
			t.Errorf("inserted %d, %d of them again: %v; want 570 and none", inserted, repeated, m.err)
		}
		w.mustBeSound(t)
	})
}

// TestBoundedRunThatCannotCommit: everything is acknowledged and nothing committed. That is no success: who asks the
// group later is told that the run has not come to its end.
func TestBoundedRunThatCannotCommit(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(100, plainEvent, 0)
		w.cluster.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			req := r.(*kmsg.OffsetCommitRequest)
			resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
			for _, t := range req.Topics {
				topic := kmsg.OffsetCommitResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
				for _, p := range t.Partitions {
					topic.Partitions = append(topic.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: kerr.GroupAuthorizationFailed.Code})
				}
				resp.Topics = append(resp.Topics, topic)
			}
			return resp, nil, true
		})
		m := w.newMember(testPlan(t), w.good(), bounded(map[int32]int64{0: 100})).live(t.Context())
		defer m.kill()
		<-m.ended
		if inserted, _, _ := w.store.counts(); inserted != 100 || !errors.Is(m.err, kerr.GroupAuthorizationFailed) {
			t.Errorf("inserted %d, ended with %v; want 100, and why nothing is committed", inserted, m.err)
		}
	})
}

// TestBoundedRunThatWasExpelled: everything is read, and before it is committed the group takes the partition away.
func TestBoundedRunThatWasExpelled(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(5, plainEvent, 0)
		way := &link{net: w.net}
		hung := &valve{next: w.good(), open: make(chan struct{})}
		m := w.newMember(testPlan(t), hung, func(c *Config, p *Projection, d *Deps) {
			bounded(map[int32]int64{0: 5})(c, p, d)
			d.Kafka = append(d.Kafka, kgo.Dialer(way.DialContext))
		}).live(t.Context())
		defer m.kill()
		pass(10 * time.Second)
		way.sever()
		pass(2 * time.Minute) // its session expires
		way.heal()
		pass(time.Minute)
		close(hung.open)
		<-m.ended
		if inserted, _, _ := w.store.counts(); inserted != 5 || !errors.Is(m.err, ErrShared) || len(w.committed()) != 0 {
			t.Errorf("inserted %d, committed %v, ended with %v; want 5, nothing, and that the partition was another's", inserted, w.committed(), m.err)
		}
	})
}

// TestBoundedRunBeginsWhereItIsTold: whatever the group has committed before, in either direction, and commits that
// before it reads anything, with the note.
func TestBoundedRunBeginsWhereItIsTold(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.produce(100, plainEvent, 0, 1, 2)
		m := w.newMember(testPlan(t), w.good(), bounded(map[int32]int64{0: 50, 1: 50, 2: 0})).live(t.Context())
		<-m.ended
		m.kill()
		if got, want := w.committed(), map[int32]int64{0: 50, 1: 50}; m.err != nil || !maps.Equal(got, want) {
			t.Fatalf("committed %v, want %v: %v", got, want, m.err)
		}
		w.check.last = map[string]int64{} // it may go back
		var commits []string
		w.cluster.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			for _, p := range r.(*kmsg.OffsetCommitRequest).Topics[0].Partitions {
				commits = append(commits, fmt.Sprintf("%d@%d %s", p.Partition, p.Offset, *p.Metadata))
			}
			return nil, nil, false
		})
		m = w.newMember(testPlan(t), w.good(), func(_ *Config, p *Projection, _ *Deps) {
			bounded(map[int32]int64{0: 40, 1: 90, 2: 70})(nil, p, nil)
			p.From = map[string]map[int32]int64{testTopic: {0: 20, 1: 80, 2: 70}}
			p.OnCommit = func(req *kmsg.OffsetCommitRequest) error {
				for i := range req.Topics[0].Partitions {
					req.Topics[0].Partitions[i].Metadata = new("a note")
				}
				return nil
			}
		}).live(t.Context())
		defer m.kill()
		<-m.ended
		if m.err != nil {
			t.Fatal(m.err)
		}
		if inserted, _, repeated := w.store.counts(); inserted != 110 || repeated != 20 || w.store.has(1, 79) || !w.store.has(1, 80) {
			t.Errorf("inserted %d, %d of them again; want 110 and 20", inserted, repeated)
		}
		if first := slices.Sorted(slices.Values(commits[:3])); !slices.Equal(first, []string{"0@20 a note", "1@80 a note", "2@70 a note"}) {
			t.Errorf("the first commits are %v", first)
		}
		if got, want := w.committed(), map[int32]int64{0: 40, 1: 90, 2: 70}; !maps.Equal(got, want) {
			t.Errorf("committed %v, want %v", got, want)
		}
	})
}

// TestBoundedRunWaitsForTheDatabase: all is read, and the last batch takes longer than any loop may be silent for.
func TestBoundedRunWaitsForTheDatabase(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(5, plainEvent, 0)
		v := &valve{next: w.good(), open: make(chan struct{})}
		m := w.newMember(testPlan(t), v, bounded(map[int32]int64{0: 5})).live(t.Context())
		defer m.kill()
		pass(3 * testConfig().StuckAfter)
		close(v.open)
		<-m.ended
		if inserted, _, _ := w.store.counts(); m.err != nil || inserted != 5 {
			t.Errorf("inserted %d of 5: %v", inserted, m.err)
		}
	})
}

// TestBoundedRunOverAGap: the last record below a bound need not exist.
func TestBoundedRunOverAGap(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(100, plainEvent, 0)
		if err := w.cluster.DeleteRecords(testTopic, 0, 60); err != nil {
			t.Fatal(err)
		}
		m := w.newMember(testPlan(t), w.good(), bounded(map[int32]int64{0: 50})).live(t.Context())
		defer m.kill()
		<-m.ended
		if inserted, _, _ := w.store.counts(); m.err != nil || inserted != 0 {
			t.Errorf("inserted %d: %v", inserted, m.err)
		}
	})
}

// TestBoundedRunIsAlone: a second member would take a part of the work, with bounds of its own.
func TestBoundedRunIsAlone(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.produce(100, plainEvent, 0, 1)
		v := &valve{next: w.good(), open: make(chan struct{})}
		until := bounded(map[int32]int64{0: 1000, 1: 1000})
		first := w.newMember(testPlan(t), w.good(), until).live(t.Context())
		defer first.kill()
		if err := w.store.await(t.Context(), w.acknowledgedAll); err != nil {
			t.Fatal(err)
		}
		second := w.newMember(testPlan(t), v, until).live(t.Context())
		defer second.kill()
		<-second.ended
		if !errors.Is(second.err, ErrShared) {
			t.Errorf("the second member ended with %v", second.err)
		}
		<-first.ended
		if !errors.Is(first.err, ErrShared) {
			t.Errorf("the first member ended with %v", first.err)
		}
		w.mustBeSound(t)
	})
}

// TestOwnAppend: records that carry events, a lineage that is not theirs, and a note beside each commit.
func TestOwnAppend(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(20, func(p int32, o int64) []byte { return append([]byte("envelope "), plainEvent(p, o)...) }, 0)
		var origins, notes []string
		ins := insertFunc(func(ctx context.Context, b Batch) error {
			for i := b.From; i < b.To; i++ {
				at := b.Rows.Lineage(i)
				origins = append(origins, fmt.Sprintf("%s %s/%d@%d", at.Origin, at.Topic, at.Partition, at.Offset))
			}
			return nil
		})
		m := w.newMember(testPlan(t), ins, func(_ *Config, p *Projection, _ *Deps) {
			plan := p.Plan
			bounded(map[int32]int64{0: 20})(nil, p, nil)
			p.Append = func(rows *mapping.Rows, r *kgo.Record) error {
				if r.Offset%2 == 1 {
					return mapping.ErrIgnored
				}
				return plan.Append(rows, r.Value[len("envelope "):], mapping.Lineage{Topic: "first", Partition: 7, Offset: 100 + r.Offset, Origin: "replay:1"})
			}
			p.OnCommit = func(req *kmsg.OffsetCommitRequest) error {
				req.Topics[0].Partitions[0].Metadata = new("a note")
				return nil
			}
		})
		w.cluster.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
			notes = append(notes, *r.(*kmsg.OffsetCommitRequest).Topics[0].Partitions[0].Metadata)
			return nil, nil, false
		})
		l := m.live(t.Context())
		defer l.kill()
		<-l.ended
		if l.err != nil || len(origins) != 10 || origins[9] != "replay:1 first/7@118" {
			t.Errorf("rows %v: %v", origins, l.err)
		}
		if len(notes) == 0 || notes[0] != "a note" {
			t.Errorf("notes beside the commits: %q", notes)
		}
	})
}

// TestRejectedRecordOfAReplacedTopic: what lies at the place of a rejected row is another record now. It is not parked
// in its stead.
func TestRejectedRecordOfAReplacedTopic(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(10, plainEvent, 0)
		w.values[place{0, 4}] = event(4, 2, "another") // as Records sees it
		bad := insertFunc(func(ctx context.Context, b Batch) error {
			for i := b.From; i < b.To; i++ {
				if o := b.Rows.Lineage(i).Offset; o == 4 || o == 6 {
					return &InsertError{Class: Rejected, Code: 469, Message: "constraint"}
				}
			}
			w.store.insert(b)
			return nil
		})
		m := w.newMember(testPlan(t), bad, nil).live(t.Context())
		defer m.kill()
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
		if l := w.store.letters[place{0, 4}]; !l.Gone || l.Value != nil || l.Code != 469 || l.Projection != "results" ||
			l.Timestamp.UnixMilli() != w.produced[place{0, 4}].UnixMilli() || l.Error.Reason != "the event is gone, its row was id=4 of version 1: constraint" {
			t.Errorf("the letter of the replaced record is %+v", l)
		}
		if l := w.store.letters[place{0, 6}]; l.Gone || string(l.Value) != string(plainEvent(0, 6)) || l.Projection != "results" {
			t.Errorf("the letter of the other one is %+v", l)
		}
	})
}

// TestBoundedRunWhoseRecordsExpire: retention may remove what lies below a bound before it is read. It is counted and
// passed, whether the log goes on behind the bound or not, and commits say that the run has come to its end.
func TestBoundedRunWhoseRecordsExpire(t *testing.T) {
	for name, end := range map[string]int{"all there is": 100, "the log goes on": 110} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				w.produce(50, plainEvent, 0)
				way := &link{net: w.net}
				m := w.newMember(testPlan(t), w.good(), func(c *Config, p *Projection, d *Deps) {
					bounded(map[int32]int64{0: 100})(c, p, d)
					d.Kafka = append(d.Kafka, kgo.Dialer(way.DialContext))
				}).live(t.Context())
				defer m.kill()
				if err := w.awaitCommits(t.Context()); err != nil {
					t.Fatal(err)
				}
				way.sever()
				w.produce(end-50, plainEvent, 0)
				if err := w.cluster.DeleteRecords(testTopic, 0, 100); err != nil {
					t.Fatal(err)
				}
				way.heal()
				pass(time.Minute)
				select {
				case <-m.ended:
				default:
					t.Fatal("it waits for records that are gone")
				}
				if inserted, _, _ := w.store.counts(); m.err != nil || inserted != 50 {
					t.Errorf("inserted %d: %v; want 50", inserted, m.err)
				}
				if got := w.committed(); got[0] != 100 {
					t.Errorf("committed %v, want 100", got)
				}
				if gone := total(t, m.registry, "projector_expired_records_total"); gone != 50 {
					t.Errorf("counted %v as expired, want 50", gone)
				}
			})
		})
	}
}

// TestBoundedRunOfAReplacedTopic: the bounds are of the topic that was deleted, and say nothing of the one in its place.
func TestBoundedRunOfAReplacedTopic(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(50, plainEvent, 0)
		m := w.newMember(testPlan(t), w.good(), bounded(map[int32]int64{0: 100})).live(t.Context())
		defer m.kill()
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.cluster.DeleteTopic(testTopic), w.cluster.CreateTopic(testTopic, 1, nil)); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		select {
		case <-m.ended:
		default:
			t.Fatal("it waits for records of the topic before")
		}
		if !errors.Is(m.err, kerr.UnknownTopicID) {
			t.Errorf("it ended with %v", m.err)
		}
	})
}
