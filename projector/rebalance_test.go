//go:build synctests

package projector

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRevokeOutstaysBudget(t *testing.T) {
	bubble(t, 4, func(t *testing.T, w *world) {
		w.produce(200, plainEvent, 0, 1, 2, 3)
		stalled := &valve{next: w.good(), open: make(chan struct{})}
		a := w.newMember(testPlan(t), stalled, func(c *Config, p *Projection, d *Deps) {
			ids("a")(c, p, d)
			c.Batch.Rows = 10_000 // one cut holds records of every partition
		}).live(t.Context())
		defer a.kill()
		pass(3 * time.Second)
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

// TestRevokeWaitsForTheFlight: a healthy member that gives partitions back has committed what it read, and the next
// owner begins there.
func TestRevokeWaitsForTheFlight(t *testing.T) {
	bubble(t, 4, func(t *testing.T, w *world) {
		slow := func(c *Config, _ *Projection, _ *Deps) { c.Batch.Rows, c.Batch.Delay = 10_000, time.Second }
		a := w.newMember(testPlan(t), w.slow(400*time.Millisecond), slow).live(t.Context())
		defer a.kill()
		feeding, fed := context.WithCancel(t.Context())
		var feeder sync.WaitGroup
		feeder.Go(func() {
			for sleep(feeding, 50*time.Millisecond) {
				w.produce(2, plainEvent, 0, 1, 2, 3)
			}
		})
		pass(3 * time.Second)
		b := w.newMember(testPlan(t), w.slow(400*time.Millisecond), slow).live(t.Context())
		defer b.kill()
		if _, err := w.cluster.WaitGroupInfo(t.Context(), testGroup, balanced(2, 4)); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Second)
		if err := a.end(); err != nil { // and once more, to b alone
			t.Error(err)
		}
		pass(3 * time.Second)
		fed()
		feeder.Wait()
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
		if revoked := total(t, a.registry, "projector_partitions_revoked_total"); revoked < 4 {
			t.Errorf("%v partitions were revoked, want those that b took and those at the end", revoked)
		}
		if _, _, repeated := w.store.counts(); repeated != 0 {
			t.Errorf("%d records were inserted twice in a rebalance of healthy members", repeated)
		}
		w.mustBeSound(t)
	})
}

// TestLostPartitionsAreNotCommitted: a member that is expelled while its insert hangs must keep its old offsets to
// itself, even after it has joined again: the next owner is ahead of it.
func TestLostPartitionsAreNotCommitted(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.produce(300, plainEvent, 0, 1)
		way := &link{net: w.net}
		hung := &valve{next: w.good(), open: make(chan struct{})}
		a := w.newMember(testPlan(t), hung, func(c *Config, p *Projection, d *Deps) {
			ids("a")(c, p, d)
			c.Batch.Rows = 10_000
			d.Kafka = append(d.Kafka, kgo.Dialer(way.DialContext))
		}).live(t.Context())
		defer a.kill()
		pass(3 * time.Second)
		way.sever()
		b := w.newMember(testPlan(t), w.good(), ids("b")).live(t.Context())
		defer b.kill()
		if err := w.awaitCommits(t.Context()); err != nil { // all of it by b, after a's session has expired
			t.Fatal(err)
		}
		way.heal()
		if _, err := w.cluster.WaitGroupInfo(t.Context(), testGroup, balanced(2, 2)); err != nil {
			t.Fatal(err)
		}
		close(hung.open)
		pass(time.Minute)
		if err := errors.Join(a.end(), b.end()); err != nil {
			t.Error(err)
		}
		if n := total(t, a.registry, "projector_partitions_lost_total"); n != 2 {
			t.Errorf("a lost %v partitions, want 2", n)
		}
		if _, _, repeated := w.store.counts(); repeated == 0 {
			t.Error("a's hanging insert never succeeded: the test shows nothing")
		}
		for _, c := range w.check.seen {
			if strings.HasPrefix(c.member, "a") {
				t.Errorf("a committed offset %d of partition %d", c.offset, c.partition)
			}
		}
		w.mustBeSound(t)
	})
}

