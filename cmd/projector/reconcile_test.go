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

// TestContradictionIsNoPeace: while the table holds two contents at a record's
// newest version, which one was compared is chance. That is a difference; one
// that a newer version hides is told and is none.
func TestContradictionIsNoPeace(t *testing.T) {
	s := equalWorld(t, 50)
	s.rows("SYSTEM STOP MERGES fitness_results_g1")
	s.plantDefect(defect{table: "(28, 10001, 14, 3, 5, 0.014, 'km', 0, 'x')"})
	s.plantDefect(defect{table: "(28, 10001, 14, 3, 5, 0.014, 'm', 0, 'x')"}) // readers see the source's own content
	compare := []string{"reconcile", "--campaign", "10001", "--settle", "300ms"}
	got := s.must(exitNo, compare...)
	if !strings.Contains(got.stdout, "1 record in the table with several contents at the newest version, and which of them counts is not defined, such as 28 at version 5") || !strings.Contains(got.stderr, "1 of 1 campaign differ") {
		t.Errorf("%s%s", got.stdout, got.stderr)
	}
	if got := s.must(exitNo, append(compare, "--level", "counts", "-o", "json")...).stdout; !strings.Contains(got, `"in": "table",
        "superseded": false`) || !strings.Contains(got, `"verdict": "different"`) {
		t.Errorf("%s", got)
	}
	if p := s.planned(exitNo, "--campaign", "10001"); len(p.Left) != 1 || p.Left[0].Kind != versionConflict {
		t.Errorf("%+v", p)
	}
	if got := s.rows("SELECT DISTINCT verdict, findings FROM projector_comparisons"); got != "different\t1\n" {
		t.Errorf("recorded: %q", got)
	}
	s.shards[0].Exec(t, "UPDATE fitness_result SET version = 6 WHERE data_id = 28")
	if p := s.planned(0, "--campaign", "10001"); len(p.Left) != 0 || len(p.Repairs) != 1 { // its repair hides the contradiction
		t.Errorf("%+v", p)
	}
	s.plantDefect(defect{table: "(28, 10001, 14, 3, 6, 0.014, 'm', 0, 'x')"})
	if got := s.must(0, compare...).stdout; !strings.Contains(got, "several contents at a version that a newer one hides, such as 28 at version 5") || !strings.Contains(got, ": equal") {
		t.Errorf("%s", got)
	}
	if got := s.must(0, "repair", "plan", "--campaign", "10001", "--settle", "300ms").stdout; !strings.Contains(got, "nothing to repair") {
		t.Errorf("%s", got)
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
	topical := conflict
	topical.Against = "topic"
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
		{"a contradiction of the topic", topical, []audit.Finding{topical}, nil, 0},
		{"a contradiction of the topic that is gone", topical, []audit.Finding{topical}, func(r *reconcile.Report) { r.Against = "topic" }, 1},
		{"a contradiction of the topic that is still there", topical, []audit.Finding{topical}, func(r *reconcile.Report) {
			r.Against, r.Conflicts = "topic", []reconcile.Conflict{{Key: "V1:1;", In: reconcile.InTopic, Superseded: true}}
		}, 0},
		{"a contradiction of the table beside one of the topic", conflict, []audit.Finding{conflict}, func(r *reconcile.Report) {
			r.Against, r.Conflicts = "topic", []reconcile.Conflict{{Key: "V1:1;", In: reconcile.InTopic, Superseded: true}}
		}, 1},
		{"a difference beside a cut list", finding, []audit.Finding{finding}, func(r *reconcile.Report) { r.ConflictsCut = true }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &reconcile.Report{Verdict: reconcile.Equal, Against: "mysql", Level: "fields", Buckets: 16}
			if c.change != nil {
				c.change(r)
			}
			before := sightings{}
			for _, f := range c.before {
				before[last(f)] = true
			}
			of.Against = r.Against
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
