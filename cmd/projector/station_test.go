package main

import (
	"strings"
	"testing"
)

// TestTableBecomesUnsafe: a server takes rows into whatever has the name of the
// table. A process that has checked it once must not commit for ever what such
// a table does not keep.
func TestTableBecomesUnsafe(t *testing.T) {
	for name, c := range map[string]struct{ statements, want string }{
		"another table in its place": {"CREATE TABLE other AS fitness_results_g1 ENGINE = Null; EXCHANGE TABLES other AND fitness_results_g1", "only a ReplacingMergeTree replaces"},
		"rows that expire":           {"ALTER TABLE fitness_results_g1 MODIFY TTL toDateTime(_ingested_at) + INTERVAL 1 DAY", "it has a TTL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "fitness-results")
			w.must(exitDone, "schema", "apply", "--yes")
			r := w.start()
			r.ready()
			w.produce(story()...)
			w.until("all of it is committed", func() bool { return w.status().Lag == 0 })
			w.db.Exec(t, strings.Split(c.statements, "; ")...)
			if code := r.end(); code != exitFailed || !strings.Contains(r.log.String(), "changed while rows were written") || !strings.Contains(r.log.String(), c.want) {
				t.Errorf("exit code %d, no %q in\n%s", code, c.want, r.log)
			}
		})
	}
}
