//go:build synctests

package projector

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The one sentence to test for ever: an offset N committed for a partition implies that every record below N is
// acknowledged by ClickHouse or acknowledged in the dead-letter topic.

// hazards is an Inserter with a database behind it that does everything a database may do.
type hazards struct {
	store   *store
	stalled *atomic.Bool // answers nothing while true
}

func (h *hazards) Insert(ctx context.Context, b Batch) error {
	latency := time.Duration(rand.IntN(150)) * time.Millisecond
	if h.stalled.Load() || rand.IntN(50) == 0 {
		latency = time.Hour
	}
	bad := refuse(b)
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		if bad == nil && rand.IntN(2) == 0 {
			h.store.insert(b) // stored, but nobody heard the answer
		}
		return ctx.Err()
	}
	if bad != nil {
		return bad
	}
	switch rand.IntN(12) {
	case 0:
		return errors.New("connection reset") // never reached the server
	case 1:
		h.store.insert(b) // stored, then the answer was lost
		return &InsertError{Class: Transient, Code: 209, Message: "timeout"}
	case 2:
		return &InsertError{Class: Transient, Code: 241, Message: "memory limit exceeded"}
	}
	h.store.insert(b)
	return nil
}

func (*hazards) Close() error { return nil }

// refuse returns what ClickHouse says to a batch with a row that it does not take.
func refuse(b Batch) error {
	for i := b.From; i < b.To; i++ {
		if at := b.Rows.Lineage(i); rejected(at.Partition, at.Offset) {
			return &InsertError{Class: Rejected, Code: 469, Message: "constraint violated"}
		}
	}
	return nil
}

// rejected names the records that ClickHouse refuses, poisoned those that cannot be mapped.
func rejected(p int32, o int64) bool { return (int64(p)*31+o)%811 == 7 }
func poisoned(p int32, o int64) bool { return (int64(p)*17+o)%97 == 3 }

// unsure is a dead-letter store that fails now and then, before and after storing.
type unsure struct{ *store }

func (u unsure) Park(ctx context.Context, letters []Letter) error {
	switch rand.IntN(6) {
	case 0:
		return errors.New("not enough replicas")
	case 1:
		_ = u.store.Park(ctx, letters)
		return errors.New("request timed out")
	}
	return u.store.Park(ctx, letters)
}

// hazardousWorld has records of every kind and a broker that refuses some commits.
func hazardousWorld(t *testing.T, partitions int32, perPartition int) *world {
	w := newWorld(t, partitions)
	all := make([]int32, partitions)
	for p := range all {
		all[p] = int32(p)
	}
	w.produce(perPartition, func(p int32, o int64) []byte {
		if poisoned(p, o) {
			return []byte(`{"id": oops`)
		}
		return event(uint64(p)<<32|uint64(o), 1, "x")
	}, all...)
	w.faults = w.cluster.Fault(
		kfake.Fault{
			Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.RebalanceInProgress, Count: -1,
			When: func(kmsg.Request) bool { return rand.IntN(20) == 0 },
		},
		kfake.Fault{
			Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.RequestTimedOut, Count: -1, // the commit happens all the same
			When: func(kmsg.Request) bool { return rand.IntN(20) == 0 },
		},
	)
	return w
}

// chaos runs three members while they crash, leave, join, lose their session and outstay their revokes, until enough
// holds. wrap may put itself between a lane and its inserter. It returns what the members counted.
func chaos(t *testing.T, w *world, wrap func(Inserter, *clientHook) Inserter, enough func() bool) map[string]float64 {
	plan := testPlan(t)
	var mu sync.Mutex
	sums := map[string]float64{}
	live := func(ctx context.Context) {
		way := &link{net: w.net}
		hook := new(clientHook)
		sick := new(hazards)
		sick.store, sick.stalled = w.store, new(atomic.Bool)
		m := w.newMember(plan, wrap(sick, hook), func(_ *Config, _ *Projection, d *Deps) {
			d.Kafka = append(d.Kafka, kgo.Dialer(way.DialContext), kgo.WithHooks(hook))
			d.DeadLetters = unsure{w.store}
		})
		soft, drain := context.WithCancel(ctx)
		hard, crash := context.WithCancel(context.WithoutCancel(t.Context()))
		defer crash()
		var wg sync.WaitGroup
		wg.Go(func() {
			pause(soft, 1000, 9000) // longer, most of the time, than a dead member holds up a rebalance
			switch rand.IntN(4) {
			case 0: // leaves
			case 1:
				crash()
			case 2: // cut off from Kafka for longer than a session, with ClickHouse in reach
				way.sever()
				pause(soft, 5000, 9000)
				way.heal()
				pause(soft, 500, 2000)
			case 3: // ClickHouse hangs for longer than a revoke may take, and a member joins meanwhile
				sick.stalled.Store(true)
				pause(soft, 1000, 4000)
				sick.stalled.Store(false)
				pause(soft, 500, 2000)
			}
			drain()
		})
		if err := m.Run(soft, hard); err != nil && hard.Err() == nil && !errors.Is(err, errDrainTimeout) {
			t.Errorf("Run: %v", err)
		}
		drain()
		wg.Wait()
		mu.Lock()
		defer mu.Unlock()
		sums["lives"]++
		for _, name := range []string{
			"projector_partitions_revoked_total", "projector_partitions_lost_total", "projector_offsets_forgotten_total",
			"projector_insert_retries_total", "projector_letters_total",
		} {
			sums[name] += total(t, m.registry, name)
		}
	}
	members, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for members.Err() == nil {
				live(members)
			}
		})
	}
	if err := w.store.await(t.Context(), enough); err != nil {
		t.Errorf("still not done after %v of the bubble's clock: %v", patience, err)
	}
	stop()
	wg.Wait()
	return sums
}

