package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/internal/fitness"
	"github.com/chprojector/projector/internal/testenv"
)

// heartbeat is the projection of docs/outbox.md.
const heartbeat = `
  - name: heartbeat
    topics: [projector-heartbeat]
    table: projector_heartbeat
    identity: [shard]
    order_by: [shard]
    version: version
    columns:
      - {name: shard, from: shard, type: String}
      - {name: version, from: version, type: UInt64}
      - {name: at, from: at, type: "DateTime64(6, 'UTC')"}
`

// outboxWorld is a world with two shards that have an outbox each.
type outboxWorld struct {
	*world
	shards []*sql.DB
}

func newOutboxWorld(t *testing.T) *outboxWorld {
	t.Helper()
	w := &outboxWorld{world: newWorld(t, "fitness-results", "projector-heartbeat")}
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for i := range 2 {
		server := testenv.SharedMariaDB(t)
		db, err := sql.Open("mysql", server.DSN())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		w.shards = append(w.shards, db)
		list = append(list, fmt.Sprintf("{name: s%d, dsn: %q}", i, server.DSN()))
	}
	config := strings.Replace(string(text), "{name: s0, dsn_file: /run/secrets/s0}", strings.Join(list, ", "), 1)
	config = strings.Replace(config, "\n# The authoritative MySQL", heartbeat+"\n# The authoritative MySQL", 1)
	config += "  heartbeat: {projection: heartbeat, interval: 1s}\n"
	w.flags[1] = filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(w.flags[1], []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ddl := w.must(exitDone, "outbox", "ddl").stdout
	for _, db := range w.shards {
		if _, err := db.Exec(ddl); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *outboxWorld) insert(shard int, e fitness.Event) {
	w.t.Helper()
	_, err := w.shards[shard].Exec("INSERT INTO outbox (event_id, aggregate_type, aggregate_id, version, payload) VALUES (?, 'fitness_result', ?, ?, ?)",
		fmt.Sprintf("%d-%d", e.DataID, e.Version), e.DataID, e.Version, string(e.AppendJSON(nil)))
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *outboxWorld) count(shard int, where string) (n int) {
	w.t.Helper()
	if err := w.shards[shard].QueryRow("SELECT COUNT(*) FROM outbox WHERE " + where).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func result(id, version uint64, thousandths int64) fitness.Event {
	return fitness.Event{DataID: id, DetectID: 10_000, UserID: 4, ProjectID: 3, Version: version, Result: thousandths, Decimals: 2, Unit: "m"}
}

// TestRelay brings corrections from two shards into the report, shows how fresh
// it is, and replays what was parked.
func TestRelay(t *testing.T) {
	w := newOutboxWorld(t)
	w.must(exitDone, "schema", "apply", "--yes")
	projecting, relaying := w.start(), w.startCommand("relay")
	relaying.ready()
	w.insert(0, result(1, 1, 2210))
	w.insert(1, result(2, 1, 1980))
	w.insert(0, result(1, 2, 2310))
	w.until("both shards' results are visible", func() bool {
		return w.rows("SELECT data_id, version, result FROM fitness_results_current ORDER BY data_id") == "1\t2\t2.31\n2\t1\t1.98\n"
	})
	// Freshness, of both shards, read back through the view.
	age := regexp.MustCompile(`projector_heartbeat_age_seconds\{shard="(s[01])"\} ([0-9.e+-]+)`)
	w.until("the heartbeats of both shards are visible", func() bool {
		return w.rows("SELECT uniqExact(shard) FROM projector_heartbeat_current") == "2\n"
	})
	w.until("their age is exported", func() bool {
		_, metrics := projecting.probe("/metrics")
		fresh := 0
		for _, m := range age.FindAllStringSubmatch(metrics, -1) {
			if seconds, err := strconv.ParseFloat(m[2], 64); err == nil && seconds < 10 {
				fresh++
			}
		}
		return fresh == 2
	})
	if got := w.rows("SELECT count() FROM fitness_results_versions"); got != "3\n" {
		t.Errorf("%s rows in the results, want 3: heartbeats stay out", got)
	}
	documented, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	_, metrics := relaying.probe("/metrics")
	for _, m := range regexp.MustCompile(`(?m)^# HELP (projector_\w+) `).FindAllStringSubmatch(metrics, -1) {
		if !strings.Contains(string(documented), "`"+m[1]+"`") {
			t.Errorf("docs/commands.md does not describe %s", m[1])
		}
	}
	for path, want := range map[string]string{"/livez": `{"ok":true}`, "/readyz": `{"ok":true}`, "/api/status": `"shard":"s1"`, "/metrics": `projector_outbox_sent_total{shard="s1"}`} {
		if code, body := relaying.probe(path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, no %s in\n%s", path, code, want, body)
		}
	}
	w.replay()
	relaying.stop()
	if code := relaying.end(); code != exitDone {
		t.Errorf("the relay ends with %d\n%s", code, relaying.log)
	}
	for shard := range w.shards {
		if n := w.count(shard, "state = 'claimed'"); n > 0 {
			t.Errorf("%d events of s%d are left claimed", n, shard)
		}
	}
}

// replay parks an event of s1, as ten refusals would, and replays it.
func (w *outboxWorld) replay() {
	t := w.t
	w.insert(1, result(3, 1, 1500))
	w.until("it is sent", func() bool { return w.count(1, "aggregate_id = '3' AND state = 'sent'") == 1 })
	if _, err := w.shards[1].Exec("UPDATE outbox SET state = 'parked', attempts = 10, last_error = 'MESSAGE_TOO_LARGE: too big' WHERE aggregate_id = '3'"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "s1     "},
		{[]string{"--by", "error"}, "MESSAGE_TOO_LARGE: too big"},
		{[]string{"--error", "nothing of the kind"}, "no parked events"},
		{[]string{"--shard", "s0"}, "no parked events"},
		{[]string{"--aggregate", "3", "--type", "fitness_result", "-o", "json"}, `"last_error": "MESSAGE_TOO_LARGE: too big"`},
		{[]string{"--state", "sent", "--shard", "s0", "--type", "fitness_result", "--limit", "1"}, "fitness_result"},
	} {
		if got := w.must(exitDone, append([]string{"outbox", "list"}, c.args...)...); !strings.Contains(got.stdout, c.want) {
			t.Errorf("outbox list %v: no %q in\n%s", c.args, c.want, got.stdout)
		}
	}
	if got := w.must(exitDone, "outbox", "replay", "--dry-run"); !regexp.MustCompile(`(?m)^s1 +1 +1$`).MatchString(got.stdout) || w.count(1, "state = 'parked'") != 1 {
		t.Errorf("dry run:\n%s", got.stdout)
	}
	if got := w.runWith("n\n", "outbox", "replay", "--reason", "a test"); got.code != exitFailed || w.count(1, "state = 'parked'") != 1 {
		t.Errorf("replayed in spite of a no: %+v", got)
	}
	if got := w.runWith("n\n", "outbox", "replay", "--reason", "a test", "-o", "json"); got.code != exitFailed || got.stdout != "" || !strings.Contains(got.stderr, "s1     1       1") {
		t.Errorf("a program's question: %+v", got)
	}
	if got := w.must(exitDone, "outbox", "replay", "--reason", "it's a test", "--actor", "eve", "--yes"); !strings.Contains(got.stdout, "1 event made due again") {
		t.Errorf("replay:\n%s", got.stdout)
	}
	w.until("it is sent again", func() bool { return w.count(1, "aggregate_id = '3' AND state = 'sent' AND attempts = 1") == 1 })
	record := w.rows("SELECT kind, state, actor, reason, scope, before, outcome FROM projector_operations ORDER BY sequence DESC LIMIT 1 FORMAT JSONEachRow")
	for _, want := range []string{`"kind":"outbox_replay"`, `"state":"applied"`, `"actor":"eve"`, `it's a test`, `s0`, `due_again`} {
		if !strings.Contains(record, want) {
			t.Errorf("no %s in the record %s", want, record)
		}
	}
	if got := w.must(exitDone, "--set", "clickhouse.addresses=127.0.0.1:1", "outbox", "replay", "--reason", "x", "--yes"); !strings.Contains(got.stdout, "s1     0       0") {
		t.Errorf("with nothing parked ClickHouse is not asked:\n%s%s", got.stdout, got.stderr)
	}
	w.replayForPrograms()
}

// replayForPrograms parks the event once more and replays it as a script does.
func (w *outboxWorld) replayForPrograms() {
	t := w.t
	if _, err := w.shards[1].Exec("UPDATE outbox SET state = 'parked', attempts = 10 WHERE aggregate_id = '3'"); err != nil {
		t.Fatal(err)
	}
	none := replayedShard{Shard: "s0"}
	for _, c := range []struct {
		args []string
		want replayedEvents
	}{
		{[]string{"--dry-run"}, replayedEvents{DryRun: true, Shards: []replayedShard{none, {"s1", 1, 1, 0}}}},
		{[]string{"--reason", "x", "--error", "nothing of the kind"}, replayedEvents{Shards: []replayedShard{none, {"s1", 1, 0, 0}}}},
		{[]string{"--reason", "x", "--yes"}, replayedEvents{Shards: []replayedShard{none, {"s1", 1, 1, 1}}}},
	} {
		got, text := replayedEvents{}, w.must(exitDone, append([]string{"outbox", "replay", "-o", "json"}, c.args...)...).stdout
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%v: %v in\n%s", c.args, err, text)
		}
		if got.Operation != "" {
			c.want.Operation = strings.TrimSpace(w.rows("SELECT argMax(id, began) FROM projector_operations"))
		}
		if d := cmp.Diff(c.want, got); d != "" || (got.Operation != "") != (got.Shards[1].DueAgain > 0) {
			t.Errorf("%v: -want +got:\n%s", c.args, d)
		}
	}
}

// TestRelayKilled ends relays by SIGKILL in the middle and at last by SIGTERM:
// everything is published, and nothing is left claimed.
func TestRelayKilled(t *testing.T) {
	w := newOutboxWorld(t)
	const events = 3000
	for shard := range w.shards {
		_, err := w.shards[shard].Exec(fmt.Sprintf("INSERT INTO outbox (event_id, aggregate_type, aggregate_id, version, payload) SELECT seq, 'fitness_result', seq, 1, '{}' FROM seq_1_to_%d", events))
		if err != nil {
			t.Fatal(err)
		}
	}
	for kill := range 3 {
		// What it holds is to be free soon after its death.
		command, _ := w.process("--set", "outbox.batch=50", "--set", "outbox.lease=1s", "--set", "outbox.publish_timeout=500ms", "relay")
		w.until("some more are sent", func() bool { return w.count(0, "state = 'sent'") > 100+300*kill })
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	command, log := w.process("relay")
	w.until("all are sent", func() bool {
		return w.count(0, "state <> 'sent' AND aggregate_type = 'fitness_result'")+w.count(1, "state <> 'sent' AND aggregate_type = 'fitness_result'") == 0
	})
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := command.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, log)
	}
	t.Logf("stopped in %s", time.Since(began).Round(time.Millisecond))
	if n := w.count(0, "state = 'claimed'") + w.count(1, "state = 'claimed'"); n > 0 {
		t.Errorf("%d events are left claimed", n)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), "fitness-results")
	if err != nil {
		t.Fatal(err)
	}
	records := int64(0)
	ends.Each(func(o kadm.ListedOffset) { records += o.Offset })
	if records < 2*events {
		t.Errorf("%d records in Kafka, want at least %d", records, 2*events)
	}
	t.Logf("%d events, %d repetitions after 3 kills", 2*events, records-2*events)
}

