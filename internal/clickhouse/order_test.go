package clickhouse_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

// TestAnyDeliveryGivesTheSameView: in whatever order the versions of records arrive, however often, through whichever
// partition and lane and in whatever batches, the view shows the highest version of each record that is not a deletion.
// Rows, blocks, table and view are the real ones.
func TestAnyDeliveryGivesTheSameView(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	p, table := orders(t, db)
	db.Exec(t, table.Statements()...)
	// Rows of all lanes, and so their memory, go on from one check to the next.
	var lanes []*mapping.Rows
	var inserters []*clickhouse.Inserter
	for range 3 {
		lanes = append(lanes, p.NewRows())
		inserters = append(inserters, newInserter(t, config(db), table.Physical()))
	}
	deliveries := 0
	rapid.Check(t, func(rt *rapid.T) {
		db.Exec(t, "TRUNCATE TABLE "+table.Physical())
		type state struct{ record, version int }
		var sent []state
		newest := map[int]int{}
		for record := range rapid.IntRange(1, 4).Draw(rt, "records") {
			for _, version := range rapid.SliceOfNDistinct(rapid.IntRange(1, 9), 1, 5, rapid.ID).Draw(rt, "versions") {
				newest[record] = max(newest[record], version)
				for range rapid.IntRange(1, 3).Draw(rt, "times") {
					sent = append(sent, state{record, version})
				}
			}
		}
		sent = rapid.Permutation(sent).Draw(rt, "order")
		insert := func(lane int) {
			r := lanes[lane]
			if err := inserters[lane].Insert(t.Context(), projector.Batch{Rows: r, To: r.Len()}); err != nil {
				rt.Fatal(err)
			}
			r.Reset()
		}
		for i, s := range sent {
			lane := rapid.IntRange(0, len(lanes)-1).Draw(rt, "lane")
			// A deletion is any version whose number divides by 3; the content is a function of the version.
			event := fmt.Appendf(nil, `{"id":%d,"version":%d,"amount":%d.5,"deleted":%t}`, s.record, s.version, 10*s.version, s.version%3 == 0)
			if err := p.Append(lanes[lane], event, mapping.Lineage{Topic: "orders", Partition: int32(lane), Offset: int64(i), Origin: "stream"}); err != nil {
				rt.Fatal(err)
			}
			if rapid.IntRange(0, 5).Draw(rt, "seal") == 0 {
				insert(lane)
			}
			deliveries++
		}
		for lane := range lanes {
			insert(lane)
		}
		if rapid.Bool().Draw(rt, "merged") {
			db.Exec(t, "OPTIMIZE TABLE "+table.Physical()+" FINAL")
		}
		var want []string
		for record := range len(newest) {
			if v := newest[record]; v%3 != 0 {
				want = append(want, fmt.Sprintf("%d\t%d\t%d.5", record, v, 10*v))
			}
		}
		if got := query(t, db, "SELECT id, version, amount FROM orders_current ORDER BY id"); got != strings.Join(want, "\n") {
			rt.Fatalf("the view has\n%s\nwant\n%s\nafter %v", got, strings.Join(want, "\n"), sent)
		}
		if got := query(t, db, "SELECT count() FROM orders_conflicts"); got != "0" {
			rt.Fatalf("%s conflicts", got)
		}
	})
	t.Logf("%d deliveries", deliveries)
}

func orders(t *testing.T, db *testenv.ClickHouseDatabase) (*mapping.Plan, chschema.Table) {
	t.Helper()
	table := chschema.Table{
		Database: db.Name, Name: "orders", Generation: 1, Identity: []string{"id"}, OrderBy: []string{"id"}, PartitionBy: "id % 2",
		Version: "version", Deleted: "deleted",
	}
	spec := mapping.Spec{Generation: 1, Identity: table.Identity, Version: table.Version, Deleted: table.Deleted}
	for _, c := range [][2]string{{"id", "UInt64"}, {"version", "UInt64"}, {"amount", "Decimal(18, 3)"}, {"deleted", "Bool"}} {
		typ, err := chschema.ParseType(c[1])
		if err != nil {
			t.Fatal(err)
		}
		table.Columns = append(table.Columns, chschema.Column{Name: c[0], Type: typ})
		spec.Columns = append(spec.Columns, mapping.Column{Name: c[0], From: c[0], Type: typ})
	}
	p, err := mapping.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p, table
}
