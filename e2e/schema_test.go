package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chprojector/projector/internal/testenv"
)

// TestTableCreatedLater starts before there is a table. Nothing may be read as done meanwhile.
func TestTableCreatedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	p := w.start("projector")
	g := events(t, 1000, 5)
	w.fill(g)
	w.until(soon, "the missing table is named", func() bool {
		code, body := p.probe("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "fitness_results_g1 does not exist; run `projector schema apply`")
	})
	if code, body := p.probe("/livez"); code != http.StatusOK {
		t.Errorf("/livez answers %d: %s", code, body)
	}
	waiting := func() {
		t.Helper()
		if lag := w.lag(); lag != int64(g.Len()) {
			t.Fatalf("lag %d without a table, want %d", lag, g.Len())
		}
		if code, _ := p.probe("/readyz"); code != http.StatusServiceUnavailable {
			t.Fatalf("/readyz answers %d without a table", code)
		}
	}
	waiting()
	if s := w.status(1)[0]; s.Lag == nil || *s.Lag != int64(g.Len()) || len(s.Unknown) != 1 {
		t.Errorf("status without a table: %+v", s)
	}
	waiting()
	w.apply()
	w.settle()
	w.equals(model(t, g))
	w.intact()
	p.ready()
	p.drain()
}

// TestUnsafeTable: a table that would make reports wrong ends the process before it reads anything, and the message
// says what to do.
func TestUnsafeTable(t *testing.T) {
	t.Parallel()
	newGeneration := "start a new generation: raise generation in the configuration and run `projector rebuild start`"
	// In the statements of `schema print`.
	for _, c := range []struct{ name, old, by, want, remedy string }{
		{"engine", "ReplacingMergeTree(`version`)", "MergeTree", "only a ReplacingMergeTree replaces", "then create the table with `projector schema apply`"},
		{"version column", "ReplacingMergeTree(`version`)", "ReplacingMergeTree(`user_id`)", "its version column is user_id instead of version", newGeneration},
		{"cleanup of deletions", "ReplacingMergeTree(`version`)", "ReplacingMergeTree(`version`, `is_deleted`)", "is_deleted parameter", newGeneration},
		{"key without the identity", "ORDER BY (`detect_id`, `data_id`)", "ORDER BY `detect_id`", "it is ordered by (detect_id) instead of (detect_id, data_id)", newGeneration},
		{"partition outside the key", "PARTITION BY detect_id % 8", "PARTITION BY user_id % 8", "it is partitioned by user_id % 8 instead of detect_id % 8", newGeneration},
		{"missing column", "    `user_id` UInt64,\n", "", "it needs a change: add the column user_id", "run `projector schema apply`"},
		{"missing lineage", "    `_offset` Int64,\n", "", "it lacks the lineage column _offset", newGeneration},
		{"other type", "`result` Decimal(18, 3)", "`result` Float64", "the column result is Float64 instead of Decimal(18, 3)", "add a column of another name"},
		{"other scale", "`result` Decimal(18, 3)", "`result` Decimal(18, 2)", "the column result is Decimal(18, 2) instead of Decimal(18, 3)", "change the configuration back to Decimal(18, 2)"},
		{"nullable column", "`project_id` UInt32", "`project_id` Nullable(UInt32)", "the column project_id is Nullable(UInt32) instead of UInt32", "change the configuration back"},
		{"nullable key", "`data_id` UInt64", "`data_id` Nullable(UInt64)", "a key that can be NULL does not identify a record", newGeneration},
		{"rows that expire", "SETTINGS ", "TTL toDateTime(_ingested_at) + INTERVAL 1 DAY SETTINGS ", "it has a TTL", "REMOVE TTL"},
		{"newer generation", "`_generation` >= 1", "`_generation` >= 2", "generation", "set generation: 2 in the configuration"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, setup{partitions: 1})
			g := events(t, 10, 6)
			w.fill(g)
			statements := replaced(t, w.must(0, "schema", "print").stdout, c.old, c.by)
			for statement := range strings.SplitSeq(statements, ";\n") {
				if strings.HasPrefix(strings.TrimSpace(statement), "CREATE TABLE") {
					w.exec(strings.Replace(statement, "SETTINGS ", "SETTINGS allow_nullable_key = 1, ", 1))
				}
			}
			p := w.start("projector")
			p.ends(soon, 1)
			log := p.log()
			for _, want := range []string{w.db.Name + ".fitness_results_g1: ", c.want, c.remedy} {
				if !strings.Contains(log, want) {
					t.Errorf("the log does not say %q", want)
				}
			}
			if got := w.ask("SELECT count() FROM fitness_results_g1"); got != "0" {
				t.Errorf("%s rows were written", got)
			}
			if lag := w.lag(); lag != int64(g.Len()) {
				t.Errorf("lag %d, want %d: something was committed", lag, g.Len())
			}
			if letters := w.letters(); len(letters) > 0 {
				t.Errorf("%d letters were parked", len(letters))
			}
		})
	}
}

// TestAsynchronousInserts: a user whose inserts are answered before they are written is refused.
func TestAsynchronousInserts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 1, env: []string{"PROJECTOR_CLICKHOUSE__USERNAME=careless"}, server: testenv.NewClickHouse(t, testenv.ClickHouseConfig{
		Databases: []string{"reporting"},
		Profiles:  "<careless><async_insert>1</async_insert><constraints><async_insert><const/></async_insert></constraints></careless>",
		Users:     "<careless><password></password><profile>careless</profile></careless>",
	})})
	w.env = append(w.env, "PROJECTOR_CLICKHOUSE__USERNAME=default")
	w.apply()
	w.env = w.env[:len(w.env)-1]
	p := w.start("projector")
	p.ends(soon, 1)
	if log := p.log(); !strings.Contains(log, "async_insert") || !strings.Contains(log, "profile") {
		t.Errorf("the log does not say why, and what to do")
	}
}