// TestRelaySecondSignal ends a relay that hangs in publishing: the first signal
// waits for Kafka, the second does not. What it held is published by the next one
// as soon as the lease is over.
func TestRelaySecondSignal(t *testing.T) {
	w := newOutboxWorld(t)
	var silent atomic.Bool
	silent.Store(true)
	asked := make(chan struct{}, 100)
	w.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		if silent.Load() {
			asked <- struct{}{}
		}
		return nil, nil, silent.Load() // taken, and never answered
	})
	w.insert(0, result(1, 1, 2210))
	// Nothing but the signal may end it while the test looks.
	command, log := w.process("--set", "outbox.lease=10m", "--set", "outbox.publish_timeout=4m", "--set", "drain_timeout=5m", "relay", "--shard", "s0")
	ended := make(chan struct{})
	go func() { defer close(ended); _ = command.Wait() }() // the exit code is looked at below
	signal := func(s syscall.Signal) {
		if err := command.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-asked:
	case <-ended:
		t.Fatalf("it ended by itself\n%s", log)
	}
	signal(syscall.SIGTERM)
	w.until("it has taken notice", func() bool { return strings.Contains(log.String(), "a second signal stops at once") })
	signal(syscall.SIGINT) // another one: the same at once could be an echo
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("ten seconds after the second signal it still runs")
	}
	if code := command.ProcessState.ExitCode(); code != exitForced {
		t.Errorf("exit code %d, want %d\n%s", code, exitForced, log)
	}
	if n := w.count(0, "aggregate_id = '1' AND state = 'claimed' AND attempts = 1"); n != 1 {
		t.Error("the event is not left to its lease")
	}
	silent.Store(false)
	if _, err := w.shards[0].Exec("UPDATE outbox SET due_at = NOW(6) WHERE state = 'claimed'"); err != nil { // ten minutes later
		t.Fatal(err)
	}
	next := w.startCommand("relay")
	w.until("the next relay has published it", func() bool { return w.count(0, "aggregate_id = '1' AND state = 'sent' AND attempts = 2") == 1 })
	next.stop()
	if code := next.end(); code != exitDone {
		t.Errorf("the next relay ends with %d", code)
	}
}

// TestRelayRefuses holds that a table on which claims would block everybody ends
// the process before anything is claimed, with the way out.
func TestRelayRefuses(t *testing.T) {
	w := newOutboxWorld(t)
	if _, err := w.shards[1].Exec("ALTER TABLE outbox DROP INDEX due"); err != nil {
		t.Fatal(err)
	}
	if got := w.must(exitFailed, "relay"); !strings.Contains(got.stderr, "shard s1: the table outbox has no index on (state, due_at, id)") || !strings.Contains(got.stderr, "CREATE INDEX due ON") {
		t.Errorf("it says\n%s", got.stderr)
	}
}
