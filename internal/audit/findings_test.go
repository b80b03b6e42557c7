package audit

import (
	"strings"
	"testing"

	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/testenv"
)

func newFindings(t *testing.T) *Findings {
	t.Helper()
	db := testenv.SharedClickHouse(t)
	conn, err := clickhouse.Open(clickhouse.Config{Addresses: []string{db.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return OpenFindings(conn, Config{Database: db.Name})
}

func TestFindingsBeforeAnything(t *testing.T) {
	f := newFindings(t)
	list, err := f.Unresolved(t.Context(), FindingsFilter{})
	if err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if counts, err := f.Counts(t.Context()); err != nil || len(counts) != 0 {
		t.Errorf("%v, %v", counts, err)
	}
}

func TestLifeOfAFinding(t *testing.T) {
	f := newFindings(t)
	if err := f.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	version := uint64(1<<64 - 1)
	one := Finding{Projection: "results", Generation: 1, Against: "mysql", Campaign: "7", Key: "56", ID: `it's "7" \ 🏃`, Kind: "stale", SourceVersion: &version, Fields: `[{"column":"x"}]`}
	steps := []struct {
		name     string
		kind     string
		resolved bool
		open     int
	}{{"first sighting", "stale", false, 1}, {"seen again, otherwise", "missing", false, 1}, {"resolved", "missing", true, 0}, {"back", "stale", false, 1}}
	for _, s := range steps {
		one.Kind, one.Resolved = s.kind, s.resolved
		if err := f.Add(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		list, err := f.Unresolved(t.Context(), FindingsFilter{Projection: "results", Campaign: "7"})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != s.open {
			t.Fatalf("%s: %d open, want %d", s.name, len(list), s.open)
		}
		if s.open == 0 {
			continue
		}
		got := list[0]
		if got.Kind != s.kind || got.ID != one.ID || got.SourceVersion == nil || *got.SourceVersion != version || got.TargetVersion != nil {
			t.Errorf("%s: %+v", s.name, got)
		}
		if got.First.After(got.Last) || s.name == "back" && !got.First.Equal(got.Last) {
			t.Errorf("%s: first seen %s, last %s", s.name, got.First, got.Last)
		}
		testenv.Eventually(t, "the clock moves on", func() bool {
			var rows []struct {
				Later bool `ch:"later"`
			}
			err := f.conn.Select(t.Context(), &rows, "SELECT now64(3) > max(at) AS later FROM "+f.cfg.Qualified(FindingsTable))
			return err == nil && rows[0].Later
		})
	}
	counts, err := f.Counts(t.Context())
	if err != nil || len(counts) != 1 || counts[0].Kind != "stale" || counts[0].Count != 1 {
		t.Errorf("%v, %v", counts, err)
	}
}

func TestManyFindings(t *testing.T) {
	f := newFindings(t)
	if err := f.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	var list []Finding
	for i := range 2000 {
		list = append(list, Finding{Projection: "p", Campaign: "1", Key: strings.Repeat("ab", i%50) + string(rune('a'+i%26)), Kind: "missing", Place: strings.Repeat("x", 300), ID: string(rune(i))})
	}
	if err := f.Add(t.Context(), list...); err != nil {
		t.Fatal(err)
	}
	if err := f.AddComparison(t.Context(), Comparison{Projection: "p", Campaign: "1", Against: "mysql", Verdict: "different", Next: 5}); err != nil {
		t.Fatal(err)
	}
	last, err := f.LastComparisons(t.Context(), "1")
	if err != nil || len(last) != 1 || last[0].Next != 5 || last[0].At.IsZero() {
		t.Errorf("%+v, %v", last, err)
	}
	if last, err := f.LastComparisons(t.Context(), "2"); err != nil || len(last) != 0 {
		t.Errorf("%+v, %v", last, err)
	}
}
