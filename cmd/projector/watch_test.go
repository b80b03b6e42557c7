package main

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/testenv"
)

// TestWatchExports: what nobody has looked at is no sample rather than 0, and what concerns another generation is not
// told of this one.
func TestWatchExports(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	db := testenv.SharedClickHouse(t)
	cfg, err := config.Load(config.Input{Path: "../../config.yaml", Set: []string{"clickhouse.addresses=" + db.Addr(), "clickhouse.database=" + db.Name}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Projections[0].Generation = 2
	conn, err := clickhouse.Open(cfg.Control())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	registry := prometheus.NewRegistry()
	watch := newWatcher(&shared{cfg: cfg, control: conn, log: zerolog.Nop()}, clickhouse.NewReader(conn), registry)

	// exported is what there is after a look.
	exported := func() map[string]float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := strings.TrimPrefix(f.GetName(), "projector_")
				for _, l := range m.GetLabel() {
					if l.GetName() != "projection" {
						name += " " + l.GetValue()
					}
				}
				all[name] = m.GetGauge().GetValue()
			}
		}
		return all
	}
	conflicting := map[string]float64{"conflicts": 1, "kinds without": 5, "discrepancies missing": 1, "discrepancies ahead": 1, "last_reconcile_timestamp_seconds mysql": 1}
	unverified := maps.Clone(conflicting)
	unverified["operations repair applied"], unverified["operations_oldest_timestamp_seconds repair applied"] = 1, 1
	steps := []struct {
		name   string
		record func(*audit.Findings, *audit.Log) error
		want   map[string]float64 // exactly these; a timestamp is 1 for any
	}{
		{"before anything was recorded", nil, map[string]float64{"conflicts": 0}},
		{"findings of the generation before this one", func(f *audit.Findings, _ *audit.Log) error {
			return record(t, f, 1, "different", "content_conflict", versionConflict)
		}, map[string]float64{"conflicts": 0}},
		{"a comparison without an answer", func(f *audit.Findings, _ *audit.Log) error {
			return record(t, f, 2, "inconclusive")
		}, map[string]float64{"conflicts": 0}},
		{"equal", func(f *audit.Findings, _ *audit.Log) error {
			return record(t, f, 2, "equal")
		}, map[string]float64{"conflicts": 0, "kinds without": 7, "last_reconcile_timestamp_seconds mysql": 1}},
		{"different", func(f *audit.Findings, _ *audit.Log) error {
			return record(t, f, 2, "different", "missing", "ahead", versionConflict)
		}, conflicting},
		{"a comparison without an answer, later", func(f *audit.Findings, _ *audit.Log) error {
			return record(t, f, 2, "inconclusive")
		}, conflicting},
		{"a repair that nobody has verified, and a backfill that nobody will", func(_ *audit.Findings, l *audit.Log) error {
			for _, kind := range []audit.Kind{audit.Repair, audit.Backfill} {
				run, err := l.Begin(t.Context(), audit.Operation{Kind: kind, Projection: cfg.Projections[0].Name, State: audit.Running})
				if err != nil {
					return err
				}
				if err := run.Advance(t.Context(), func(o *audit.Operation) { o.State = audit.Applied }); err != nil {
					return err
				}
			}
			return nil
		}, unverified},
	}
	if got := exported(); len(got) > 0 {
		t.Errorf("before the first look there is %v", got)
	}
	for _, s := range steps {
		if s.record != nil {
			if err := s.record(audit.OpenFindings(conn, cfg.Audit()), audit.Open(conn, cfg.Audit())); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(watch.look(t.Context()), watch.export(t.Context())); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		got := exported()
		for name, value := range got {
			switch {
			case strings.Contains(name, "timestamp") && time.Since(time.Unix(int64(value), 0)) < time.Minute:
				got[name] = 1
			case strings.HasPrefix(name, "discrepancies ") && value == 0:
				delete(got, name)
				got["kinds without"]++
			}
		}
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", s.name, diff)
		}
	}
}

// record leaves a comparison of campaign 7 with what it found.
func record(t *testing.T, f *audit.Findings, generation uint32, verdict string, kinds ...string) error {
	t.Helper()
	if err := f.Ensure(t.Context()); err != nil {
		return err
	}
	for i, kind := range kinds {
		if err := f.Add(t.Context(), audit.Finding{Projection: "fitness_results", Generation: generation, Against: "mysql", Campaign: "7", Key: fmt.Sprintf("%02x", i), Kind: kind}); err != nil {
			return err
		}
	}
	return f.AddComparison(t.Context(), audit.Comparison{Projection: "fitness_results", Generation: generation, Against: "mysql", Campaign: "7", Level: "fields", Verdict: verdict})
}
