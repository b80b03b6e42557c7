package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the shards
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/time/rate"

	"github.com/chprojector/projector/internal/testenv"
)

// sourced is a world with two authoritative shards, and an application that
// writes to them and tells the topic.
type sourced struct {
	*world
	shards []*testenv.MariaDBDatabase
	dbs    []*sql.DB
}

func newSourced(t testing.TB) *sourced {
	t.Helper()
	if testing.Short() {
		t.Skip("needs servers")
	}
	s := &sourced{}
	var list []string
	for i := range 2 {
		shard := testenv.SharedMariaDB(t)
		shard.Exec(t,
			"CREATE TABLE fitness_result (data_id BIGINT UNSIGNED PRIMARY KEY, detect_id BIGINT UNSIGNED NOT NULL, user_id BIGINT UNSIGNED NOT NULL, "+
				"project_id INT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL, result DECIMAL(18, 3) NOT NULL, unit VARCHAR(16) NOT NULL, KEY (detect_id))",
			"CREATE TABLE fitness_result_deletion (data_id BIGINT UNSIGNED PRIMARY KEY, detect_id BIGINT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL, KEY (detect_id))")
		db, err := sql.Open("mysql", shard.DSN())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		s.shards, s.dbs = append(s.shards, shard), append(s.dbs, db)
		list = append(list, fmt.Sprintf("{name: s%d, dsn: %q}", i, shard.DSN()))
	}
	text := replaced(t, repositoryConfig(t), "shards: [{name: s0, dsn_file: /run/secrets/s0}]", "shards: ["+strings.Join(list, ", ")+"]")
	s.world = newWorld(t, setup{config: text, env: []string{"PROJECTOR_BATCH__DELAY=100ms"}})
	return s
}

// state is a record as the application knows it.
type state struct {
	id, version uint64
	result      int
	deleted     bool
}

// store makes the state the authoritative one, as one transaction.
func (s *sourced) store(ctx context.Context, st state) error {
	tx, err := s.dbs[st.id%2].BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if st.deleted {
		if _, err = tx.ExecContext(ctx, "DELETE FROM fitness_result WHERE data_id = ?", st.id); err == nil {
			_, err = tx.ExecContext(ctx, "REPLACE INTO fitness_result_deletion VALUES (?, 10001, ?)", st.id, st.version)
		}
	} else {
		_, err = tx.ExecContext(ctx, "REPLACE INTO fitness_result VALUES (?, 10001, 5, 6, ?, ?, 'm')", st.id, st.version, fmt.Sprintf("%d.5", st.result))
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

// event is what the application tells the topic.
func (s *sourced) event(st state) *kgo.Record {
	value := fmt.Sprintf(`{"schemaVersion":1,"dataId":%d,"detectId":10001,"userId":5,"projectId":6,"version":%d,"result":%d.50,"unit":"m","isDeleted":%t,"eventId":"%[1]d-%[2]d"}`,
		st.id, st.version, st.result, st.deleted)
	return &kgo.Record{Topic: s.topic, Key: fmt.Append(nil, st.id), Value: []byte(value)}
}

// begin writes n records everywhere.
func (s *sourced) begin(n int) {
	s.t.Helper()
	var records []*kgo.Record
	for id := range uint64(n) {
		st := state{id: id + 1, version: 1, result: int(id), deleted: id%50 == 0}
		if err := s.store(s.t.Context(), st); err != nil {
			s.t.Fatal(err)
		}
		records = append(records, s.event(st))
	}
	s.produce(records...)
	s.settle()
}

// edit changes records of the campaign until stop is called, so many a second
// or as many as the machine is able to: updates, deletions, and records that
// come back.
func (s *sourced) edit(n, pace int) (edits *atomic.Int64, stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var group sync.WaitGroup
	failed := kgo.AbortingFirstErrPromise(s.client)
	edits = new(atomic.Int64)
	group.Go(func() {
		r, limit := rand.New(rand.NewPCG(1, 2)), rate.NewLimiter(rate.Limit(pace), 1)
		versions := map[uint64]uint64{}
		for limit.Wait(ctx) == nil {
			id := 1 + r.Uint64N(uint64(n))
			versions[id] = max(1, versions[id]) + 1
			st := state{id: id, version: versions[id], result: r.IntN(1000), deleted: r.IntN(20) == 0}
			if err := s.store(context.WithoutCancel(ctx), st); err != nil {
				s.t.Errorf("edit: %v", err)
				return
			}
			s.client.Produce(context.WithoutCancel(ctx), s.event(st), failed.Promise())
			edits.Add(1)
		}
	})
	return edits, func() {
		cancel()
		group.Wait()
		if err := s.client.Flush(context.WithoutCancel(ctx)); err != nil {
			s.t.Error(err)
		}
		if err := failed.Err(); err != nil {
			s.t.Error(err)
		}
	}
}

// report is the part of a report that tests look at.
type report struct {
	Verdict    string
	Error      string
	Findings   []struct{ Kind, ID string }
	Conflicts  []any
	Unresolved int
	Rounds     int
	Seconds    float64
}

// reconcile runs the command and returns its exit code and its only report.
func (s *sourced) reconcile(args ...string) (int, report) {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), s.binary, append([]string{"--config", s.config, "--log-level", "error", "reconcile", "--campaign", "10001", "-o", "json"}, args...)...)
	command.Env = append(command.Environ(), s.env...)
	var stderr strings.Builder
	command.Stderr = &stderr
	out, _ := command.Output()
	var reports []report
	if err := json.Unmarshal(out, &reports); err != nil || len(reports) != 1 {
		s.t.Fatalf("exit code %d, %q: %v\n%s", command.ProcessState.ExitCode(), out, err, stderr.String())
	}
	return command.ProcessState.ExitCode(), reports[0]
}

