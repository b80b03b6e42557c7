package chschema_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/chprojector/projector/chschema"
)

// row is a version of a record. Its content follows from id and version, so
// that the order of inserts decides nothing.
type row struct {
	ID      uint64 `ch:"data_id"`
	Detect  uint64 `ch:"detect_id"`
	Project uint32 `ch:"project_id"`
	Version uint64 `ch:"version"`
	Result  int64  `ch:"result"`
	Unit    string `ch:"unit"`
	deleted bool
}

// newRow makes odd versions large and even ones small: a filter that runs
// before the merge then finds the old version instead of the current one.
func newRow(id, version uint64) row {
	r := rand.New(rand.NewPCG(id, version))
	result := r.Int64N(10)
	if version%2 == 1 {
		result = 1000 + r.Int64N(1000)
	}
	return row{id, id % 13, uint32(id % 3), version, result, fmt.Sprint("u", r.IntN(20)), r.IntN(6) == 0}
}

// current is the independent model of the view.
func current(rows []row) []row {
	newest := map[uint64]row{}
	for _, r := range rows {
		if old, ok := newest[r.ID]; !ok || r.Version > old.Version {
			newest[r.ID] = r
		}
	}
	var live []row
	for _, r := range newest {
		if !r.deleted {
			live = append(live, r)
		}
	}
	slices.SortFunc(live, func(a, b row) int { return int(a.ID) - int(b.ID) })
	return live
}

// viewTable has wide parts and small granules, so that a filter can skip much.
func viewTable(database string) chschema.Table {
	return chschema.Table{
		Database: database, Name: "r", Generation: 1,
		Columns: columns("data_id UInt64", "detect_id UInt64", "project_id UInt32", "version UInt64", "result Int64",
			"unit String", "is_deleted Bool"),
		Identity: []string{"data_id"}, OrderBy: []string{"detect_id", "data_id"}, PartitionBy: "detect_id % 4",
		Version: "version", Deleted: "is_deleted", Campaign: "detect_id",
		Views: []chschema.View{{Name: "by_detect", Query: "SELECT detect_id, count() AS results, sum(result) AS total, max(result) AS best FROM {current} GROUP BY detect_id"}},
		Settings: map[string]string{
			"index_granularity": "16", "min_bytes_for_wide_part": "0", "min_rows_for_wide_part": "0",
			"auto_statistics_types": "minmax, uniq",
		},
	}
}

// skipIndexes are what an administrator may add for speed: further ways to read
// less than FINAL needs.
const skipIndexes = "ALTER TABLE r_g1 ADD INDEX a result TYPE minmax GRANULARITY 1, ADD INDEX b unit TYPE set(100) GRANULARITY 1, " +
	"ADD INDEX c unit TYPE bloom_filter GRANULARITY 1, ADD INDEX d version TYPE minmax GRANULARITY 1, ADD INDEX e is_deleted TYPE set(2) GRANULARITY 1"

func newViews(t *testing.T) (server, chschema.Table) {
	t.Helper()
	s := newServer(t)
	table := viewTable(s.Name)
	s.apply(t, table)
	s.exec(t, skipIndexes)
	return s, table
}

