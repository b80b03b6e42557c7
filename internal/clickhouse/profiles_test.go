package clickhouse_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/rebuild"
	"github.com/chprojector/projector/internal/reconcile"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/mapping"
)

// profiles are settings that a user's profile may have and that change what a
// query answers, or what a statement creates.
var profiles = []string{
	"limit=1", "offset=1", "final=1", "additional_result_filter=0", "additional_table_filters={'d.facts_g1':'id > 5','d.facts_g2':'id > 7'}",
	"extremes=1", "join_default_strictness=ANY", "use_query_cache=1", "aggregate_functions_null_for_empty=1",
	"date_time_output_format=iso", "session_timezone=Asia/Tokyo", "output_format_decimal_trailing_zeros=1", "bool_true_representation=yes",
	"join_use_nulls=1", "join_algorithm=full_sorting_merge", "transform_null_in=1", "empty_result_for_aggregation_by_empty_set=1",
	"group_by_use_nulls=1", "prefer_column_name_to_alias=1", "cast_keep_nullable=1", "flatten_nested=0", "union_default_mode=DISTINCT",
	"optimize_move_to_prewhere_if_final=1", "do_not_merge_across_partitions_select_final=1", "compatibility=21.1", "enable_analyzer=0",
	"default_table_engine=Log", "async_insert=1",
}

// TestProfiles: whatever a user's profile says, the answers are those of a user
// without one.
func TestProfiles(t *testing.T) {
	var users, texts strings.Builder
	for i, p := range profiles {
		fmt.Fprintf(&users, "<u%d><password></password><profile>p%[1]d</profile><networks><ip>::/0</ip></networks></u%[1]d>", i)
		fmt.Fprintf(&texts, "<p%d>", i)
		for setting := range strings.SplitSeq(p, ";") {
			name, value, _ := strings.Cut(setting, "=")
			fmt.Fprintf(&texts, "<%s>%s</%[1]s>", name, strings.ReplaceAll(value, ">", "&gt;"))
		}
		fmt.Fprintf(&texts, "</p%d>", i)
	}
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{Databases: []string{"d"}, Profiles: texts.String(), Users: users.String()})
	ask := newQuestions(t, server)
	want := ask.answers(t, "default", 1000)
	again := ask.answers(t, "default", 1001)
	if diff := cmp.Diff(want, again); diff != "" {
		t.Fatal(diff)
	}
	for i, p := range profiles {
		t.Run(p, func(t *testing.T) {
			for name, got := range ask.answers(t, fmt.Sprintf("u%d", i), i+1) {
				if got != want[name] {
					t.Errorf("%s:\n%s\nwant\n%s", name, got, want[name])
				}
			}
		})
	}
}

// questions are asked of two generations of a table with differences planted.
type questions struct {
	server   *testenv.ClickHouse
	table    chschema.Table
	contract *contract.Contract
	plan     *mapping.Plan
}

