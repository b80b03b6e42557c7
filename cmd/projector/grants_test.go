package main

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chprojector/projector/internal/testenv"
)

// accounts turns what `schema print --grants` prints into users of a server's configuration, which grants without naming
// the grantee.
func accounts(printed ...string) string {
	grants := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^(?:-- )?(GRANT .*) TO `(.*)`;$").FindAllStringSubmatch(strings.Join(printed, "\n"), -1) {
		grants[m[2]] += "<query>" + m[1] + "</query>"
	}
	var users strings.Builder
	for _, name := range slices.Sorted(maps.Keys(grants)) {
		fmt.Fprintf(&users, "<%s><password></password><grants>%s</grants></%[1]s>", name, grants[name])
	}
	return users.String()
}

// TestGrantsSuffice works through the commands, each as the user whom `schema print --grants` names for it, on a server
// that asks for every right as those from its packages do.
func TestGrantsSuffice(t *testing.T) {
	s := newSourceWorld(t, "fitness-results", "fitness-results-dlq")
	s.flags = append(s.flags, "--set", "clickhouse.database=reporting", "--set", "clickhouse.username=projector")
	g2 := s.generation(2, rightUnit, rightUnit)
	first := strings.ReplaceAll(s.must(0, "schema", "print", "--grants").stdout, "`projector_rebuild`", "`other`") // has those of the new generation alone
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{
		Databases: []string{"reporting"},
		Users:     accounts(first, g2.must(0, "schema", "print", "--grants").stdout),
		Server: "<access_control_improvements><select_from_system_db_requires_grant>true</select_from_system_db_requires_grant>" +
			"<on_cluster_queries_require_cluster_grant>true</on_cluster_queries_require_cluster_grant></access_control_improvements>",
	})
	for _, w := range []*sourceWorld{s, g2} {
		w.db = &testenv.ClickHouseDatabase{ClickHouse: server, Name: "reporting"}
		w.flags = append(w.flags, "--set", "clickhouse.addresses="+server.Addr())
	}
	as := func(w *sourceWorld, user string, args ...string) {
		t.Helper()
		w.must(0, append([]string{"--set", "clickhouse.username=" + user}, args...)...)
	}
	s.fill(50)
	as(s, "projector_schema", "schema", "apply", "--yes")
	as(s, "projector_schema", "schema", "check")
	as(s, "projector", "backfill", "--all", "--yes")
	as(s, "projector", "reconcile", "--all", "--settle", "300ms")
	old := s.start()
	old.ready()
	as(s, "projector", "status")
	as(s, "projector", "offsets", "show")
	if got, err := server.QueryAs(t.Context(), url.User("reader"), "SELECT count() > 0 FROM reporting.fitness_results_current"); err != nil || got != "1\n" {
		t.Errorf("the reader sees %s, %v", got, err)
	}

	s.plantDefect(defect{"unexpected", 7777, "", "(7777, 10001, 1, 3, 2, 1, 'm', 0, 'ghost')"})
	s.plantDefect(defect{"stale", 20, "UPDATE fitness_result SET version = 8, result = 9.875 WHERE data_id = 20", ""})
	for _, r := range s.planned(0, "--campaign", "10001,10002").Repairs {
		s.repaired(0, "apply", r.Operation, "--actor", "bob", "--yes")
		s.repaired(0, "verify", r.Operation, "--settle", "300ms")
	}
	s.wantRepaired(7777)
	s.wantRepaired(20)

	as(g2, "projector_rebuild", "rebuild", "start", "--yes")
	next := g2.start()
	next.ready()
	as(g2, "projector_rebuild", "rebuild", "verify", "--settle", "1s")
	as(g2, "projector_rebuild", "rebuild", "switch", "--yes")
	for _, r := range []*running{old, next} {
		if strings.Contains(r.log.String(), "497") {
			t.Errorf("a right is missing:\n%s", r.log)
		}
	}
	old.stop()
	old.end()
	as(g2, "projector_rebuild", "rebuild", "close", "--yes")
	as(g2, "projector_rebuild", "rebuild", "verify", "--settle", "1s")
	as(g2, "projector_rebuild", "rebuild", "close", "--drop", "--hold", "0s", "--yes")
	as(g2, "projector_rebuild", "rebuild", "status")
	as(g2, "projector_schema", "schema", "apply", "--yes")
	as(g2, "projector_schema", "schema", "check")
	as(g2, "projector", "status")
}
