package e2e

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/chprojector/projector/internal/testenv"
)

// TestProbes follows the probes through an outage of ClickHouse that lasts longer than the process calls a short one. It waits
// for a minute, in which the other parallel tests run.
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
	live := func() {
		t.Helper()
		if code, body := p.probe("/livez"); code != http.StatusOK {
			t.Fatalf("/livez answers %d: %s", code, body)
		}
	}
	if code, body := p.probe("/readyz"); code != http.StatusOK {
		t.Errorf("/readyz answers %d after a moment: %s", code, body)
	}
	var lasted time.Duration // as the process tells it
	w.until(2*time.Minute, "the process is unready", func() bool {
		live()
		code, body := p.probe("/readyz")
		m := regexp.MustCompile(`cannot insert into ClickHouse for (\w+)`).FindStringSubmatch(body)
		if code != http.StatusServiceUnavailable || m == nil {
			return false
		}
		var err error
		if lasted, err = time.ParseDuration(m[1]); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return true
	})
	if lasted < time.Minute {
		t.Errorf("unready after %v, a minute is what an outage may last", lasted)
	}
	if lines := strings.Count(p.log(), "cannot insert into ClickHouse"); lines > 4 {
		t.Errorf("the outage of %v made %d lines of the log", lasted, lines)
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