func newQuestions(t *testing.T, server *testenv.ClickHouse) *questions {
	t.Helper()
	q := &questions{server: server}
	names := []string{
		"id UInt64", "code Decimal(9, 3)", "campaign UInt32", "school Nullable(String)", "score Nullable(Decimal(18, 3))", "at DateTime64(3, 'UTC')",
		"local DateTime", "day Date", "kind Enum8('a' = 1, 'b' = 2)", "ok Bool", "tag LowCardinality(Nullable(String))", "num Nullable(Int32)", "gone Bool",
	}
	q.plan = plan(t, 1, names...)
	q.table = chschema.Table{Database: "d", Name: "facts", Generation: 1, Identity: []string{"id", "code"}, OrderBy: []string{"campaign", "id", "code"}, Version: "ver", Campaign: "campaign", Deleted: "gone"}
	for _, c := range q.plan.Spec().Columns {
		q.table.Columns = append(q.table.Columns, chschema.Column{Name: c.Name, Type: c.Type})
	}
	spec := contract.Spec{
		Identity: q.table.Identity, OrderBy: q.table.OrderBy, Version: "ver", Campaign: "campaign", Deleted: "gone", Columns: q.table.Columns, Rows: "SELECT id FROM fact WHERE campaign = ?",
	}
	for name, class := range map[string]contract.Class{
		"id": contract.Integer, "code": contract.Decimal, "ver": contract.Integer, "school": contract.String, "score": contract.Decimal,
		"at": contract.Instant, "local": contract.Instant, "day": contract.Instant, "kind": contract.Enum, "ok": contract.Bool, "tag": contract.String, "num": contract.Integer,
	} {
		f := contract.Field{Column: name, Source: name, Class: class}
		if class == contract.Decimal {
			f.Scale = 3
		}
		spec.Fields = append(spec.Fields, f)
	}
	var err error
	if q.contract, err = contract.Compile(spec); err != nil {
		t.Fatal(err)
	}
	for _, generation := range []uint32{1, 2} {
		design := q.table
		design.Generation = generation
		for _, s := range design.Statements() {
			query(t, server, strings.Replace(s, "CREATE VIEW", "CREATE OR REPLACE VIEW", 1)) // both generations have them
		}
		query(t, server, fmt.Sprintf("SYSTEM STOP MERGES d.facts_g%d", generation))
		for version := 1; version < 4; version++ {
			query(t, server, fmt.Sprintf("INSERT INTO d.facts_g%d (id, code, campaign, ver, school, score, at, local, day, kind, ok, tag, num, gone, _topic, _partition, _offset, _ingested_at, _origin, _generation) "+
				"SELECT number + 1, 1.5, 7, %d, if(number %% 3 = 0, NULL, concat('s', toString(number + %[1]d * (number = 4)))), if(number = 2, NULL, 1.5), '2026-01-02 03:04:05.100', "+
				"'2026-01-02 03:04:05', '2026-01-02', 'b', number %% 2, if(number %% 2 = 0, NULL, 't'), if(number %% 2 = 0, NULL, 3), number = 8 AND %[2]d = 3, 'results', number %% 2, number + 100 * %[2]d, "+
				"'2026-01-02 03:04:05', 'stream', %[1]d FROM numbers(%[3]d)", generation, version, 10+2*generation-2*uint32(version/3)))
		}
		query(t, server, fmt.Sprintf("INSERT INTO d.facts_g%d SELECT * REPLACE (99 AS num) FROM d.facts_g%[1]d WHERE id IN (2, 3) AND ver = 3", generation))
	}
	return q
}

