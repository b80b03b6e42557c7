package main

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/chprojector/projector/internal/outbox"
	"github.com/chprojector/projector/internal/testenv"
)

// The line that `up` prints for a relay works as it stands, in a shell that has evaluated the addresses: what is written
// into the outbox is in Kafka a moment later.
func TestUpOffersARelay(t *testing.T) {
	projector, err := testenv.Build(t.Context(), "projector")
	if err != nil {
		t.Fatal(err)
	}
	d := start(t, "up", "--ports=free", "--no-clickhouse", "--mariadb", "-o", "json")
	e := d.ready()
	var hint, addresses bytes.Buffer
	if err := errors.Join(e.hint(&hint), e.print(&addresses, "shell")); err != nil {
		t.Fatal(err)
	}
	_, command, found := strings.Cut(hint.String(), "\n")
	if !found || !strings.Contains(command, " relay\n") {
		t.Fatalf("the hint is %q", hint.String())
	}
	free := strings.Replace(command, "http.address=localhost:8081", "http.address=127.0.0.1:0", 1) // other tests have servers, too
	relay := exec.Command("sh", "-c", addresses.String()+"exec 2>&1; trap : TERM; "+free)          // the shell waits for the relay
	relay.Dir, relay.Env = "../..", append(os.Environ(), "PATH="+filepath.Dir(projector)+":"+os.Getenv("PATH"))
	relay.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var log bytes.Buffer
	relay.Stdout = &log
	if err := relay.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceValue(func() error {
		_ = syscall.Kill(-relay.Process.Pid, syscall.SIGTERM)
		return relay.Wait()
	})
	t.Cleanup(func() { _ = stop() })
	db, err := sql.Open("mysql", e.MariaDB.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, err = db.Exec("INSERT INTO outbox (event_id, aggregate_type, aggregate_id, version, payload) VALUES ('e1', 'fitness_result', '1', 1, '{}')")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the event is sent", func() bool {
		var state string
		return db.QueryRow("SELECT state FROM outbox").Scan(&state) == nil && state == outbox.Sent
	})
	if err := stop(); err != nil {
		t.Errorf("the relay ended with %v\n%s", err, &log)
	}
	if code := d.end(syscall.SIGTERM); code != 0 || !strings.Contains(d.stderr.String(), hint.String()) {
		t.Errorf("exit code %d; up does not print the hint on stderr: %s", code, d.stderr)
	}
}
