package clickhouse_test

import (
	"testing"

	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/projector"
)

// TestInsertIntoALongerEnum is a deployment that was rolled back: the table has
// names that its configuration does not know yet.
func TestInsertIntoALongerEnum(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	db.Exec(t, "CREATE TABLE t (id UInt64, kind Enum8('new' = -5, 'a' = 1, 'between' = 2, 'b' = 3), "+lineage+") ENGINE = MergeTree ORDER BY id")
	in := newInserter(t, config(db), "t")
	r := rows(t, plan(t, 1, "id UInt64", "kind Enum8('a' = 1, 'b' = 3)"), `{"id":1,"kind":"b"}`, `{"id":2,"kind":"a"}`)
	if err := in.Insert(t.Context(), projector.Batch{Rows: r, From: 0, To: 2, Token: "t"}); err != nil {
		t.Fatal(err)
	}
	if got, want := query(t, db, "SELECT id, kind FROM t ORDER BY id"), "1\tb\n2\ta"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
