package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestSchema goes through the commands on a server.
func TestSchema(t *testing.T) {
	w := newWorld(t)
	if got := w.must(exitNo, "schema", "check"); !strings.Contains(got.stderr, "run `projector schema apply`") {
		t.Errorf("stderr is %s", got.stderr)
	}
	plan := w.must(exitDone, "schema", "plan")
	if !strings.Contains(plan.stdout, "CREATE TABLE IF NOT EXISTS") || plan.stderr != "" {
		t.Errorf("plan is\n%s%s", plan.stdout, plan.stderr)
	}
	for _, answer := range []string{"n\n", "", "yesterday\n"} {
		if got := w.runWith(answer, "schema", "apply"); got.code != exitFailed || !strings.Contains(got.stderr, "nothing was changed") {
			t.Errorf("answer %q: %+v", answer, got)
		}
	}
	w.must(exitNo, "schema", "check")
	if got := w.runWith("y\n", "schema", "apply"); got.code != exitDone || !strings.Contains(got.stdout, "changes made.") {
		t.Errorf("apply: %+v", got)
	}
	if got := w.must(exitDone, "schema", "check"); got.stdout != "fitness_results_g1: as configured\n" {
		t.Errorf("check prints %s", got.stdout)
	}
	var none []struct {
		Table   string
		Changes []any
	}
	if err := json.Unmarshal([]byte(w.must(exitDone, "schema", "check", "-o", "json").stdout), &none); err != nil || len(none) != 1 || len(none[0].Changes) != 0 {
		t.Errorf("check -o json: %v %v", none, err)
	}
	w.must(exitDone, "schema", "apply") // nothing to do: it does not ask

	w.db.Exec(t, "ALTER TABLE fitness_results_g1 DROP COLUMN event_id", "DROP VIEW fitness_results_by_campaign")
	w.must(exitNo, "schema", "check")
	planned := w.must(exitDone, "schema", "plan", "-o", "json").stdout
	if got := w.runWith("n\n", "schema", "apply", "-o", "json"); got.code != exitFailed || got.stdout != "" || !strings.Contains(got.stderr, "ADD COLUMN") {
		t.Errorf("a program's question: %+v", got)
	}
	if got := w.must(exitDone, "schema", "apply", "--yes", "-o", "json"); got.stdout != planned || got.stderr != "" || !strings.Contains(planned, "ADD COLUMN") {
		t.Errorf("apply -o json: %+v, planned %s", got, planned)
	}
	w.must(exitDone, "schema", "check")

	w.db.Exec(t, "ALTER TABLE fitness_results_g1 MODIFY COLUMN result Decimal(10, 1)")
	refused := w.must(exitNo, "schema", "apply", "--yes")
	if !strings.Contains(refused.stderr, "nothing was changed") || !strings.Contains(refused.stdout, "refused") {
		t.Errorf("apply of a refused change: %+v", refused)
	}
	w.must(exitNo, "schema", "plan")
	if checked := w.must(exitNo, "schema", "check", "-o", "json"); checked.stdout != w.must(exitNo, "schema", "apply", "--yes", "-o", "json").stdout {
		t.Errorf("check prints %s", checked.stdout)
	}
}
