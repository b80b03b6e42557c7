package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/chprojector/projector/internal/testenv"
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

// TestProbes follows the probes through an outage of ClickHouse that lasts longer than the process calls a short one.
func TestProbes(t *testing.T) {
	t.Parallel()
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{Databases: []string{"reporting"}})
	w := newWorld(t, setup{partitions: 2, server: server})
	w.apply()
	p := w.start("projector", "lanes=1")
	p.ready()
	g := events(t, 2000, 10)
	f := w.feed(g)
	f.upTo(0.5, 0)
	f.flush()
	w.settle()
	lint(t, p)

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	f.upTo(1, 0)
	f.flush()
	p.says("cannot insert into ClickHouse")
	failing := time.Now()
	live := func() {
		t.Helper()
		if code, body := p.probe("/livez"); code != http.StatusOK {
			t.Fatalf("/livez answers %d: %s", code, body)
		}
	}
	if code, body := p.probe("/readyz"); code != http.StatusOK {
		t.Errorf("/readyz answers %d after a moment: %s", code, body)
	}
	w.until(2*time.Minute, "the process is unready", func() bool {
		live()
		code, body := p.probe("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "cannot insert into ClickHouse for ")
	})
	lasted := time.Since(failing)
	t.Logf("unready after %.0f s", lasted.Seconds())
	if lasted < 50*time.Second {
		t.Errorf("unready after %v, a minute is what an outage may last", lasted)
	}
	live()
	if retries, rows := p.metric("projector_insert_retries_total", `class="transient"`), p.metric("projector_rows_total"); retries < 2 || rows != float64(g.Len()/2) {
		t.Errorf("%v retries and %v rows are counted", retries, rows)
	}
	lint(t, p)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.ready()
	w.settle()
	w.equals(model(t, g))
	w.intact()
	for name, want := range map[string]float64{
		"projector_records_total": float64(g.Len()), "projector_rows_total": float64(g.Len()), "projector_letters_total": 0,
		"projector_conflicts_total": 0, "projector_lag_records": 0,
	} {
		if got := p.metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if failed, acknowledged := p.metric("projector_inserts_total", `outcome="failed"`), p.metric("projector_inserts_total", `outcome="acknowledged"`); failed < 2 || acknowledged < 2 {
		t.Errorf("%v failed and %v acknowledged inserts are counted", failed, acknowledged)
	}
	if lines := strings.Count(p.log(), "cannot insert into ClickHouse"); lines > 4 {
		t.Errorf("the outage made %d lines of the log", lines)
	}
	p.drain()
}

// lint holds the process's metrics to Prometheus' own rules.
func lint(t *testing.T, m *member) {
	t.Helper()
	_, body := m.probe("/metrics")
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatalf("%v in\n%s", err, body)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
	if !strings.Contains(body, "projector_") {
		t.Errorf("no metrics of the projector in\n%s", body)
	}
}
