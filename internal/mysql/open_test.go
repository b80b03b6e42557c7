package mysql_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chprojector/projector/internal/credentials"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Whatever the DSN asks for, a session is the one that values are exact in.
func TestSessionIsAlwaysTheSame(t *testing.T) {
	server := testenv.SharedMariaDB(t)
	dsn := server.DSN() + "?time_zone=%27%2B05%3A30%27&sql_mode=%27%27&parseTime=true&charset=latin1&loc=Europe%2FBerlin"
	db, err := mysql.Shard{Name: "s0", DSN: credentials.Secret{Value: dsn}}.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var zone, mode, charset, instant, emoji, decimal string
	const query = "SELECT @@time_zone, @@sql_mode, @@character_set_client, CAST('2026-06-01 10:00:00.123456' AS DATETIME(6)), '🏃', CAST('2.310' AS DECIMAL(18,3))"
	if err := db.QueryRowContext(t.Context(), query).Scan(&zone, &mode, &charset, &instant, &emoji, &decimal); err != nil {
		t.Fatal(err)
	}
	if zone != "+00:00" || !strings.Contains(mode, "STRICT_ALL_TABLES") || charset != "utf8mb4" {
		t.Errorf("session has time_zone %q, sql_mode %q, character set %q", zone, mode, charset)
	}
	if instant != "2026-06-01 10:00:00.123456" || emoji != "🏃" || decimal != "2.310" {
		t.Errorf("values are %q, %q, %q", instant, emoji, decimal)
	}
}

// A server whose globals cut results short, or leave transactions open, does so to no session of ours; nor does a DSN.
func TestSessionReadsAndCommitsAll(t *testing.T) {
	server := testenv.NewMariaDB(t, testenv.MariaDBConfig{Databases: []string{"app"}})
	err := server.Exec(t.Context(), "SET GLOBAL sql_select_limit = 2, GLOBAL autocommit = 0, GLOBAL completion_type = CHAIN")
	if err != nil {
		t.Fatal(err)
	}
	dsn := server.DSN("app") + "?sql_select_limit=3&autocommit=0&AUTOCOMMIT=0&SQL_Select_Limit=1&TIME_ZONE=%27%2B05%3A30%27"
	db, err := mysql.Shard{Name: "s0", DSN: credentials.Secret{Value: dsn}}.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), "SELECT seq FROM seq_1_to_1000")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		n++
	}
	if err := rows.Err(); err != nil || n != 1000 {
		t.Errorf("%d of 1000 rows: %v", n, err)
	}
	var autocommit bool
	var completion, zone string
	var wait int
	if err := db.QueryRowContext(t.Context(), "SELECT @@autocommit, @@completion_type, @@time_zone, @@lock_wait_timeout").Scan(&autocommit, &completion, &zone, &wait); err != nil {
		t.Fatal(err)
	}
	if !autocommit || completion != "NO_CHAIN" || zone != "+00:00" || wait != 60 {
		t.Errorf("session has autocommit %t, completion_type %s, time_zone %s, lock_wait_timeout %d", autocommit, completion, zone, wait)
	}
}

func TestOpenRefusesAWrongDSN(t *testing.T) {
	for name, dsn := range map[string]string{
		"not a DSN":   "mysql://root:hunter2@localhost/x",
		"no database": "root:hunter2@tcp(localhost:3306)/",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := mysql.Shard{Name: "s7", DSN: credentials.Secret{Value: dsn}}.Open(1)
			if err == nil {
				t.Fatal("it was taken")
			}
			if text := err.Error(); !strings.Contains(text, "s7") || strings.Contains(text, "hunter2") {
				t.Errorf("the error does not name the shard, or tells the password: %s", text)
			}
		})
	}
}

// A rotated file is used by the next connection.
func TestOpenReadsTheFileAgain(t *testing.T) {
	server := testenv.SharedMariaDB(t)
	file := filepath.Join(t.TempDir(), "dsn")
	write := func(dsn string) {
		if err := os.WriteFile(file, []byte(dsn+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("nobody:wrong@tcp(127.0.0.1:1)/nowhere")
	db, err := mysql.Shard{Name: "s0", DSN: credentials.Secret{File: file}}.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.PingContext(t.Context()); err == nil {
		t.Fatal("a server that is not there answers")
	}
	write(server.DSN())
	if err := db.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A server that accepts connections and says nothing is waited for only so long.
func TestOpenOfASilentServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dsn := "root@tcp(" + silent.Addr().String() + ")/app?timeout=20ms"
	db, err := mysql.Shard{Name: "s0", DSN: credentials.Secret{Value: dsn}}.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err = db.PingContext(ctx)
	for _, want := range []string{"the server at " + silent.Addr().String() + " does not answer: no session within 80ms", "does the shard's dsn or dsn_file in source.shards name a MySQL server"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
