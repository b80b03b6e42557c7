package e2e

import (
	"testing"
	"time"
)

// TestSlowTraffic: few events make few inserts, at most one for each batch.delay and lane.
func TestSlowTraffic(t *testing.T) {
	t.Parallel()
	const delay, lanes, pace = time.Second, 2, 50
	w := newWorld(t, setup{partitions: 4})
	w.apply()
	p := w.start("projector", "batch.delay=1s", "lanes=2")
	p.ready()
	w.until(soon, "both lanes have partitions", func() bool { return p.metric("projector_partitions_assigned_total") >= 4 })
	g := events(t, 6*pace, 9)
	began := time.Now()
	f := w.feed(g)
	f.upTo(1, pace)
	f.flush()
	w.settle()
	took := time.Since(began)
	p.drain()
	inserts, rows := w.inserted("fitness_results_g1")
	most := lanes * (int(took/delay) + 1)
	t.Logf("%d events in %.1f s: %d inserts, at most %d are allowed", g.Len(), took.Seconds(), inserts, most)
	if rows != g.Len() || inserts > most || inserts < lanes {
		t.Errorf("%d rows by %d inserts, want %d rows by at most %d", rows, inserts, g.Len(), most)
	}
	// A lane has one connection, and so one port.
	for row, err := range w.rows(`SELECT port, min(gap) FROM (SELECT port, event_time_microseconds AS at,
			dateDiff('millisecond', lagInFrame(toNullable(at)) OVER (PARTITION BY port ORDER BY at ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING), at) AS gap
		FROM system.query_log WHERE type = 'QueryFinish' AND query_kind = 'Insert' AND has(tables, '` + w.db.Name + `.fitness_results_g1')) WHERE gap IS NOT NULL GROUP BY port`) {
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("lane with port %s: inserts at least %s ms apart", row...)
	}
	w.equals(model(t, g))
	w.intact()
}
