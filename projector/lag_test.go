//go:build synctests

package projector

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestLagGrowsDuringAnOutage: a scaler must see what piles up while ClickHouse takes nothing, from the first moment of a
// group on.
func TestLagGrowsDuringAnOutage(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.produce(100, plainEvent, 0, 1)
		v := &valve{next: w.good(), open: make(chan struct{})}
		m := w.newMember(testPlan(t), v, nil).live(t.Context())
		defer m.kill()
		lag := func() float64 { return total(t, m.registry, "projector_lag_records") }
		pass(time.Minute)
		if got := lag(); got != 200 {
			t.Errorf("lag %v of a group that has committed nothing, want 200", got)
		}
		w.produce(5000, plainEvent, 0)
		pass(time.Minute)
		if got := lag(); got != 5200 {
			t.Errorf("lag %v, want 5200", got)
		}
		if got := total(t, m.registry, "projector_drain_seconds"); got < 5200 {
			t.Errorf("%v s to work off what a lane that stands still is behind, want a long time", got)
		}
		if err := m.Live(); err != nil {
			t.Error(err)
		}
		close(v.open)
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if got := lag(); got != 0 {
			t.Errorf("lag %v, want 0", got)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestLagOfWhatIsAssignedDuringALook: a topic that comes to the lane while the leaders of others are asked was not
// asked for. That is no silence of its leader.
func TestLagOfWhatIsAssignedDuringALook(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.produce(3, plainEvent, 0)
		var ls lags
		ls.reset()
		own := func(topic string) { ls.begin(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(1)}}) }
		own(testTopic)
		w.cluster.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
			own("another")
			return nil, nil, false
		})
		if err := ls.look(t.Context(), w.producer); err != nil {
			t.Error(err)
		}
		if got := ls.behind(); got != 2 {
			t.Errorf("%d records behind, want 2", got)
		}
	})
}

// TestLeaderUnreachable: one partition that cannot be read turns the process unready, however well the others go, and
// makes nobody wait for theirs.
func TestLeaderUnreachable(t *testing.T) {
	for name, silent := range map[string]bool{"refuses": false, "is silent": true} {
		t.Run(name, func(t *testing.T) { leaderUnreachable(t, silent) })
	}
}

func leaderUnreachable(t *testing.T, silent bool) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, kfake.Ports(9092, 9093))
		defer w.close()
		for p := range int32(2) { // the group's coordinator may be either: move the partitions, not the group
			if err := w.cluster.MoveTopicPartition(testTopic, p, p); err != nil {
				t.Fatal(err)
			}
		}
		coordinator := w.cluster.CoordinatorFor(testGroup)
		away := w.cluster.ListenAddrs()[1-coordinator]
		way := &link{net: w.net, silent: silent}
		m := w.newMember(testPlan(t), w.good(), func(_ *Config, _ *Projection, d *Deps) {
			d.Kafka = append(d.Kafka, kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
				if address == away {
					return way.DialContext(ctx, network, address)
				}
				return w.net.DialContext(ctx, network, address)
			}))
		}).live(t.Context())
		defer m.kill()
		w.produce(10, plainEvent, 0, 1)
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if err := m.Ready(); err != nil {
			t.Fatal(err)
		}
		way.sever()
		var slowest time.Duration
		for range 60 {
			pass(3 * time.Second)
			sent := time.Now()
			w.produce(1, plainEvent, int32(coordinator))
			if err := w.awaitCommits(t.Context()); err != nil {
				t.Fatal(err)
			}
			slowest = max(slowest, time.Since(sent))
		}
		if limit := m.cfg.Batch.Delay + time.Second; slowest > limit {
			t.Errorf("a record of the other partition took %v, want at most %v", slowest, limit)
		}
		if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "cannot see the topics and their leaders in Kafka for ") {
			t.Errorf("ready without a partition's leader: %v", err)
		}
		if err := m.Live(); err != nil {
			t.Error(err)
		}
		way.heal()
		pass(2 * time.Minute)
		if err := m.Ready(); err != nil {
			t.Error(err)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
	})
}
