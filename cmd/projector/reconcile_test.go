package main

import (
	"context"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/reconcile"
)

// TestReconcileAll: a campaign that is listed and has no records yet is equal,
// one that somebody names is taken for a mistake, and an empty list is no answer.
func TestReconcileAll(t *testing.T) {
	s := newSourceWorld(t, "fitness-results", "fitness-results-dlq")
	if got := s.must(exitFailed, "reconcile", "--all"); !strings.Contains(got.stderr, "--all: neither the source nor") {
		t.Errorf("%s", got.stderr)
	}
	s.edit("SELECT DISTINCT detect_id FROM fitness_result", "SELECT 10099")
	if got := s.must(0, "reconcile", "--all"); !strings.Contains(got.stdout, "campaign 10099") || !strings.Contains(got.stdout, "equal") {
		t.Errorf("%s", got.stdout)
	}
	s.must(exitFailed, "reconcile", "--campaign", "10099")
}

// TestSampleGoesOn: a comparison of all buckets leaves the next sample where it was.
func TestSampleGoesOn(t *testing.T) {
	s := equalWorld(t, 10)
	for _, sample := range []string{"64", "0", "64"} {
		s.must(0, "reconcile", "--campaign", "10001", "--settle", "300ms", "--sample", sample)
	}
	if got := s.rows("SELECT groupArray(next) FROM (SELECT next FROM projector_comparisons ORDER BY at)"); got != "[64,64,128]\n" {
		t.Errorf("samples go on with %s", got)
	}
}

// TestSettledBy holds what a comparison that does not find a finding again may
// say of it.
func TestSettledBy(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	of := audit.Finding{Against: "mysql", Campaign: "7"}
	finding := audit.Finding{Against: "mysql", Campaign: "7", Key: hex.EncodeToString([]byte("V1:1;")), Kind: "stale", Last: at}
	conflict := finding
	conflict.Against, conflict.Kind = "table", versionConflict
	for _, c := range []struct {
		name   string
		known  audit.Finding
		before []audit.Finding
		change func(*reconcile.Report)
		want   int
	}{
		{"not found again", finding, []audit.Finding{finding}, nil, 1},
		{"seen again by another run", finding, []audit.Finding{{Against: "mysql", Campaign: "7", Key: finding.Key, Last: at.Add(-time.Second)}}, nil, 0},
		{"first seen by another run", finding, nil, nil, 0},
		{"a partial source", finding, []audit.Finding{finding}, func(r *reconcile.Report) { r.Partial = true }, 0},
		{"a contradiction that is gone", conflict, []audit.Finding{conflict}, nil, 1},
		{"a contradiction beyond the list", conflict, []audit.Finding{conflict}, func(r *reconcile.Report) { r.ConflictsCut = true }, 0},
		{"a difference beside a cut list", finding, []audit.Finding{finding}, func(r *reconcile.Report) { r.ConflictsCut = true }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &reconcile.Report{Verdict: reconcile.Equal, Level: "fields", Buckets: 16}
			if c.change != nil {
				c.change(r)
			}
			before := sightings{}
			for _, f := range c.before {
				before[last(f)] = true
			}
			if got := settledBy(r, of, []audit.Finding{c.known}, before); len(got) != c.want {
				t.Errorf("settles %+v, want %d", got, c.want)
			}
		})
	}
}

// TestCompareEachInterrupted: a signal after the last read of one campaign does
// not pass for an answer about the others.
func TestCompareEachInterrupted(t *testing.T) {
	for last, want := range map[string]string{"1": "interrupted: 2 of 3 campaigns were not compared", "3": ""} {
		ctx, cancel := context.WithCancel(t.Context())
		reports, err := compareEach(ctx, []string{"1", "2", "3"}, func(campaign string) (*reconcile.Report, error) {
			if campaign == last {
				cancel()
			}
			return &reconcile.Report{Campaign: campaign, Verdict: reconcile.Equal}, nil
		})
		cancel()
		if got := reports[len(reports)-1].Campaign; got != last || (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("a signal during campaign %s: reports up to %s, %v", last, got, err)
		}
	}
}
