package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestReport(t *testing.T) {
	r := report{Machine: "2 CPUs", Go: "go1.26", ClickHouse: "26.7", Sections: []section{
		{Title: "throughput", Baseline: true, Results: []result{
			{Contestant: "limit", Round: 0, Rate: 1000, Steady: 1100, CPU: 0.4, PeakBytes: 1 << 20},
			{Contestant: "limit", Round: 1, Rate: 500, Steady: 600, CPU: 0.5, PeakBytes: 3 << 20},
			{Contestant: "engine", Round: 0, Rate: 250, ServerCPU: 12, Others: 0.05},
			{Contestant: "engine", Round: 1, Rate: 100, ServerCPU: 13, Others: 0.05},
		}},
		{Title: "latency", Delays: []delay{{Contestant: "projector", Target: 10, P50: 500, P99: 990, Max: 1000.4}}},
	}}
	folder := filepath.Join(t.TempDir(), "new")
	if err := r.write(folder); err != nil {
		t.Fatal(err)
	}
	markdown, err := os.ReadFile(filepath.Join(folder, "results.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| limit | 750 (500 … 1000) | 850 (600 … 1100) | 1.00 (1.00 … 1.00) | 1.00 (1.00 … 1.00) | 0.45 (0.40 … 0.50) | 0.00 (0.00 … 0.00) | 2 (1 … 3) | 0 (0 … 0) |",
		// The ratio is 0.25 in one round and 0.2 in the other, whatever the ratio of the medians.
		"| engine | 175 (100 … 250) | – | 0.23 (0.20 … 0.25) | – | – | 12.50 (12.00 … 13.00) | – | 5 (5 … 5) |",
		"| projector | 10 | 0 | 500 | 990 | 1000 | 0.0 | 0.0 | 0 |",
	} {
		if !strings.Contains(string(markdown), line) {
			t.Errorf("no line\n%s\nin\n%s", line, markdown)
		}
	}
	text, err := os.ReadFile(filepath.Join(folder, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	back.Sections[0].Baseline = true // is for the tables only
	if diff := cmp.Diff(r, back); diff != "" {
		t.Errorf("results.json (-want +got):\n%s", diff)
	}
}

func TestFlags(t *testing.T) {
	for _, test := range []struct {
		args []string
		err  string
		want options
	}{
		{args: []string{"-out", "x"}, want: options{events: 2_000_000, out: "x"}},
		{args: []string{"-out", "x", "-short"}, want: options{events: 500_000, short: true, out: "x"}},
		{
			args: []string{"-out", "x", "-only", "kafka,latency", "-events", "7", "-rounds", "2"},
			want: options{events: 7, rounds: 2, only: []string{"kafka", "latency"}, out: "x"},
		},
		{args: []string{"-only", "kafak"}, err: "-only kafak: want some of throughput, kafka"},
		{args: []string{"-match", "("}, err: "-match: error parsing regexp"},
		{args: []string{"-rounds", "many"}, err: "invalid value"},
	} {
		got, err := parse(test.args, &strings.Builder{})
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%v: error %v, want %q", test.args, err, test.err)
			}
			continue
		}
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(options{}), cmpopts.IgnoreFields(options{}, "match")); err != nil || diff != "" {
			t.Errorf("%v: %v (-want +got):\n%s", test.args, err, diff)
		}
	}
}
