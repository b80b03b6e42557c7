package rebuild_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/rebuild"
	"github.com/chprojector/projector/internal/testenv"
)

func column(t *testing.T, name, text string) chschema.Column {
	t.Helper()
	kind, err := chschema.ParseType(text)
	if err != nil {
		t.Fatal(err)
	}
	return chschema.Column{Name: name, Type: kind}
}

// TestDiffer holds each way in which two generations can differ, and that
// versions which were replaced, deletions and other campaigns count for none.
func TestDiffer(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	db := testenv.SharedClickHouse(t)
	conn, err := clickhouse.Open(clickhouse.Config{Addresses: []string{db.Addr()}, Username: "default"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	older := chschema.Table{
		Database: db.Name, Name: "results", Generation: 1, Identity: []string{"id"}, OrderBy: []string{"campaign", "id"},
		Version: "version", Deleted: "gone", Campaign: "campaign",
		Columns: []chschema.Column{
			column(t, "id", "UInt64"), column(t, "campaign", "String"), column(t, "version", "UInt64"), column(t, "gone", "Bool"),
			column(t, "school", "UInt32"), column(t, "note", "Nullable(String)"), column(t, "tags", "Array(String)"), column(t, "dropped", "String"),
		},
	}
	newer := older
	newer.Generation = 2
	newer.Columns = append(append([]chschema.Column{}, older.Columns[:7]...), column(t, "added", "String"))
	for _, table := range []chschema.Table{older, newer} {
		state, err := chschema.Inspect(t.Context(), conn, table)
		if err == nil {
			err = chschema.Apply(t.Context(), conn, chschema.DiffTable(table, state), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	insert := func(generation int, rows string) {
		t.Helper()
		db.Exec(t, fmt.Sprintf("INSERT INTO results_g%d (id, campaign, version, gone, school, note, tags, _generation) VALUES %s", generation, rows))
	}
	const same = "(1, 'a''b', 1, false, 7, NULL, ['x'], 2), "
	insert(1, same+`(2, 'a''b', 3, false, 900, NULL, [], 2), (3, 'a''b', 1, false, 7, 'n', [], 2), (4, 'a''b', 1, false, 7, NULL, ['a', 'b'], 2),
		(5, 'a''b', 1, false, 7, NULL, [], 2), (6, 'a''b', 1, false, 7, NULL, [], 2), (7, 'a''b', 2, true, 1, NULL, [], 2), (9, 'other', 1, false, 1, NULL, [], 2)`)
	insert(1, "(7, 'a''b', 1, false, 1, NULL, [], 2), (1, 'a''b', 0, false, 8, 'old', [], 2)")
	insert(2, same+`(2, 'a''b', 3, false, 107, NULL, [], 2), (3, 'a''b', 1, false, 7, NULL, [], 2), (4, 'a''b', 1, false, 8, NULL, ['a, b'], 2),
		(5, 'a''b', 2, false, 9, NULL, [], 2), (8, 'a''b', 1, false, 7, NULL, [], 2)`)
	common, err := rebuild.Common(t.Context(), conn, older, newer)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"id", "campaign", "version", "gone", "school", "note", "tags"}; !reflect.DeepEqual(common, want) {
		t.Errorf("common columns are %v, want %v", common, want)
	}
	got, err := rebuild.Differ(t.Context(), conn, older, newer, common, "a'b")
	want := rebuild.Difference{
		Campaign: "a'b", Old: 6, New: 6, Added: 1, Removed: 1, Versions: 1, Contents: 3,
		Columns: map[string]uint64{"school": 2, "note": 1, "tags": 1},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, got, want)
	}
	none, err := rebuild.Differ(t.Context(), conn, older, newer, common, "nobody's")
	if err != nil || none.Old+none.New+none.Added+none.Removed != 0 {
		t.Errorf("an unknown campaign: %v, %+v", err, none)
	}

	list, err := rebuild.Generations(t.Context(), conn, newer)
	if err != nil || len(list) != 2 || list[0].Table != "results_g1" || list[1].Number != 2 || list[1].Rows != 6 {
		t.Errorf("%v: generations are %+v", err, list)
	}
	db.Exec(t, newer.Drop())
	if common, err := rebuild.Common(t.Context(), conn, newer, older); err != nil || common != nil {
		t.Errorf("columns of a table that is gone: %v, %v", common, err)
	}
}