func (q *questions) answers(t *testing.T, user string, number int) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := clickhouse.Config{Addresses: []string{q.server.Addr()}, Database: "d", Username: user}
	conn, err := clickhouse.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reader := clickhouse.NewReader(conn)
	a := map[string]string{}
	put := func(name string, err error, what any) {
		if err != nil {
			a[name] = "error: " + err.Error()
			return
		}
		a[name] = fmt.Sprintf("%+v", what)
	}
	table := &reconcile.Table{Contract: q.contract, Name: "d.facts_g1", Reader: reader}
	scan := contract.Scan{Level: contract.Fields, Buckets: 4}
	growing := &reconcile.Table{Contract: q.contract, Name: fmt.Sprintf("d.growing%d", number), Reader: reader}
	query(t, q.server, "CREATE TABLE "+growing.Name+" AS d.facts_g1")
	for _, few := range []string{"id = 1", "id > 3"} {
		query(t, q.server, "INSERT INTO "+growing.Name+" SELECT * FROM d.facts_g1 WHERE "+few)
		sum, err := growing.Digests(ctx, "7", scan)
		put("digests once there are "+few, err, sum)
	}
	sum, err := table.Digests(ctx, "7", scan)
	put("digests", err, sum)
	records := map[string]reconcile.Record{}
	err = table.Records(ctx, "7", scan, func(r reconcile.Record) error { records[r.ID] = r; return nil })
	put("records", err, records)
	campaigns := map[string]bool{}
	err = table.Campaigns(ctx, campaigns)
	put("campaigns", err, campaigns)
	id := func(n int) string {
		s, _ := q.contract.IdentityOf([][]byte{fmt.Append(nil, n), []byte("1.5")})
		return s
	}
	physical, err := table.Physical(ctx, "7", []string{id(2), id(3)})
	for _, list := range physical {
		for i := range list {
			list[i].OrderKey, list[i].JSON = "", "" // for people, in the notation of their profile
		}
	}
	put("physical", err, physical)
	moved, err := table.Moved(ctx, []string{id(2), id(3)})
	put("moved", err, moved)
	for _, rules := range []*contract.Contract{q.contract, nil} {
		w := reconcile.Watch{Table: q.table, Contract: rules, Reader: reader}
		found, err := w.Look(ctx)
		put(fmt.Sprintf("watch, contract %t", rules != nil), err, found)
	}
	newer := q.table
	newer.Generation = 2
	var common []string
	for _, c := range q.table.Columns {
		common = append(common, c.Name)
	}
	d, err := rebuild.Differ(ctx, conn, q.table, newer, common, "7")
	put("rebuild", err, d)
	generations, err := rebuild.Generations(ctx, conn, q.table)
	put("generations", err, generations)

	rows := q.plan.NewRows()
	for i, v := range []int{1, 3, 4, 9} {
		for n := 2; n < 6; n++ {
			event := fmt.Sprintf(`{"id":%d,"code":"1.5","campaign":7,"ver":%d,"school":null,"score":null,"at":"2026-01-02T03:04:05Z","local":"2026-01-02T03:04:05Z","day":"2026-01-02","kind":"a","ok":true,"tag":null,"num":null,"gone":false}`, n, v)
			if err := q.plan.Append(rows, []byte(event), mapping.Lineage{Topic: "results", Partition: int32((n - 1) % 2), Offset: int64(n - 1 + 100*v + i/3), Origin: "stream"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	in, err := clickhouse.NewInserter(c, "facts_g1")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	put("inserter", in.Check(ctx), "ok")
	superseded, err := in.Superseded(ctx, rows, 0, rows.Len(), []string{"campaign", "id", "code"}, "ver")
	put("superseded", err, superseded)
	holds, err := in.Holds(ctx, rows, 0, rows.Len(), []string{"campaign", "id", "code"}, "ver")
	put("holds", err, holds)
	var highest []struct {
		Partition int32 `ch:"_partition"`
		Highest   int64 `ch:"highest"`
	}
	put("offsets", conn.Select(ctx, &highest, "SELECT _partition, max(_offset) AS highest FROM d.facts_g1 WHERE _origin = 'stream' GROUP BY _topic, _partition ORDER BY _partition SETTINGS final = 0"), nil)
	a["offsets"] += fmt.Sprint(highest)
	var anchor []struct {
		Offset int64 `ch:"_offset"`
	}
	put("anchor", conn.Select(ctx, &anchor, "SELECT DISTINCT _offset FROM d.facts_g1 WHERE _origin = 'stream' AND _topic = ? AND _partition = ? ORDER BY _offset DESC LIMIT 1 OFFSET 2 SETTINGS final = 0", "results", 1), nil)
	a["anchor"] += fmt.Sprint(anchor)

	// A table of one's own: what is created, found again, and stored.
	own := q.table
	own.Name = fmt.Sprintf("own%d", number)
	state, err := chschema.Inspect(ctx, conn, own)
	if err == nil {
		err = chschema.Apply(ctx, conn, chschema.Diff(own, state), nil)
	}
	put("apply", err, "ok")
	state, err = chschema.Inspect(ctx, conn, own)
	if err == nil {
		put("check", chschema.Check(ctx, conn, own), chschema.Diff(own, state))
	} else {
		put("check", err, nil)
	}
	a["created"] = strings.ReplaceAll(query(t, q.server, "SELECT create_table_query FROM system.tables WHERE database = 'd' AND name LIKE '"+own.Name+"\\_%' OR name = '"+own.Name+"' ORDER BY name FORMAT TSVRaw"), own.Name, "own")
	a["created"] = regexp.MustCompile(`\[projector own [0-9a-f ]*\]|DEFINER = \w+`).ReplaceAllString(a["created"], "")
	stored, err := clickhouse.NewInserter(c, own.Physical())
	if err != nil {
		t.Fatal(err)
	}
	defer stored.Close()
	put("insert", stored.Insert(ctx, batch(rows)), "ok")
	out, err := q.server.Query(ctx, "SELECT count(), groupBitXor(cityHash64(* EXCEPT (_ingested_at))) FROM d."+own.Physical())
	put("stored", err, out)
	return a
}
