package testenv

import "testing"

func TestSharedServersGiveEachTestItsDatabase(t *testing.T) {
	for _, name := range []string{"first with a table", "second: Tübingen/1"} {
		t.Run(name, func(t *testing.T) {
			clickhouse := SharedClickHouse(t)
			clickhouse.Exec(t, "CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a", "INSERT INTO t VALUES (1)")
			if got, err := clickhouse.Query(t.Context(), "SELECT count() FROM t"); err != nil || got != "1\n" {
				t.Errorf("ClickHouse counts %q, %v", got, err)
			}
			mariadb := SharedMariaDB(t)
			mariadb.Exec(t, "CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)")
		})
	}
	if out, err := shared.clickhouse.Query(t.Context(), "SELECT name FROM system.databases WHERE name LIKE '%1%'"); err != nil || out != "" {
		t.Errorf("databases remain: %q, %v", out, err)
	}
}
