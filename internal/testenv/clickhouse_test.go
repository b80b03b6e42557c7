package testenv

import (
	"net/url"
	"strings"
	"testing"
)

func TestClickHouseSurvivesKill(t *testing.T) {
	server := NewClickHouse(t, ClickHouseConfig{
		Databases: []string{"reporting"},
		Users:     "<bob><password>secret</password><grants><query>GRANT SELECT ON reporting.*</query></grants></bob>",
	})
	exec := func(statement string) string {
		t.Helper()
		out, err := server.Query(t.Context(), statement)
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		return strings.TrimSpace(out)
	}
	exec("CREATE TABLE reporting.t (a UInt64) ENGINE = MergeTree ORDER BY a")
	exec("INSERT INTO reporting.t VALUES (1), (2)")
	before := server.PID()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Query(t.Context(), "SELECT 1"); err == nil {
		t.Error("a killed server answers")
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if server.PID() == before {
		t.Error("the restarted server has the process id of the killed one")
	}
	if got := exec("SELECT sum(a) FROM reporting.t"); got != "3" {
		t.Errorf("after the restart sum(a) = %s, want 3", got)
	}
	bob := url.UserPassword("bob", "secret")
	if got, err := server.QueryAs(t.Context(), bob, "SELECT sum(a) FROM reporting.t"); err != nil || got != "3\n" {
		t.Errorf("bob sees %q, %v", got, err)
	}
	if _, err := server.QueryAs(t.Context(), bob, "INSERT INTO reporting.t VALUES (3)"); err == nil {
		t.Error("bob inserts without the right to")
	}
	if _, err := server.QueryAs(t.Context(), url.UserPassword("bob", "wrong"), "SELECT 1"); err == nil {
		t.Error("bob gets in with a wrong password")
	}
}
