//go:build synctests

package projector

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A poll that finds records ready may have to wait for a rebalance callback, and they may be gone when it is its turn:
// franz-go discards them when a leader moves. It then returns nothing at all, and leaves the bracket open: the open cut
// would be sealed twice if a callback came.
func TestFetchReturnsInsideTheBracket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, kfake.Ports(9092, 9093))
		defer w.close()
		slow := func(c *Config, _ *Projection, _ *Deps) {
			c.RevokeBudget, c.RebalanceTimeout = 20*time.Second, 40*time.Second
		}
		m := w.newMember(testPlan(t), w.good(), slow)
		l := m.lanes[0]
		if err := l.start(); err != nil {
			t.Fatal(err)
		}
		defer l.stop(t.Context())
		pass(5 * time.Second)

		// The revoke waits for a cut that is never settled, and the poll for the revoke.
		flying := newCut(l.projection.Plan)
		flying.begin(1, time.Now())
		flying.slots = []slot{{topic: testTopic, partition: 0}, {topic: testTopic, partition: 1}}
		l.ledger.take(flying)
		fetched := make(chan kgo.Fetches)
		go func() { fetched <- l.fetch(t.Context(), time.Time{}, 100) }()
		other := w.newMember(testPlan(t), w.good(), slow).live(t.Context())
		defer other.kill()
		pass(2 * time.Second)
		w.produce(10, plainEvent, 0, 1)
		pass(time.Second)
		l.client.PauseFetchTopics(testTopic) // nothing comes in place of what is discarded
		for p := range int32(2) {
			if err := w.cluster.MoveTopicPartition(testTopic, p, 1-w.cluster.LeaderFor(testTopic, p)); err != nil {
				t.Fatal(err)
			}
		}
		l.client.ForceMetadataRefresh()
		if n := (<-fetched).NumRecords(); n > 0 {
			t.Fatalf("fetched %d records: the test did not have them discarded", n)
		}

		// The end of the other member is a rebalance, which has to wait for AllowRebalance.
		had := total(t, m.registry, "projector_partitions_assigned_total")
		if err := other.end(); err != nil {
			t.Error(err)
		}
		pass(10 * time.Second)
		if n := total(t, m.registry, "projector_partitions_assigned_total"); n != had {
			t.Error("a rebalance went on while the poll loop was in the bracket")
		}
		l.client.AllowRebalance()
		pass(10 * time.Second)
		if n := total(t, m.registry, "projector_partitions_assigned_total"); n == had {
			t.Error("the rebalance did not go on afterwards")
		}
	})
}
