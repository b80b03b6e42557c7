//go:build synctests

package projector

import (
	"testing"
	"time"
)

// TestOutageShowsInFreshness: while ClickHouse is away the age of what readers miss grows and the lane is busy;
// afterwards everything goes back to zero.
func TestOutageShowsInFreshness(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		away := &valve{next: w.good(), open: make(chan struct{})}
		m := w.newMember(testPlan(t), away, nil).live(t.Context())
		defer m.kill()
		oldest := func() float64 {
			age := func(partition string) float64 {
				return total(t, m.registry, "projector_freshness_seconds", "projection", "results", "partition", partition)
			}
			return max(age("0"), age("1"))
		}
		pass(25 * time.Second)
		if age := oldest(); age != 0 {
			t.Errorf("an idle lane is %v s behind", age)
		}
		w.produce(5000, plainEvent, 0, 1)
		for range 12 { // scrapes
			pass(10 * time.Second)
			oldest()
		}
		if age := oldest(); age < 119 || age > 121 {
			t.Errorf("the oldest record is %v s old after two minutes", age)
		}
		if busy := total(t, m.registry, "projector_busy_ratio"); busy < 0.7 {
			t.Errorf("the lane waits for ClickHouse and is busy only %v of the time", busy)
		}
		close(away.open)
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if age := oldest(); age != 0 {
			t.Errorf("everything is visible and readers are %v s behind", age)
		}
		if drain := total(t, m.registry, "projector_drain_seconds"); drain != 0 {
			t.Errorf("nothing is left, to be worked off in %v s", drain)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestOutageShowsInFreshnessWithAClockAhead: a producer whose clock is an hour ahead does not hide an outage for an
// hour.
func TestOutageShowsInFreshnessWithAClockAhead(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		away := &valve{next: w.good(), open: make(chan struct{})}
		m := w.newMember(testPlan(t), away, nil).live(t.Context())
		defer m.kill()
		w.ahead = time.Hour
		pass(5 * time.Second)
		w.produce(5, plainEvent, 0)
		pass(2 * time.Minute)
		age := total(t, m.registry, "projector_freshness_seconds", "projection", "results", "partition", "0")
		if age < 118 || age > 121 {
			t.Errorf("nothing has become visible for two minutes and readers are %v s behind", age)
		}
		close(away.open)
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
	})
}
