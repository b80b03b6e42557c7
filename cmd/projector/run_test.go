package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/chprojector/projector/internal/fitness"
	"github.com/chprojector/projector/internal/testenv"
)

func story() (values [][]byte) {
	for _, step := range fitness.Story() {
		values = append(values, step.Value)
	}
	return values
}

// Whoever was told to stop says so before it is done: nothing writes to a log
// that nobody keeps any more.
func TestEndIsToldBeforeItComes(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for want, run := range map[string]func(context.Context, time.Duration, zerolog.Logger) error{
		"draining": stations{}.run,
		"stopping": relays{}.run,
	} {
		var log bytes.Buffer
		if err := run(ctx, time.Minute, zerolog.New(&log)); err != nil {
			t.Error(err)
		}
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %q", want, log.String())
		}
	}
}

// TestRun plays the teacher's story through the whole program: schema, run,
// status, SIGTERM.
func TestRun(t *testing.T) {
	w := newWorld(t, "fitness-results")
	w.must(exitDone, "schema", "apply", "--yes")
	r := w.start()
	r.ready()
	w.produce(story()...)
	w.until("the correction is visible", func() bool {
		return w.rows("SELECT data_id, version, result FROM fitness_results_current ORDER BY data_id") == "1\t2\t2.31\n"
	})
	w.until("all of it is committed", func() bool { return w.status().Lag == 0 })

	s := w.status()
	if s.Parked["fitness-results-dlq"]["format"] != 1 || s.Stored == 0 || s.Code != exitDone {
		t.Errorf("status is %+v", s)
	}
	table := w.must(exitDone, "status").stdout
	for _, want := range []string{"projection     fitness_results\n", "lag            0\n", " ago (", "  format 1\n", "group          projector.fitness_results.g1\n"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	for path, want := range map[string]string{
		"/metrics": `projector_rows_total{projection="fitness_results"} 7`,
		"/livez":   `{"ok":true}`,
		"/":        "assets/page.js",
	} {
		if code, body := r.probe(path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, no %s in\n%s", path, code, want, body)
		}
	}
	documented, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	var metrics string
	w.until("it has looked at the record", func() bool {
		_, metrics = r.probe("/metrics")
		return strings.Contains(metrics, "projector_conflicts{")
	})
	exported := map[string]bool{
		"projector_fetch_errors_total": true, // with the first error
		"projector_busy_ratio":         true, // after the first seconds
		"projector_drain_seconds":      true,

		"projector_discrepancies":                    true, // with the first comparison
		"projector_last_reconcile_timestamp_seconds": true,

		"projector_operations":                          true, // with the first operation
		"projector_operations_oldest_timestamp_seconds": true,

		"projector_heartbeat_age_seconds": true, // with outbox.heartbeat
	}
	for _, m := range regexp.MustCompile(`(?m)^# HELP (projector_\w+) `).FindAllStringSubmatch(metrics, -1) {
		exported[m[1]] = true
		if !strings.Contains(string(documented), "`"+m[1]+"`") {
			t.Errorf("docs/commands.md does not describe %s", m[1])
		}
	}
	_, table, _ = strings.Cut(string(documented), "### Metrics\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, m := range regexp.MustCompile("`(projector_\\w+)`").FindAllStringSubmatch(table, -1) {
		if !exported[m[1]] {
			t.Errorf("docs/commands.md describes %s, which is not exported", m[1])
		}
	}
	r.stop()
	if code := r.end(); code != exitDone {
		t.Errorf("exit code %d after the drain\n%s", code, r.log)
	}
	if got := w.rows("SELECT count() FROM fitness_results_versions"); got != "7\n" {
		t.Errorf("%s rows, want 7: one for each event that is none of a letter", got)
	}
}

// statusOf is the part of `status -o json` that tests look at.
type statusOf struct {
	Code   int
	Lag    int64
	Stored int64
	Parked map[string]map[string]int
}

func (w *world) status() (s statusOf) {
	w.t.Helper()
	got := w.run("status", "-o", "json")
	var all []projectionStatus
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil {
		w.t.Fatalf("%v\n%s%s", err, got.stdout, got.stderr)
	}
	s.Code, s.Lag, s.Parked = got.code, -1, map[string]map[string]int{}
	for _, p := range all {
		if p.Lag != nil {
			s.Lag = *p.Lag
		}
		for _, part := range p.Partitions {
			if part.Stored != nil {
				s.Stored = max(s.Stored, *part.Stored)
			}
		}
		for _, l := range p.Letters {
			s.Parked[l.Topic] = l.Classes
		}
	}
	return s
}

// TestRunRefuses holds that a table which would make reports wrong ends the
// process before anything is consumed, with what to do about it.
func TestRunRefuses(t *testing.T) {
	for _, c := range []struct{ name, ddl, want string }{
		{"other order key", "ORDER BY (data_id)", "ordered by"},
		{"other version column", "VERSION", "version column"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "fitness-results")
			ddl := strings.Join(strings.SplitAfter(w.must(exitDone, "schema", "print").stdout, ";\n")[1:2], "")
			switch c.ddl {
			case "VERSION":
				ddl = strings.Replace(ddl, "ReplacingMergeTree(`version`)", "ReplacingMergeTree(`user_id`)", 1)
			default:
				ddl = strings.Replace(strings.Replace(ddl, "ORDER BY (`detect_id`, `data_id`)", c.ddl, 1), "PARTITION BY detect_id % 8", "", 1)
			}
			w.db.Exec(t, strings.TrimSuffix(strings.TrimSpace(ddl), ";"))
			w.produce(story()...)
			r := w.start()
			if code := r.end(); code != exitFailed {
				t.Fatalf("exit code %d, want %d", code, exitFailed)
			}
			for _, want := range []string{c.want, "rebuild", `"level":"error"`, `"projection":"fitness_results"`} {
				if !strings.Contains(r.log.String(), want) {
					t.Errorf("no %q in\n%s", want, r.log)
				}
			}
			if got := w.rows("SELECT count() FROM fitness_results_g1"); got != "0\n" {
				t.Errorf("%s rows were written", got)
			}
			if s := w.status(); s.Lag != int64(len(story())) {
				t.Errorf("something was committed: lag %d", s.Lag)
			}
		})
	}
}