// finish lets one healthy member bring the commits to the end of the topic.
func finish(t *testing.T, w *world) {
	w.faults.Remove()
	calm := w.newMember(testPlan(t), insertFunc(func(_ context.Context, b Batch) error {
		if err := refuse(b); err != nil {
			return err
		}
		w.store.insert(b)
		return nil
	}), nil)
	soft, drain := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.awaitCommits(soft); err != nil {
			t.Errorf("the commits did not reach the end of the topic: %v", err)
		}
		drain()
	})
	if err := calm.Run(soft, t.Context()); err != nil {
		t.Errorf("calm member: %v", err)
	}
	wg.Wait()
}

func TestCommitInvariant(t *testing.T) {
	const partitions, perPartition = 8, 8000
	synctest.Test(t, func(t *testing.T) {
		w := hazardousWorld(t, partitions, perPartition)
		defer w.close()
		sums := chaos(t, w, func(i Inserter, _ *clientHook) Inserter { return i }, w.acknowledgedAll)
		finish(t, w)
		inserted, parked, repeated := w.store.counts()
		t.Logf("inserted %d, parked %d, inserted again %d, commits seen %d, %v", inserted, parked, repeated, w.check.commits, sums)
		w.mustBeSound(t)
		if got := w.committed(); !maps.Equal(got, w.end) {
			t.Errorf("committed at the end %v, want %v", got, w.end)
		}
		for at := range w.values {
			_, letter := w.store.letters[at]
			if bad := poisoned(at.partition, at.offset) || rejected(at.partition, at.offset); bad != letter || bad == (w.store.rows[at] > 0) {
				t.Errorf("record %v: bad %v, but parked %v and inserted %d times", at, bad, letter, w.store.rows[at])
			}
		}
		// A quiet run would prove nothing: each hazard must have happened.
		for name, n := range sums {
			if n == 0 {
				t.Errorf("%s is 0: the test did not exercise it", name)
			}
		}
	})
}

// clientHook learns the client of the one lane of a member.
type clientHook struct{ client atomic.Pointer[kgo.Client] }

func (h *clientHook) OnNewClient(cl *kgo.Client) { h.client.Store(cl) }

// reversed commits the offsets of the rows before it inserts them: the mistake that the invariant forbids.
type reversed struct {
	Inserter
	hook *clientHook
}

func (r *reversed) Insert(ctx context.Context, b Batch) error {
	offsets := map[string]map[int32]kgo.EpochOffset{testTopic: {}}
	for i := b.From; i < b.To; i++ {
		at := b.Rows.Lineage(i)
		offsets[testTopic][at.Partition] = kgo.EpochOffset{Epoch: -1, Offset: at.Offset + 1}
	}
	commit, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	r.hook.client.Load().CommitOffsetsSync(commit, offsets, nil)
	return r.Inserter.Insert(ctx, b)
}

// TestCommitInvariantCanFail runs the same chaos over the reversed program: a check that cannot fail proves nothing.
func TestCommitInvariantCanFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := hazardousWorld(t, 4, 400)
		defer w.close()
		chaos(t, w, func(i Inserter, h *clientHook) Inserter { return &reversed{i, h} }, func() bool { return w.check.found() > 0 })
		t.Logf("%d early commits of %d, the first: %s", len(w.check.early), w.check.commits, w.check.early[0])
	})
}

// pause waits for a random time between from and to milliseconds of the bubble's clock, or until ctx is done.
func pause(ctx context.Context, from, to int) {
	select {
	case <-time.After(time.Duration(from+rand.IntN(to-from)) * time.Millisecond):
	case <-ctx.Done():
	}
}
