package clickhouse_test

import (
	"testing"

	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/projector"
)

// TestColumnOnOneReplicaOnly: of two servers one lacks a column that the configuration has, as during a change of the
// table. What the first refuses is asked of the schema, and the next attempt reaches the other one.
func TestColumnOnOneReplicaOnly(t *testing.T) {
	var addresses []string
	for _, columns := range []string{"id UInt64, name String, ", "id UInt64, "} {
		server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{Databases: []string{"reporting"}})
		query(t, server, "CREATE TABLE reporting.t ("+columns+lineage+") ENGINE = MergeTree ORDER BY id")
		addresses = append(addresses, server.Addr())
	}
	r := numbered(t, plan(t, 1, "id UInt64", "name String"), 10)
	for range 50 { // an inserter begins with either
		in := newInserter(t, clickhouse.Config{Addresses: addresses, Database: "reporting"}, "t")
		err := in.Insert(t.Context(), batch(r))
		if err == nil {
			continue
		}
		if class, code := classOf(t, err); class != projector.Refresh || code != 16 {
			t.Fatalf("class %s, code %d: %v", class, code, err)
		}
		for range 2 { // and stays there
			if err := in.Insert(t.Context(), batch(r)); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	t.Error("no inserter began with the server that lacks the column")
}
