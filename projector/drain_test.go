//go:build synctests

package projector

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDrain(t *testing.T) {
	t.Run("mid-insert, healthy: everything once", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, w *world) {
			w.produce(1000, plainEvent, 0, 1, 2)
			m := w.newMember(testPlan(t), w.slow(500*time.Millisecond), nil).live(t.Context())
			defer m.kill()
			pass(2200 * time.Millisecond)
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
	t.Run("the last commit is refused a few times", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, w *world) {
			w.produce(50, plainEvent, 0)
			w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.RebalanceInProgress, Count: 3})
			m := w.newMember(testPlan(t), w.slow(time.Second), nil).live(t.Context())
			defer m.kill()
			pass(800 * time.Millisecond)
			if err := m.end(); err != nil {
				t.Error(err)
			}
			if got := w.committed(); !maps.Equal(got, w.end) {
				t.Errorf("committed %v, want %v", got, w.end)
			}
			w.mustBeSound(t)
		})
	})
	t.Run("the drain timeout passes", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, w *world) {
			w.produce(150, plainEvent, 0)
			m := w.newMember(testPlan(t), w.slow(time.Hour), nil).live(t.Context())
			defer m.kill()
			pass(time.Second)
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
	t.Run("another member holds up the rebalance", func(t *testing.T) {
		bubble(t, 2, func(t *testing.T, w *world) {
			w.produce(10, plainEvent, 0, 1)
			sluggish, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.net.DialContext), kgo.ConsumerGroup(testGroup),
				kgo.ConsumeTopics(testTopic), kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.BlockRebalanceOnPoll(), kgo.RebalanceTimeout(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			defer sluggish.CloseAllowingRebalance()
			sluggish.PollRecords(t.Context(), 1) // and no AllowRebalance
			m := w.newMember(testPlan(t), w.good(), nil).live(t.Context())
			defer m.kill()
			pass(2 * time.Second)
			if state := w.cluster.GroupInfo(testGroup).State; state != "PreparingRebalance" {
				t.Fatalf("the group is %s", state)
			}
			start := time.Now()
			if err := m.end(); err != nil {
				t.Error(err)
			}
			if took, limit := time.Since(start), testConfig().LeaveTimeout+100*time.Millisecond; took > limit {
				t.Errorf("took %v, more than %v, with nothing to do", took, limit)
			}
			// One that went without a word would hold up every rebalance until its session is over.
			if n := len(w.cluster.GroupInfo(testGroup).Members); n != 1 {
				t.Errorf("the group has %d members, want the sluggish one alone", n)
			}
		})
	})
	t.Run("hard stop", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, w *world) {
			w.produce(150, plainEvent, 0)
			m := w.newMember(testPlan(t), w.slow(time.Hour), nil).live(t.Context())
			pass(time.Second)
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
			pass(10 * time.Second)
			m.kill()
			<-m.ended
			if m.err != nil {
				t.Error(m.err)
			}
		})
	})
}