// TestReconcileMovingSource compares a campaign that is edited 200 times a
// second: never a false difference, and a real one is always found.
// E2E_RECONCILE_RUNS=50 is the long form.
func TestReconcileMovingSource(t *testing.T) {
	const records, pace = 2000, 200
	runs := number(t, "E2E_RECONCILE_RUNS", 2)
	s := newSourced(t)
	s.apply()
	s.start("run")
	s.begin(records)
	for _, against := range []string{"mysql", "topic"} {
		if code, r := s.reconcile("--against", against, "--settle", "5s"); code != 0 {
			t.Fatalf("at rest, against %s: exit code %d, %+v", against, code, r)
		}
	}
	edits, stop := s.edit(records, pace)
	began := time.Now()
	equal := 0
	for i := 0; i < runs || equal == 0 && i < runs+8; i++ { // a busy machine may not come to an answer at once
		before := edits.Load()
		code, r := s.reconcile("--settle", "5s")
		if edits.Load() == before {
			t.Errorf("run %d: the source did not move meanwhile", i)
		}
		switch code {
		case 0:
			equal++
		case 4:
		default:
			t.Errorf("run %d: exit code %d, %+v", i, code, r)
		}
		t.Logf("run %d: %s after %d rounds, %d unresolved, %.1f s", i, r.Verdict, r.Rounds, r.Unresolved, r.Seconds)
	}
	// Written to the source, never told to anybody.
	if err := s.store(t.Context(), state{id: 1 << 40, version: 1, result: 1}); err != nil {
		t.Fatal(err)
	}
	for i := range runs {
		code, r := s.reconcile("--settle", "2s")
		if code != 3 || len(r.Findings) != 1 || r.Findings[0].Kind != "missing" || r.Findings[0].ID != fmt.Sprint(1<<40) {
			t.Errorf("run %d with a missing record: exit code %d, %+v", i, code, r)
		}
	}
	stop()
	t.Logf("%d edits, %.0f a second; %d runs equal", edits.Load(), float64(edits.Load())/time.Since(began).Seconds(), equal)
	if equal == 0 {
		t.Error("no run came to an answer")
	}
	s.settle()
	if code, r := s.reconcile("--settle", "2s"); code != 3 || len(r.Findings) != 1 {
		t.Errorf("at rest again: exit code %d, %+v", code, r)
	}
}

// TestReconcileCommand holds what people and scripts see: exit codes, the
// record of findings from the first sighting to the resolution, status.
func TestReconcileCommand(t *testing.T) {
	s := newSourced(t)
	s.apply()
	run := s.start("run")
	s.begin(100)
	if code, r := s.reconcile("--settle", "5s"); code != 0 {
		t.Fatalf("at rest: exit code %d, %+v", code, r)
	}
	if out := s.run("reconcile", "--campaign", "10002").code; out != 1 {
		t.Errorf("an unknown campaign: exit code %d, want 1", out)
	}
	if out := s.run("reconcile", "--campaign", "1x").code; out != 2 {
		t.Errorf("no campaign: exit code %d, want 2", out)
	}
	// One record changes under its version, which no stream would ever repair.
	s.exec("ALTER TABLE fitness_results_g1 UPDATE unit = 'km' WHERE data_id = 7 SETTINGS mutations_sync = 2")
	for range 2 {
		code, r := s.reconcile("--settle", "1s")
		if code != 3 || len(r.Findings) != 1 || r.Findings[0].Kind != "content_conflict" || r.Findings[0].ID != "7" {
			t.Fatalf("exit code %d, %+v", code, r)
		}
	}
	if out := s.must(3, "reconcile", "--campaign", "10001", "--settle", "1s"); !strings.Contains(out.stdout, `unit: "m" is "km" in the table`) {
		t.Errorf("the table for people:\n%s", out.stdout)
	}
	if code, _ := s.reconcile("--level", "versions"); code != 0 {
		t.Errorf("versions: exit code %d; the defect leaves them intact", code)
	}
	if out := s.must(0, "status"); !strings.Contains(out.stdout, "content_conflict 1") {
		t.Errorf("status:\n%s", out.stdout)
	}
	s.until(soon, "run exports the finding", func() bool {
		_, text := run.probe("/metrics")
		return strings.Contains(text, `projector_discrepancies{kind="content_conflict",projection="fitness_results"} 1`)
	})
	if n := s.ask("SELECT count(), uniqExact(kind) FROM projector_findings WHERE against = 'mysql' AND NOT resolved"); n != "3\t1" {
		t.Errorf("%q sightings and kinds, want 3 and 1", n)
	}
	// A newer version settles it.
	next := state{id: 7, version: 2, result: 5}
	if err := s.store(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	s.produce(s.event(next))
	s.settle()
	if code, r := s.reconcile("--settle", "5s"); code != 0 {
		t.Errorf("after the repair: exit code %d, %+v", code, r)
	}
	if out := s.must(0, "status"); strings.Contains(out.stdout, "content_conflict") {
		t.Errorf("status after the repair:\n%s", out.stdout)
	}
	s.must(2, "--set", `source.shards=`, "reconcile", "--campaign", "10001")
	s.exec("ALTER TABLE fitness_results_g1 MODIFY COLUMN unit String")
	if out := s.must(1, "reconcile", "--campaign", "10001"); !strings.Contains(out.stderr, "is not what the configuration says") {
		t.Errorf("a table that drifted:\n%s", out.stderr)
	}
}
