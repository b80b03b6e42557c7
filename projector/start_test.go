//go:build synctests

package projector

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

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
				pass(10 * time.Second)
				w.produce(50, plainEvent, 0, 1)
				pass(10 * time.Second)
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
		pass(10 * time.Second)
		w.produce(50, plainEvent, 0)
		pass(10 * time.Second)
		m.kill() // before its first commit of anything read
		<-m.ended
		w.produce(50, plainEvent, 0)

		m = w.newMember(testPlan(t), w.good(), latest).live(t.Context())
		defer m.kill()
		pass(20 * time.Second)
		if got := w.store.acknowledgedFrom(0, 50); got != 150 || w.store.has(0, 49) {
			t.Errorf("read from 50 to %d, want to 150", got)
		}
		// A partition that is added later has records before the group knows of it.
		if _, err := kadm.NewClient(w.producer).CreatePartitions(t.Context(), 1, testTopic); err != nil {
			t.Fatal(err)
		}
		w.producer.ForceMetadataRefresh()
		pass(time.Second)
		w.produce(50, plainEvent, 1)
		pass(10 * time.Minute)
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
