package chschema_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/chprojector/projector/chschema"
)

// verdicts lists changes as "verdict object: summary".
func verdicts(changes []chschema.Change) string {
	var list []string
	for _, c := range changes {
		list = append(list, c.Verdict.String()+" "+c.String())
	}
	return strings.Join(list, "\n")
}

func TestApplyFromNothing(t *testing.T) {
	for name, table := range goldenTables() {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			table.Database, table.Cluster = s.Name, ""
			delete(table.Settings, "storage_policy")
			s.apply(t, table)
			if err := chschema.Check(t.Context(), s.conn, table); err != nil {
				t.Error(err)
			}
			for _, d := range table.Definitions() {
				s.exec(t, "SELECT * FROM "+d.Name)
			}
		})
	}
}

func TestApplyCreatesTheDatabase(t *testing.T) {
	s := newServer(t)
	table := fitness(s.Name + "_other")
	t.Cleanup(func() {
		// The test's own context is done by now.
		if _, err := s.Query(context.WithoutCancel(t.Context()), "DROP DATABASE "+table.Database+" SYNC"); err != nil {
			t.Error(err)
		}
	})
	s.apply(t, table)
}

func TestPrintedDDLIsNoDrift(t *testing.T) {
	s := newServer(t)
	table := fitness(s.Name)
	for _, statement := range table.Statements() {
		s.exec(t, statement)
	}
	for _, c := range s.diff(t, table) {
		t.Error(c)
	}
}

func TestApplyAddsColumns(t *testing.T) {
	s := newServer(t)
	table := fitness(s.Name)
	s.apply(t, table)
	s.exec(t, "INSERT INTO fitness_results_g1 (data_id, detect_id, version, _generation) VALUES (1, 2, 3, 1)")

	table.Columns = slices.Insert(slices.Clone(table.Columns), 6, typeColumns()...)
	table.Columns = append(columns("first Nullable(String)"), table.Columns...)
	s.apply(t, table)

	var want []string
	for _, c := range append(slices.Clone(table.Columns), chschema.LineageColumns()...) {
		want = append(want, c.Name)
	}
	state, err := chschema.Inspect(t.Context(), s.conn, table)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range state.Table.Columns {
		got = append(got, c.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("columns are %v, not %v", got, want)
	}
	out, err := s.Query(t.Context(), "SELECT data_id, first, i256, e8, length(a), dec256 FROM fitness_results_current")
	if err != nil || out != "1\t\\N\t0\ta\t0\t0\n" {
		t.Errorf("an old row reads %q, %v", out, err)
	}
}

// TestOlderDeploymentStarts: after a roll-back the older configuration meets
// the newer table.
func TestOlderDeploymentStarts(t *testing.T) {
	s := newServer(t)
	older, newer := fitness(s.Name), fitness(s.Name)
	older.Columns = append(older.Columns, column("kind Enum8('a' = 1)"))
	newer.Columns = append(newer.Columns, column("kind Enum8('a' = 1, 'b' = 2)"), column("added String"))
	newer.Settings = map[string]string{"fsync_after_insert": "true"}
	s.apply(t, newer)
	if err := chschema.Check(t.Context(), s.conn, older); err != nil {
		t.Error(err)
	}
	got := verdicts(s.diff(t, older))
	for _, want := range []string{"tolerated fitness_results_g1: it has a column added String", "tolerated fitness_results_g1: the column kind has more names"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing:\n%s", want, got)
		}
	}
	if strings.Contains(got, "refused") {
		t.Error(got)
	}
	s.exec(t, "INSERT INTO fitness_results_g1 (data_id, detect_id, kind, _generation) VALUES (1, 2, 'a', 1)")
}

func TestApplyExtendsAnEnum(t *testing.T) {
	s := newServer(t)
	table := fitness(s.Name)
	table.Columns = append(table.Columns, column("kind Enum8('b' = 2)"))
	table.OrderBy = append(table.OrderBy, "kind")
	table.Views = append(table.Views, chschema.View{Name: "kinds", Query: "SELECT kind, count() AS n FROM {current} GROUP BY kind"})
	s.apply(t, table)
	table.Columns = slices.Clone(table.Columns)
	table.Columns[len(table.Columns)-1] = column("kind Enum8('b' = 2, 'a' = 1)")
	s.apply(t, table)
	s.exec(t, "INSERT INTO fitness_results_g1 (data_id, detect_id, kind, _generation) VALUES (1, 2, 'a', 1)")
	if out, err := s.Query(t.Context(), "SELECT kind, n FROM kinds"); out != "a\t1\n" {
		t.Errorf("the views do not know the new name: %q, %v", out, err)
	}
}