// TestExpelledUnnoticed: the broker expels a member, another one takes over and is ahead, and the member learns it
// from a refused commit alone. franz-go then joins again without a word about lost partitions, and a commit of what
// is still due would be accepted: the broker looks at who commits, not at who owns the partition.
func TestExpelledUnnoticed(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.produce(300, plainEvent, 0, 1)
		hook := new(clientHook)
		stalled := &valve{next: w.good(), open: make(chan struct{})}
		a := w.newMember(testPlan(t), stalled, func(c *Config, p *Projection, d *Deps) {
			ids("a")(c, p, d)
			d.Kafka = append(d.Kafka, kgo.WithHooks(hook))
			c.Batch.Rows = 10_000
			// No heartbeat tells it first.
			c.SessionTimeout, c.HeartbeatInterval, c.InsertTimeout = time.Minute, 20*time.Second, 50*time.Second
			c.RebalanceTimeout, c.RevokeBudget = time.Minute, 30*time.Second
		}).live(t.Context())
		defer a.kill()
		pass(3 * time.Second)
		all := map[string][]int32{testTopic: {0, 1}}
		hook.client.Load().PauseFetchPartitions(all) // so that what it has read stays behind what b reads
		w.produce(300, plainEvent, 0, 1)
		expel := kmsg.NewPtrLeaveGroupRequest()
		expel.Group = testGroup
		expel.Members = []kmsg.LeaveGroupRequestMember{{MemberID: w.cluster.GroupInfo(testGroup).Members[0].MemberID}}
		if _, err := expel.RequestWith(t.Context(), w.producer); err != nil {
			t.Fatal(err)
		}
		b := w.newMember(testPlan(t), w.good(), ids("b")).live(t.Context())
		defer b.kill()
		if err := w.awaitCommits(t.Context()); err != nil { // all of it by b
			t.Fatal(err)
		}
		close(stalled.open) // a's rows are acknowledged, and its commit refused
		pass(20 * time.Second)
		if got := w.committed(); !maps.Equal(got, w.end) {
			t.Errorf("committed was %v and is %v", w.end, got)
		}
		if n := total(t, a.registry, "projector_offsets_forgotten_total"); n != 2 {
			t.Errorf("a gave %v offsets up, want those of both partitions", n)
		}
		if n := total(t, a.registry, "projector_partitions_lost_total"); n != 2 { // nothing that it could commit is waited for
			t.Errorf("a lost %v partitions, want 2", n)
		}
		hook.client.Load().ResumeFetchPartitions(all)
		w.produce(100, plainEvent, 0, 1)
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := w.cluster.WaitGroupInfo(t.Context(), testGroup, balanced(2, 2)); err != nil { // it is back
			t.Fatal(err)
		}
		if err := errors.Join(a.end(), b.end()); err != nil {
			t.Error(err)
		}
		w.mustBeSound(t)
	})
}

// TestMovedPartitionIsReadSoon: a member asks a broker for one thing at a time. When it is given a partition while it
// waits for records of others, it must not wait long for those.
func TestMovedPartitionIsReadSoon(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		a := w.newMember(testPlan(t), w.good(), ids("a")).live(t.Context())
		defer a.kill()
		pass(time.Second)
		for i := range 10 { // wherever in its wait a is
			b := w.newMember(testPlan(t), w.good(), ids("b")).live(t.Context())
			info, err := w.cluster.WaitGroupInfo(t.Context(), testGroup, balanced(2, 2))
			if err != nil {
				t.Fatal(err)
			}
			var moving []int32
			for _, m := range info.Members {
				if strings.HasPrefix(m.MemberID, "b") {
					moving = m.Assignment[testTopic]
				}
			}
			pass(10*time.Second + time.Duration(i)*530*time.Millisecond)
			if err := b.end(); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			w.produce(1, plainEvent, moving...)
			if err := w.awaitCommits(t.Context()); err != nil {
				t.Fatal(err)
			}
			// A heartbeat learns of the rebalance, and one wait may have just begun.
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("a record of a moved partition waited for %v", took)
			}
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}
