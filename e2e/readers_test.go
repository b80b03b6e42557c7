package e2e

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chprojector/projector/internal/fitness"
	"github.com/chprojector/projector/internal/testenv"
)

// profiles are what administrators give to readers, for better or worse. Each makes FINAL or filters work differently.
var profiles = map[string]string{
	"plain":            ``,
	"final_off":        `<final>0</final>`,
	"final_on":         `<final>1</final>`,
	"prewhere":         `<optimize_move_to_prewhere_if_final>1</optimize_move_to_prewhere_if_final>`,
	"across":           `<do_not_merge_across_partitions_select_final>0</do_not_merge_across_partitions_select_final>`,
	"not_across":       `<do_not_merge_across_partitions_select_final>1</do_not_merge_across_partitions_select_final>`,
	"readonly_1":       `<readonly>1</readonly>` + worst,
	"readonly_2":       `<readonly>2</readonly>` + worst,
	"constant":         worst + `<constraints><optimize_move_to_prewhere_if_final><const/></optimize_move_to_prewhere_if_final><final><const/></final><do_not_merge_across_partitions_select_final><const/></do_not_merge_across_partitions_select_final></constraints>`,
	"old_compatible":   `<compatibility>23.8</compatibility><optimize_move_to_prewhere_if_final>1</optimize_move_to_prewhere_if_final>`,
	"old_analyzer":     `<enable_analyzer>0</enable_analyzer>` + worst,
	"skip_index_wrong": `<use_skip_indexes_if_final>1</use_skip_indexes_if_final><use_skip_indexes_if_final_exact_mode>0</use_skip_indexes_if_final_exact_mode>`,
}

const worst = `<final>1</final><optimize_move_to_prewhere_if_final>1</optimize_move_to_prewhere_if_final>` +
	`<do_not_merge_across_partitions_select_final>1</do_not_merge_across_partitions_select_final>`

// TestReaderProfiles: rows written by the binary, in several unmerged parts, look the same to everybody.
func TestReaderProfiles(t *testing.T) {
	t.Parallel()
	var elements, users strings.Builder
	for name, settings := range profiles {
		fmt.Fprintf(&elements, "<%s>%s</%[1]s>", name, settings)
		fmt.Fprintf(&users, "<%s><password></password><profile>%[1]s</profile><grants><query>GRANT SELECT ON reporting.*</query></grants></%[1]s>", name)
	}
	// Wide parts of small granules: the server then reads less than FINAL needs wherever it may.
	config := replaced(t, repositoryConfig(t), "# table_settings: {} ", "table_settings: {min_bytes_for_wide_part: 0, min_rows_for_wide_part: 0, index_granularity: 64} ")
	w := newWorld(t, setup{partitions: 2, config: config, server: testenv.NewClickHouse(t, testenv.ClickHouseConfig{
		Databases: []string{"reporting"}, Profiles: elements.String(), Users: users.String(),
	})})
	w.apply()
	w.exec("ALTER TABLE fitness_results_g1 ADD INDEX i result TYPE minmax GRANULARITY 1", "SYSTEM STOP MERGES fitness_results_g1")
	g := events(t, 20_000, 4)
	w.fill(g)
	p := w.start("projector", "batch.rows=3000", "lanes=1")
	w.settle()
	p.drain()
	if parts := w.ask("SELECT max(c) FROM (SELECT count() AS c FROM system.parts WHERE active AND database = 'reporting' GROUP BY partition)"); len(parts) == 1 && parts < "3" {
		t.Fatalf("%s parts in a partition: there is nothing that FINAL has to merge", parts)
	}
	m := model(t, g)
	w.equals(m)

	// What the views must show, by the generator's own account.
	newest := map[uint64]fitness.Event{}
	for i := range g.Len() {
		if e := g.At(i); e.Version >= newest[e.DataID].Version {
			newest[e.DataID] = e
		}
	}
	// So few that whole granules hold none of them: what a skip index would leave out.
	const filter, limit = "result > 5900", 5_900_000
	rows, above, campaigns := 0, 0, map[[2]uint64]int{}
	for _, e := range newest {
		if e.IsDeleted {
			continue
		}
		rows++
		campaigns[[2]uint64{e.DetectID, uint64(e.ProjectID)}]++
		if e.Result > limit {
			above++
		}
	}
	questions := []struct{ query, want string }{
		{"SELECT count() FROM reporting.fitness_results_current", fmt.Sprint(rows)},
		{"SELECT count() FROM reporting.fitness_results_current WHERE " + filter, fmt.Sprint(above)},
		{"SELECT count(), sum(results) FROM reporting.fitness_results_by_campaign", fmt.Sprintf("%d\t%d", len(campaigns), rows)},
	}
	// Everything else must be what the plain reader, whom the model has confirmed, sees.
	for _, query := range []string{
		"SELECT count(), sum(sipHash64(*)) FROM reporting.fitness_results_current",
		"SELECT count(), sum(sipHash64(*)) FROM reporting.fitness_results_current WHERE version < 3 AND unit != 'cm'",
		"SELECT count(), sum(sipHash64(*)) FROM reporting.fitness_results_by_campaign",
		"SELECT count(), sum(sipHash64(*)) FROM reporting.fitness_results_by_campaign WHERE best > 20 AND project_id IN (3, 7)",
		"SELECT count() FROM reporting.fitness_results_versions",
		"SELECT count() FROM reporting.fitness_results_conflicts",
	} {
		questions = append(questions, struct{ query, want string }{query, w.ask(query)})
	}
	for name := range profiles {
		for _, q := range questions {
			got, err := w.db.QueryAs(t.Context(), url.UserPassword(name, ""), q.query)
			if err != nil || strings.TrimSuffix(got, "\n") != q.want {
				t.Errorf("%s: %s\n is %q, %v; want %q", name, q.query, got, err, q.want)
			}
		}
	}
	// The data must be such that a filter before the merge goes wrong, or all of this shows nothing.
	const sums = "SELECT count(), sum(version) FROM reporting."
	right := w.ask(sums + "fitness_results_current WHERE " + filter)
	for name, naive := range map[string]string{
		"plain":            sums + "fitness_results_g1 FINAL PREWHERE " + filter + " WHERE NOT is_deleted",
		"skip_index_wrong": sums + "fitness_results_g1 FINAL WHERE " + filter + " AND NOT is_deleted",
	} {
		got, err := w.db.QueryAs(t.Context(), url.UserPassword(name, ""), naive)
		if err != nil || strings.TrimSuffix(got, "\n") == right {
			t.Errorf("%s: %s is right (%q, %v)", name, naive, got, err)
		}
	}
}
