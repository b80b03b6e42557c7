package clickhouse_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/mapping"
)

// TestSuperseded compares rows with a table whose key has columns of every kind that a key may have.
func TestSuperseded(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	columns := []string{
		"id UInt64", "region LowCardinality(String)", "at DateTime64(3, 'UTC')", "amount Decimal(18, 3)", "code FixedString(2)",
		"uid UUID", "kind Enum8('a' = 1, 'b' = 2)", "ok Bool", "day Date", "text String",
	}
	key := []string{"region", "id", "at", "amount", "code", "uid", "kind", "ok", "day", "text"}
	p := plan(t, 1, columns...)
	var ddl string
	for _, c := range p.Spec().Columns {
		if c.Name != "ver" {
			ddl += fmt.Sprintf("%s %s, ", c.Name, c.Type)
		}
	}
	db.Exec(t, "CREATE TABLE t ("+ddl+lineage+") ENGINE = ReplacingMergeTree(ver) ORDER BY (region, id, at, amount, code, uid, kind, ok, day, text)")
	event := func(id, version int, text string) string {
		return fmt.Sprintf(`{"id":%d,"ver":%d,"region":"eu","at":"2026-06-01T02:30:00.25Z","amount":-1.5,"code":"xy","uid":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","kind":"b","ok":true,"day":"2026-06-01","text":%q}`, id, version, text)
	}
	in := newInserter(t, config(db), "t")
	quote := `it's "so" \ 🏃`
	stored := rows(t, p, event(1, 5, "x"), event(1, 7, "x"), event(2, 1, "x"), event(3, 9, quote))
	if err := in.Insert(t.Context(), batch(stored)); err != nil {
		t.Fatal(err)
	}
	asked := rows(t, p, event(9, 1, "x"), event(1, 6, "x"), event(1, 7, "x"), event(1, 8, "x"), event(2, 1, "y"), event(3, 9, quote), event(4, 1, "x"))
	want := []bool{true, true, false, false, true, false}
	for range 2 { // over the same connection
		got, err := in.Superseded(t.Context(), asked, 1, asked.Len(), key, "ver")
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	}
	if got, err := in.Superseded(t.Context(), asked, 3, 3, key, "ver"); err != nil || len(got) != 0 {
		t.Errorf("no rows: %v, %v", got, err)
	}
	if _, err := in.Superseded(t.Context(), asked, 0, 1, []string{"nothing"}, "ver"); err == nil {
		t.Error("a column that is not there was compared")
	}
	if err := in.Insert(t.Context(), batch(asked)); err != nil {
		t.Errorf("an insert after a comparison: %v", err)
	}
}

// TestHolds tells the row of a record from one of the same key and version that was read elsewhere.
func TestHolds(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	p := plan(t, 1, "id UInt64", "name String")
	db.Exec(t, "CREATE TABLE t (id UInt64, name String, "+lineage+") ENGINE = MergeTree ORDER BY id")
	in := newInserter(t, config(db), "t")
	row := func(r *mapping.Rows, id, version int, offset int64, origin string) {
		t.Helper()
		at := mapping.Lineage{Topic: "results", Partition: 3, Offset: offset, Origin: origin}
		if err := p.Append(r, fmt.Appendf(nil, `{"id":%d,"ver":%d,"name":"n"}`, id, version), at); err != nil {
			t.Fatal(err)
		}
	}
	stored, asked := p.NewRows(), p.NewRows()
	row(stored, 1, 1, 10, chschema.OriginStream)
	row(stored, 1, 1, 10, chschema.OriginStream) // twice, as after a crash
	row(stored, 2, 1, 11, "backfill:1")
	row(asked, 1, 1, 10, chschema.OriginStream)
	row(asked, 1, 2, 10, chschema.OriginStream)
	row(asked, 1, 1, 12, chschema.OriginStream)
	row(asked, 2, 1, 11, chschema.OriginStream)
	if err := in.Insert(t.Context(), batch(stored)); err != nil {
		t.Fatal(err)
	}
	got, err := in.Holds(t.Context(), asked, 0, asked.Len(), []string{"id"}, "ver")
	if diff := cmp.Diff([]bool{true, false, false, false}, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}
