package testenv

import (
	"database/sql"
	"testing"
)

func TestMariaDBSurvivesKill(t *testing.T) {
	server := NewMariaDB(t, MariaDBConfig{Databases: []string{"shard"}})
	db, err := sql.Open("mysql", server.DSN("shard"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{"CREATE TABLE t (id INT PRIMARY KEY) ENGINE=InnoDB", "INSERT INTO t VALUES (1), (2)"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.probe(t.Context()); err == nil {
		t.Error("a killed server answers")
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM t FOR UPDATE SKIP LOCKED").Scan(&rows); err != nil || rows != 2 {
		t.Errorf("%d rows after the restart, want 2 (%v)", rows, err)
	}
}