func TestApplySettings(t *testing.T) {
	s := newServer(t)
	table := fitness(s.Name)
	s.apply(t, table)
	table.Settings = map[string]string{"fsync_after_insert": "1", "max_bytes_to_merge_at_max_space_in_pool": "10737418240", "merge_selector_algorithm": "Simple"}
	s.apply(t, table)
	table.Settings = map[string]string{"fsync_after_insert": "true", "no_such": "1", "index_granularity": "100"}
	got := verdicts(s.diff(t, table))
	for _, want := range []string{"refused fitness_results_g1: the setting no_such is unknown", "refused fitness_results_g1: the setting index_granularity is 8192 instead of 100"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing:\n%s", want, got)
		}
	}
	if strings.Contains(got, "fsync") {
		t.Errorf("true and 1 differ:\n%s", got)
	}
}

func TestApplyRestoresTheClock(t *testing.T) {
	s := newServer(t)
	table := fitness(s.Name)
	s.apply(t, table)
	s.exec(t, "ALTER TABLE fitness_results_g1 MODIFY COLUMN _ingested_at REMOVE DEFAULT")
	if err := chschema.Check(t.Context(), s.conn, table); err == nil || !strings.Contains(err.Error(), "give the column _ingested_at its default") {
		t.Error(err)
	}
	s.apply(t, table)
}

func TestEditedViewsAreFound(t *testing.T) {
	s := newServer(t)
	table := fitness(s.Name)
	// Each of these is stored by the server in other words.
	table.Views = append(table.Views,
		chschema.View{Name: "rewritten", Query: "select COUNT(*) as n, detect_id::Int64 as d, MAX(result) from {current} as c where c.project_id in (1,2) group by d -- by campaign"},
		chschema.View{Name: "joined", Query: "WITH x AS (SELECT 1 AS a) SELECT * FROM {current} JOIN x ON a = project_id SETTINGS max_threads=2"},
		chschema.View{Name: "parameterized", Query: "SELECT * FROM {current} WHERE detect_id = {campaign:UInt64}"})
	s.apply(t, table)
	s.exec(t, "SELECT * FROM parameterized(campaign = 7)")
	for _, edit := range []struct{ name, statement, view string }{
		{"replaced by hand", "CREATE OR REPLACE VIEW fitness_results_current AS SELECT * FROM fitness_results_g1", "fitness_results_current"},
		{"a configured one dropped", "DROP VIEW joined", "joined"},
		{"comment lost and query other", "CREATE OR REPLACE VIEW rewritten AS SELECT 1 AS n", "rewritten"},
	} {
		t.Run(edit.name, func(t *testing.T) {
			s.exec(t, edit.statement)
			got := s.diff(t, table)
			if len(got) != 1 || got[0].Object != edit.view || got[0].Verdict != chschema.Online || got[0].Blocks {
				t.Fatalf("got %s", verdicts(got))
			}
			s.apply(t, table)
		})
	}
	t.Run("edited together with its comment", func(t *testing.T) {
		out, err := s.Query(t.Context(), "SELECT create_table_query FROM system.tables WHERE database = currentDatabase() AND name = 'rewritten' FORMAT TSVRaw")
		if err != nil {
			t.Fatal(err)
		}
		edited := strings.Replace(strings.Replace(out, "IN (1, 2)", "IN (1)", 1), "CREATE VIEW", "CREATE OR REPLACE VIEW", 1)
		s.exec(t, edited)
		if got := s.diff(t, table); len(got) != 1 || got[0].Object != "rewritten" {
			t.Fatalf("got %s\n%s", verdicts(got), edited)
		}
		s.apply(t, table)
	})
	t.Run("deletions no longer hidden", func(t *testing.T) {
		table := table
		table.Deleted = ""
		got := s.diff(t, table)
		if len(got) == 0 || got[0].Object != table.Current() || got[0].Verdict != chschema.Refused || !strings.Contains(got[0].Reason, "deleted record") {
			t.Errorf("got %s", verdicts(got))
		}
	})
	t.Run("no longer configured", func(t *testing.T) {
		table := table
		table.Views = table.Views[:1]
		got := s.diff(t, table)
		if len(got) != 3 || got[0].Verdict != chschema.Tolerated || got[0].Object != "joined" || got[2].Object != "rewritten" {
			t.Errorf("got %s", verdicts(got))
		}
	})
}