// insert writes blocks as they are, equal keys included.
func insert(t testing.TB, s server, blocks ...[]row) {
	t.Helper()
	for i, block := range blocks {
		var values []string
		for j, r := range block {
			values = append(values, fmt.Sprintf("(%d, %d, %d, %d, %d, '%s', %t, 'topic', %d, %d, 'stream', 1)",
				r.ID, r.Detect, r.Project, r.Version, r.Result, r.Unit, r.deleted, r.ID%4, i*1000+j))
		}
		if len(values) == 0 {
			continue
		}
		err := s.conn.Exec(context.WithoutCancel(t.Context()), "INSERT INTO r_g1 (data_id, detect_id, project_id, version, result, unit, is_deleted, "+
			"_topic, _partition, _offset, _origin, _generation) SETTINGS optimize_on_insert = 0, async_insert = 0, insert_deduplicate = 0 VALUES "+
			strings.Join(values, ", "))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// history is what a stream with late events and duplicates leaves.
func history(ids, blocks, perBlock int) [][]row {
	r := rand.New(rand.NewPCG(1, 2))
	newest := map[uint64]uint64{}
	list := make([][]row, blocks)
	for i := range list {
		for range perBlock {
			id := r.Uint64N(uint64(ids))
			newest[id]++
			version := newest[id]
			if r.IntN(3) == 0 {
				version = 1 + r.Uint64N(version)
			}
			list[i] = append(list[i], newRow(id, version))
		}
	}
	return list
}

// question is a query on the current rows and its answer by the model.
type question struct {
	query  string
	answer func(live []row) string
}

func sum(live []row, keep func(row) bool) string {
	var n, total, versions, ids uint64
	for _, r := range live {
		if keep(r) {
			n++
			total += uint64(r.Result)
			versions += r.Version
			ids += r.ID
		}
	}
	return fmt.Sprint(n, " ", total, " ", versions, " ", ids)
}

const sums = "SELECT concatWithSeparator(' ', toString(count()), toString(sum(result)), toString(sum(version)), toString(sum(data_id))) AS answer FROM "

var questions = []question{
	{sums + "r_current", func(l []row) string { return sum(l, func(row) bool { return true }) }},
	{sums + "r_current WHERE result > 500", func(l []row) string { return sum(l, func(r row) bool { return r.Result > 500 }) }},
	{sums + "r_current WHERE result < 5 AND project_id != 1", func(l []row) string {
		return sum(l, func(r row) bool { return r.Result < 5 && r.Project != 1 })
	}},
	{sums + "r_current WHERE unit IN ('u1', 'u2', 'u3')", func(l []row) string {
		return sum(l, func(r row) bool { return r.Unit == "u1" || r.Unit == "u2" || r.Unit == "u3" })
	}},
	{sums + "r_current WHERE version = 1", func(l []row) string { return sum(l, func(r row) bool { return r.Version == 1 }) }},
	{sums + "r_current WHERE detect_id = 7 AND unit != 'u1'", func(l []row) string {
		return sum(l, func(r row) bool { return r.Detect == 7 && r.Unit != "u1" })
	}},
	{sums + "(SELECT * FROM r_current WHERE data_id < 50) WHERE NOT is_deleted AND result > 500", func(l []row) string {
		return sum(l, func(r row) bool { return r.ID < 50 && r.Result > 500 })
	}},
	{sums + "r_current AS a JOIN (SELECT arrayJoin(range(1500, 2000)) AS wanted) AS b ON a.result = toInt64(b.wanted)", func(l []row) string {
		return sum(l, func(r row) bool { return r.Result >= 1500 })
	}},
	{sums + "r_current WHERE result IN (SELECT arrayJoin(range(1200, 1700)))", func(l []row) string {
		return sum(l, func(r row) bool { return r.Result >= 1200 && r.Result < 1700 })
	}},
	{"SELECT concatWithSeparator(' ', toString(sum(results)), toString(sum(total)), toString(max(best))) AS answer FROM by_detect WHERE best > 500", func(l []row) string {
		best := map[uint64]int64{}
		for _, r := range l {
			best[r.Detect] = max(best[r.Detect], r.Result)
		}
		var n, total, most int64
		for _, r := range l {
			if best[r.Detect] > 500 {
				n++
				total += r.Result
				most = max(most, r.Result)
			}
		}
		return fmt.Sprint(n, " ", total, " ", most)
	}},
	{"SELECT arrayStringConcat(groupArray(toString(result)), ' ') AS answer FROM (SELECT result FROM r_current ORDER BY result DESC, data_id LIMIT 5)", func(l []row) string {
		var results []int64
		for _, r := range l {
			results = append(results, r.Result)
		}
		slices.SortFunc(results, func(a, b int64) int { return int(b - a) })
		return strings.Trim(fmt.Sprint(results[:min(5, len(results))]), "[]")
	}},
}

func ask(ctx context.Context, conn chschema.Conn, query string) (string, error) {
	var rows []struct {
		Answer string `ch:"answer"`
	}
	if err := conn.Select(ctx, &rows, query); err != nil {
		return "", err
	}
	if len(rows) != 1 {
		return "", fmt.Errorf("%d rows", len(rows))
	}
	return rows[0].Answer, nil
}

// hostile are settings that a profile, a session or a query may carry and that
// turn FINAL, filters or indexes against the views, alone or together.
var hostile = []clickhouse.Settings{
	{},
	{"final": 0},
	{"final": 1},
	{"optimize_move_to_prewhere_if_final": 1},
	{"do_not_merge_across_partitions_select_final": 0},
	{"do_not_merge_across_partitions_select_final": 1, "final": 1, "optimize_move_to_prewhere_if_final": 1},
	{"enable_automatic_decision_for_merging_across_partitions_for_final": 0, "do_not_merge_across_partitions_select_final": 0},
	{"use_skip_indexes_if_final": 1, "use_skip_indexes_if_final_exact_mode": 0},
	{"use_skip_indexes_if_final": 0, "optimize_move_to_prewhere_if_final": 1},
	{"apply_row_policy_after_final": 0, "apply_prewhere_after_final": 0, "optimize_move_to_prewhere_if_final": 1},
	{"apply_deleted_mask": 0},
	{"enable_analyzer": 0, "optimize_move_to_prewhere_if_final": 1, "final": 1},
	{"enable_analyzer": 0, "use_skip_indexes_if_final_exact_mode": 0},
	{"query_plan_optimize_lazy_final": 1, "min_filtered_ratio_for_lazy_final": 0},
	{"optimize_prewhere_after_pushdown": 1, "optimize_move_to_prewhere_if_final": 1},
	{"defer_partition_pruning_after_final": 0},
	{"use_query_condition_cache": 1, "optimize_move_to_prewhere_if_final": 1},
	{"compatibility": "22.8"},
	{"compatibility": "24.3", "optimize_move_to_prewhere_if_final": 1},
	{"compatibility": "25.3"},
	{"max_threads": 1, "max_block_size": 7},
	{"max_threads": 8, "preferred_block_size_bytes": 1},
}

func TestCurrentUnderHostileSettings(t *testing.T) {
	s, _ := newViews(t)
	// What DELETE FROM removed stays away.
	insert(t, s, []row{newRow(1000, 1), newRow(1001, 1), newRow(1002, 2)})
	s.exec(t, "DELETE FROM r_g1 WHERE data_id >= 1000", "SYSTEM STOP MERGES r_g1")
	blocks := history(300, 4, 300)
	insert(t, s, blocks...)
	live := current(slices.Concat(blocks...))
	for _, settings := range hostile {
		ctx := clickhouse.Context(t.Context(), clickhouse.WithSettings(settings))
		for _, q := range questions {
			got, err := ask(ctx, s.conn, q.query)
			if _, cached := settings["use_query_condition_cache"]; cached && err == nil && got == q.answer(live) {
				got, err = ask(ctx, s.conn, q.query)
			}
			if err != nil || got != q.answer(live) {
				t.Errorf("%v\n%s\n got %s, %v\nwant %s", settings, q.query, got, err, q.answer(live))
			}
		}
	}
}

// unrelated settings do not reach the plan of a read from this table.
const unrelated = "s3|azure|hdfs|kafka|rabbit|nats|mongo|http_|async_insert|backup|iceberg|delta|hudi|log_|odbc|mysql|postgre|sqlite|" +
	"insert|alter|create|drop|keeper|ddl|zookeeper|filesystem|database_|table_engine|file_|output_|input_|format|mutations|replicated|" +
	"experimental|web|url|vector|text_index|stream|remote|dictionar|cloud|materialized|role|query_log|trace|profile"

// TestCurrentUnderEveryFlag flips each boolean setting that could reach the
// plan of a read. One that makes a query fail is right too: it gives no wrong
// number.
func TestCurrentUnderEveryFlag(t *testing.T) {
	s, _ := newViews(t)
	s.exec(t, "SYSTEM STOP MERGES r_g1")
	blocks := history(200, 3, 200)
	insert(t, s, blocks...)
	live := current(slices.Concat(blocks...))
	var flags []struct {
		Name  string `ch:"name"`
		Value string `ch:"value"`
	}
	if err := s.conn.Select(t.Context(), &flags, "SELECT name, value FROM system.settings WHERE type = 'Bool' AND NOT is_obsolete AND NOT match(name, '"+unrelated+"') ORDER BY name"); err != nil {
		t.Fatal(err)
	}
	answered := 0
	for _, flag := range flags {
		ctx := clickhouse.Context(t.Context(), clickhouse.WithSettings(clickhouse.Settings{flag.Name: 1 - int(flag.Value[0]-'0')}))
		for _, i := range []int{3, 7, 9} {
			got, err := ask(ctx, s.conn, questions[i].query)
			if err != nil {
				continue
			}
			answered++
			if got != questions[i].answer(live) {
				t.Errorf("%s: %s\n got %s\nwant %s", flag.Name, questions[i].query, got, questions[i].answer(live))
			}
		}
	}
	if answered < len(flags)*3*9/10 {
		t.Errorf("only %d of %d questions were answered", answered, len(flags)*3)
	}
	t.Logf("%d of %d questions answered", answered, len(flags)*3)
}

// TestCurrentEqualsTheModel: random versions, duplicates and deletions in
// random blocks, merged or not.
func TestCurrentEqualsTheModel(t *testing.T) {
	s, _ := newViews(t)
	checks(t, 25)
	rapid.Check(t, func(r *rapid.T) {
		blocks := rapid.SliceOfN(rapid.SliceOfN(rapid.Custom(func(r *rapid.T) row {
			return newRow(rapid.Uint64Range(0, 30).Draw(r, "id"), rapid.Uint64Range(0, 5).Draw(r, "version"))
		}), 0, 60), 1, 4).Draw(r, "blocks")
		optimize := rapid.IntRange(-1, len(blocks)).Draw(r, "merge after block")
		settings := rapid.SampledFrom(hostile).Draw(r, "settings")
		s.exec(t, "TRUNCATE TABLE r_g1")
		for i, block := range blocks {
			insert(t, s, block)
			if i == optimize {
				s.exec(t, "OPTIMIZE TABLE r_g1")
			}
		}
		if optimize == len(blocks) {
			s.exec(t, "OPTIMIZE TABLE r_g1 FINAL")
		}
		ctx := clickhouse.Context(t.Context(), clickhouse.WithSettings(settings))
		var got []row
		if err := s.conn.Select(ctx, &got, "SELECT data_id, detect_id, project_id, version, result, unit FROM r_current ORDER BY data_id"); err != nil {
			r.Fatal(err)
		}
		live := current(slices.Concat(blocks...))
		if diff := cmp.Diff(live, got, cmp.AllowUnexported(row{})); diff != "" {
			r.Fatalf("%v:\n%s", settings, diff)
		}
		for range 3 {
			q := rapid.SampledFrom(questions).Draw(r, "question")
			if answer, err := ask(ctx, s.conn, q.query); err != nil || answer != q.answer(live) {
				r.Fatalf("%v\n%s\n got %s, %v\nwant %s", settings, q.query, answer, err, q.answer(live))
			}
		}
	})
}
