//go:build synctests

package projector

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestWatchdog: a loop that hangs and answers to nothing ends the process, so that another one gets its partitions.
func TestWatchdog(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(10, plainEvent, 0)
		dead := make(chan struct{})
		defer close(dead)
		start := time.Now()
		m := w.newMember(testPlan(t), insertFunc(func(context.Context, Batch) error {
			<-dead // whatever its context says
			return nil
		}), nil).live(t.Context())
		<-m.ended
		took, limit := time.Since(start), testConfig().StuckAfter
		if took < limit || took > 2*limit+testConfig().DrainTimeout {
			t.Errorf("ended after %v, want soon after %v", took, limit)
		}
		if m.err == nil || !strings.Contains(m.err.Error(), "a part of it is dead: projection results lane 0: the sender has not moved for") {
			t.Errorf("got %v", m.err)
		}
		if got := w.committed(); len(got) != 0 {
			t.Errorf("committed %v", got)
		}
		m.kill()
	})
}

// TestClosedClient: a client that somebody has closed reads nothing any more. The lane makes a new one.
func TestClosedClient(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		member := w.newMember(testPlan(t), w.good(), nil)
		m := member.live(t.Context())
		defer m.kill()
		w.produce(10, plainEvent, 0)
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.lanes[0].client.Close()
		w.produce(10, plainEvent, 0)
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := total(t, m.registry, "projector_lane_restarts_total"); n != 1 {
			t.Errorf("%v restarts, want 1", n)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
	})
}