func TestTwoDeploymentsApplyAtOnce(t *testing.T) {
	s := newServer(t)
	table := fitness(s.Name)
	changes := s.diff(t, table)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := chschema.Apply(t.Context(), s.conn, changes, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s.apply(t, table)
}

// TestViewsAreReplacedWithoutAGap reads while the views are replaced.
func TestViewsAreReplacedWithoutAGap(t *testing.T) {
	s := newServer(t)
	table := fitness(s.Name)
	s.apply(t, table)
	s.exec(t, "INSERT INTO fitness_results_g1 (data_id, detect_id, version, _generation) VALUES (1, 2, 3, 1)")
	reader := dial(t, s.Addr(), clickhouse.Auth{Database: s.Name}, nil)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, query := range []string{"SELECT count() AS n FROM fitness_results_current", "SELECT sum(results) AS n FROM fitness_results_by_campaign"} {
		wg.Go(func() {
			for reads := 0; ; reads++ {
				var rows []struct {
					N uint64 `ch:"n"`
				}
				if err := reader.Select(t.Context(), &rows, query); err != nil || rows[0].N != 1 {
					t.Errorf("read %d: %v, %v", reads, rows, err)
					return
				}
				select {
				case <-done:
					if reads == 0 {
						t.Error("nothing was read meanwhile")
					}
					return
				default:
				}
			}
		})
	}
	for range 6 {
		if err := chschema.Apply(t.Context(), s.conn, chschema.SwitchViews(table), nil); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	wg.Wait()
}

func TestViewsOfAnotherGenerationAreLeftAlone(t *testing.T) {
	s := newServer(t)
	first := fitness(s.Name)
	s.apply(t, first)
	second := fitness(s.Name)
	second.Generation = 2
	changes := s.diff(t, second)
	if got := verdicts(changes); !strings.Contains(got, "refused fitness_results_current: the views read generation 1 and the configuration says 2") {
		t.Fatalf("got %s", got)
	}
	if err := chschema.Apply(t.Context(), s.conn, changes, nil); err == nil {
		t.Fatal("applied")
	}
	if out, _ := s.Query(t.Context(), "EXISTS fitness_results_g2"); out != "0\n" {
		t.Error("a refused apply created the table")
	}

	// What a rebuild does.
	state, err := chschema.Inspect(t.Context(), s.conn, second)
	if err != nil {
		t.Fatal(err)
	}
	for _, changes := range [][]chschema.Change{chschema.DiffTable(second, state), chschema.SwitchViews(second)} {
		if err := chschema.Apply(t.Context(), s.conn, changes, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.exec(t, first.RaiseFence(2))
	for _, c := range s.diff(t, second) {
		t.Errorf("after the switch: %s", c)
	}
	err = chschema.Check(t.Context(), s.conn, first)
	if err == nil || !strings.Contains(err.Error(), "set generation: 2 in the configuration: a rebuild closed") && !strings.Contains(err.Error(), "admits only generation 2") {
		t.Errorf("a writer of the closed generation: %v", err)
	}
	err = s.conn.Exec(t.Context(), "INSERT INTO fitness_results_g1 (data_id, _generation) VALUES (1, 1)")
	if exception := new(clickhouse.Exception); !asException(err, exception) || exception.Code != 469 {
		t.Errorf("the fence lets an old writer in: %v", err)
	}
}

func TestApplyStopsAtAnError(t *testing.T) {
	s := newServer(t)
	table := fitness(s.Name)
	table.Views[0].Query = "SELECT no_such_column FROM {current}"
	table.Views = append(table.Views, chschema.View{Name: "later", Query: "SELECT 1 FROM {current}"})
	var log []string
	err := chschema.Apply(t.Context(), s.conn, s.diff(t, table), func(statement string) { log = append(log, statement) })
	if err == nil || !strings.Contains(err.Error(), "fitness_results_by_campaign: create the view") || !strings.Contains(err.Error(), "no_such_column") {
		t.Fatal(err)
	}
	if last := log[len(log)-1]; !strings.Contains(last, "no_such_column") {
		t.Errorf("the last statement is %s", last)
	}
	table.Views[0].Query = "SELECT detect_id FROM {current}"
	s.apply(t, table)
}
