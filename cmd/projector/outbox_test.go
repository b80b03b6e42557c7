package main

import (
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/chprojector/projector/internal/testenv"
)

// TestComposeHasTheOutbox: the MySQL of docker-compose.yml begins with the table that this program prints, so that its
// relay works at once.
func TestComposeHasTheOutbox(t *testing.T) {
	file, err := os.ReadFile("../../deploy/compose/mysql.sql")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, flags: []string{"--config", "../../config.yaml"}}
	if printed := w.must(exitDone, "outbox", "ddl").stdout; !strings.HasSuffix(string(file), "\n"+printed) {
		t.Errorf("deploy/compose/mysql.sql does not end with what `projector outbox ddl` prints:\n%s", printed)
	}
	if testing.Short() {
		t.Skip("needs servers")
	}
	server := testenv.SharedMariaDB(t)
	db, err := sql.Open("mysql", server.DSN()+"?multiStatements=true")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(string(file)); err != nil {
		t.Fatal(err)
	}
	config := t.TempDir() + "/config.yaml"
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(strings.Replace(string(text), "dsn_file: /run/secrets/s0", "dsn: '"+server.DSN()+"'", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	w.flags[1] = config
	if got := w.must(exitDone, "outbox", "list"); got.stdout != "no parked events\n" { // it probes the table first
		t.Errorf("outbox list says\n%s%s", got.stdout, got.stderr)
	}
}
