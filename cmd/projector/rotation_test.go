package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chprojector/projector/internal/testenv"
)

// TestRunOutlivesItsPassword rotates the password of a running process: that of the user on the server, whose
// connections break meanwhile, and only then the file. Inserts, heartbeats, the watch and the status page each go on by
// themselves.
func TestRunOutlivesItsPassword(t *testing.T) {
	w := newWorld(t, "fitness-results", "projector-heartbeat")
	bob := func(password string) string { return "<bob><password>" + password + "</password></bob>" }
	// A server of its own, whose users are changed by a restart: it has no ALTER USER.
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{Databases: []string{"reporting"}, Users: bob("first")})
	w.db = &testenv.ClickHouseDatabase{ClickHouse: server, Name: "reporting"}
	password := filepath.Join(t.TempDir(), "password")
	replaced(t, password, "", "first\n")
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.flags[1] = filepath.Join(t.TempDir(), "config.yaml")
	replaced(t, w.flags[1], "", strings.Replace(string(text), "\n# The authoritative MySQL", heartbeat+"\n# The authoritative MySQL", 1)+
		"  heartbeat: {projection: heartbeat, interval: 10s}\n") // seldom, for inserts are to be refused as well
	w.flags = append(w.flags, "--set", "clickhouse.addresses="+server.Addr(), "--set", "clickhouse.database=reporting",
		"--set", "clickhouse.username=bob", "--set", "clickhouse.password_file="+password)
	w.must(exitDone, "schema", "apply", "--yes")
	r := w.start()
	r.works(1)

	users := filepath.Join(server.Dir(), "users.xml")
	replaced(t, users, bob("first"), bob("second"))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	event := result(1, 2, 2310)
	w.produce(event.AppendJSON(nil))
	refused := regexp.MustCompile(`projector_insert_retries_total\{class="unknown",projection="fitness_results"\} [1-9]`)
	w.until("the old password is refused", func() bool {
		// It does not survive a failed authentication for long, not even while it starts, and somebody else's may come first.
		if server.Running() != nil {
			_ = server.Restart(t.Context())
		}
		_, metrics := r.probe("/metrics")
		return refused.MatchString(metrics)
	})
	replaced(t, password, "first", "second")
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.works(2)
	r.ready()
}

// works waits until everything that asks ClickHouse has had an answer since the call. n numbers the calls from 1.
func (r *running) works(n int) {
	w := r.w
	w.t.Helper()
	begin := time.Now()
	for _, thousandths := range []int64{2210, 2310} { // a contradiction
		event := result(uint64(n), 1, thousandths)
		w.produce(event.AppendJSON(nil))
	}
	w.produceTo("projector-heartbeat", fmt.Appendf(nil, `{"shard":"s0","version":%d,"at":%q}`, n, begin.UTC().Format("2006-01-02T15:04:05.000000Z")))
	w.until("rows are inserted", func() bool {
		return w.rows(fmt.Sprintf("SELECT count() FROM fitness_results_g1 WHERE data_id = %d", n)) == "2\n" &&
			w.rows("SELECT max(version) FROM projector_heartbeat_g1") == fmt.Sprintln(n)
	})
	age := regexp.MustCompile(`projector_heartbeat_age_seconds\{shard="s0"\} ([0-9.e+-]+)`)
	w.until("the heartbeat is read back", func() bool {
		_, metrics := r.probe("/metrics")
		m := age.FindStringSubmatch(metrics)
		seconds, err := strconv.ParseFloat(m[1], 64)
		return err == nil && seconds < time.Since(begin).Seconds()+1 // the watch before it took longer than that
	})
	w.until("the page has asked", func() bool {
		var page pageStatus
		if _, body := r.probe("/api/status"); json.Unmarshal([]byte(body), &page) != nil {
			return false
		}
		stored := page.Projections[0].Asked[partStored]
		return stored != nil && stored.After(begin) && len(page.Projections[0].Status.Unknown) == 0 &&
			page.Operations.Data != nil && page.Operations.Asked.After(begin)
	})
	w.until("the watch has found the contradiction", func() bool {
		_, metrics := r.probe("/metrics")
		return strings.Contains(metrics, fmt.Sprintf("projector_conflicts{projection=\"fitness_results\"} %d\n", n))
	})
}

// replaced writes a file anew with another text in it; without an old one, from nothing.
func replaced(t *testing.T, path, before, after string) {
	t.Helper()
	if before != "" {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), before) {
			t.Fatalf("no %q in %s: %v", before, path, err)
		}
		after = strings.Replace(string(text), before, after, 1)
	}
	if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
		t.Fatal(err)
	}
}
