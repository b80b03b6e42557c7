package clickhouse_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/projector"
)

// TestRetryReachesTheView: an insert stored its rows and then failed in a materialized view. The next attempt has the
// same token, by which the server knows that the table has them; the view must get them all the same, and the table
// not twice.
func TestRetryReachesTheView(t *testing.T) {
	const window = " SETTINGS non_replicated_deduplication_window = 1000"
	for _, c := range []struct{ name, target, want string }{
		{"views into tables with a window", window, "table 10, views 10 and 10"},
		// Each attempt, of which there are four, and two get past the view that fails.
		{"views into tables without one", "", "table 10, views 20 and 40"},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := testenv.SharedClickHouse(t)
			db.Exec(t,
				"CREATE TABLE t (id UInt64, name String, "+lineage+") ENGINE = ReplacingMergeTree(ver) ORDER BY id"+window,
				"CREATE TABLE broken (x UInt8) ENGINE = Memory", "INSERT INTO broken VALUES (1)",
				"CREATE TABLE names (id UInt64, name String) ENGINE = MergeTree ORDER BY id"+c.target,
				"CREATE TABLE sums (id UInt64, n UInt64) ENGINE = SummingMergeTree ORDER BY id"+c.target,
				"CREATE MATERIALIZED VIEW good TO sums AS SELECT id % 2 AS id, count() AS n FROM t GROUP BY id",
				"CREATE MATERIALIZED VIEW picky TO names AS SELECT id, name FROM t WHERE throwIf((SELECT count() FROM broken) > 0 AND id >= 0) = 0")
			in := newInserter(t, config(db), "t")
			r := numbered(t, plan(t, 1, "id UInt64", "name String"), 10)
			b := projector.Batch{Rows: r, To: 10, Token: "once"}
			for range 2 {
				err := in.Insert(t.Context(), b)
				refused, ok := errors.AsType[*projector.InsertError](err)
				if !ok || refused.Class != projector.Fatal || refused.View != db.Name+".picky" {
					t.Fatalf("%v: %+v", err, refused)
				}
			}
			db.Exec(t, "TRUNCATE TABLE broken")
			for range 2 { // an answer may be lost too
				if err := in.Insert(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			got := fmt.Sprintf("table %s, views %s and %s", query(t, db, "SELECT count() FROM t"), query(t, db, "SELECT count() FROM names"), query(t, db, "SELECT sum(n) FROM sums"))
			if got != c.want || query(t, db, "SELECT uniqExact(id) FROM names") != "10" {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
