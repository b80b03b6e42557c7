package e2e

import (
	"syscall"
	"testing"
	"time"
)

// TestTwoProcessesMillionEvents is the main claim: whatever the order of versions, the duplicates and the comings and
// goings of members, the current view is what an independent model says, before and after all merges.
func TestTwoProcessesMillionEvents(t *testing.T) {
	w := newWorld(t, setup{partitions: 6})
	w.apply()
	g := events(t, number(t, "E2E_EVENTS", 200_000), 1)
	pace := max(10_000, g.Len()/40)
	began := time.Now()

	f := w.feed(g)
	f.upTo(0.3, 0) // members find a backlog
	first, second := w.start("first"), w.start("second")
	f.upTo(0.4, pace)
	third := w.start("third")
	f.upTo(0.5, pace)
	first.owns()
	first.signal(syscall.SIGTERM)
	f.upTo(0.6, pace)
	first.ends(drainTimeout, 0)
	first.restart()
	f.upTo(0.7, pace)
	second.owns()
	second.kill()
	f.upTo(0.8, pace)
	second.restart()
	f.upTo(0.9, pace)
	third.owns()
	third.signal(syscall.SIGTERM)
	f.upTo(1, pace)
	f.flush()
	third.ends(drainTimeout, 0)
	w.settle()
	t.Logf("%d events of %d records settled after %.1f s", g.Len(), g.Records(), time.Since(began).Seconds())
	for _, m := range []*member{first, second} {
		m.drain()
	}

	m := model(t, g)
	w.equals(m)
	w.exec("OPTIMIZE TABLE fitness_results_g1 FINAL")
	w.equals(m)
	w.intact()
	if got := w.ask("SELECT count() FROM fitness_results_conflicts"); got != "0" {
		t.Errorf("%s conflicts, the events hold none", got)
	}
	inserts, rows := w.inserted("fitness_results_g1")
	t.Logf("%d inserts of %d rows: %d rows inserted again", inserts, rows, rows-g.Len())
}