// TestFatalWhileRunning drops the table under a running process.
func TestFatalWhileRunning(t *testing.T) {
	w := newWorld(t, "fitness-results")
	w.must(exitDone, "schema", "apply", "--yes")
	r := w.start()
	r.ready()
	w.db.Exec(t, "DROP TABLE fitness_results_g1")
	w.produce(story()...)
	if code := r.end(); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if !strings.Contains(r.log.String(), "`projector schema apply` creates it anew") {
		t.Errorf("the log does not say what to do:\n%s", r.log)
	}
	if s := w.status(); s.Lag != int64(len(story())) || s.Code != exitFailed {
		t.Errorf("status is %+v; want nothing committed, and the table's part unknown", s)
	}
}

// TestSecondSignal needs a process: signals and os.Exit are the process's.
func TestSecondSignal(t *testing.T) {
	w := newWorld(t, "fitness-results")
	w.must(exitDone, "schema", "apply", "--yes")

	t.Run("first drains", func(t *testing.T) {
		command, log := w.process("run")
		w.until("it consumes", func() bool { return strings.Contains(log.String(), `"message":"consuming"`) })
		for range 2 { // one request that arrives twice, as from timeout(1)
			if err := command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		_ = command.Wait()
		if code := command.ProcessState.ExitCode(); code != exitDone {
			t.Errorf("exit code %d\n%s", code, log)
		}
	})
	t.Run("second ends at once", func(t *testing.T) {
		// A server that hangs holds the drain up.
		command, log := w.process("run")
		w.until("it consumes", func() bool { return strings.Contains(log.String(), `"message":"consuming"`) })
		if err := w.db.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := w.db.Signal(syscall.SIGCONT); err != nil {
				t.Error(err)
			}
		}()
		w.produce(story()...)
		w.until("a batch is under way", func() bool {
			_, metrics := get(t, probesOf(log)+"/metrics")
			return strings.Contains(metrics, `projector_records_total{projection="fitness_results",topic="fitness-results"} 8`)
		})
		if err := command.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		w.until("it drains", func() bool { return strings.Contains(log.String(), "draining") })
		if err := command.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		_ = command.Wait()
		if code := command.ProcessState.ExitCode(); code != exitForced {
			t.Errorf("exit code %d, want %d\n%s", code, exitForced, log)
		}
	})
}

// TestRunWrongPassword tells what waiting cannot cure from what it can.
func TestRunWrongPassword(t *testing.T) {
	w := newWorld(t, "fitness-results")
	// A server of its own: this one does not survive a failed authentication.
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{Users: `<bob><password>secret</password></bob>`})
	r := w.start("--set", "clickhouse.addresses="+server.Addr(), "--set", "clickhouse.username=bob", "--set", "clickhouse.password=wrong")
	if code := r.end(); code != exitFailed {
		t.Errorf("exit code %d, want %d\n%s", code, exitFailed, r.log)
	}
	for _, want := range []string{"bob", "516", "correct clickhouse.username and clickhouse.password_file"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("no %q in\n%s", want, r.log)
		}
	}
	if strings.Contains(r.log.String(), "wrong") {
		t.Errorf("the password is logged:\n%s", r.log)
	}
}

// TestRunRefusesAsyncInserts meets a profile that does not let the session
// switch asynchronous inserts off: an answer would not mean that rows are stored.
func TestRunRefusesAsyncInserts(t *testing.T) {
	w := newWorld(t, "fitness-results")
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{
		Profile: `<async_insert>1</async_insert><constraints><async_insert><const/></async_insert></constraints>`,
	})
	r := w.start("--set", "clickhouse.addresses="+server.Addr())
	if code := r.end(); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if log := r.log.String(); !strings.Contains(log, "must admit async_insert=0") {
		t.Errorf("the log does not say what to do:\n%s", log)
	}
}

// TestLogIsJSON holds that every line of a log is one.
func TestLogIsJSON(t *testing.T) {
	w := newWorld(t, "fitness-results")
	w.must(exitDone, "schema", "apply", "--yes")
	r := w.start("--log-level", "debug")
	r.ready()
	r.stop()
	r.end()
	var own []string
	for line := range strings.Lines(r.log.String()) {
		var l struct{ Level, Time, Message string }
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Level == "" || l.Time == "" || l.Message == "" {
			t.Errorf("%v: %s", err, line)
		}
		if strings.Count(line, `"projection":`) > 1 {
			t.Errorf("a key is there twice: %s", line)
		}
		switch l.Message {
		case "joined the group", "gave partitions back": // how often depends on the group
		default:
			if l.Level != "debug" {
				own = append(own, l.Message)
			}
		}
	}
	want := []string{"starting", "serving /metrics, /livez, /readyz and the status page", "consuming", "draining: finishing what was begun; a second signal stops at once", "stopped"}
	if diff := cmp.Diff(want, own); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
