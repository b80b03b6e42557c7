package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chprojector/projector/internal/testenv"
)

// sourceWorld is a world with two shards of the authoritative MySQL, as the
// repository's configuration reads them.
type sourceWorld struct {
	*world
	shards []*testenv.MariaDBDatabase
	config string
}

func newSourceWorld(t *testing.T, topics ...string) *sourceWorld {
	t.Helper()
	s := &sourceWorld{world: newWorld(t, topics...)}
	schema, err := os.ReadFile("../../deploy/compose/mysql.sql")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var entries []string
	for i := range 2 {
		shard := testenv.SharedMariaDB(t)
		for statement := range strings.SplitSeq(string(schema), ";") {
			if strings.TrimSpace(statement) != "" {
				shard.Exec(t, statement)
			}
		}
		s.shards = append(s.shards, shard)
		entries = append(entries, fmt.Sprintf("{name: s%d, dsn: %q}", i, shard.DSN()))
	}
	s.config = filepath.Join(t.TempDir(), "config.yaml")
	s.write(strings.Replace(string(text), "[{name: s0, dsn_file: /run/secrets/s0}]", "["+strings.Join(entries, ", ")+"]", 1))
	s.flags[slices.Index(s.flags, "--config")+1] = s.config
	s.must(0, "schema", "apply", "--yes")
	return s
}

// write replaces the configuration.
func (s *sourceWorld) write(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// edit replaces a part of the configuration, which must be there.
func (s *sourceWorld) edit(old, with string) {
	s.t.Helper()
	text, err := os.ReadFile(s.config)
	if err != nil || !strings.Contains(string(text), old) {
		s.t.Fatalf("the configuration has no %q: %v", old, err)
	}
	s.write(strings.Replace(string(text), old, with, 1))
}

// fill puts n rows into each shard, half of them into each of two campaigns,
// and n/10 deletions.
func (s *sourceWorld) fill(n int) {
	s.t.Helper()
	for i, shard := range s.shards {
		shard.Exec(s.t,
			fmt.Sprintf("INSERT INTO fitness_result SELECT seq * 2 + %d, 10001 + seq %% 2, seq %% 100, 3, 1 + seq %% 5, (seq %% 10000) / 1000, 'm' FROM seq_1_to_%d", i, n),
			fmt.Sprintf("INSERT INTO fitness_result_deletion SELECT 10000000 + seq * 2 + %d, 10001 + seq %% 2, 7 FROM seq_1_to_%d", i, n/10))
	}
}

// different returns how many rows of the current view are not those of fill,
// and how many of those are not in the view.
func (s *sourceWorld) different(n int) string {
	return s.rows(fmt.Sprintf(`WITH source AS (
	SELECT number * 2 + shard AS data_id, 10001 + number %% 2 AS detect_id, number %% 100 AS user_id, 3 AS project_id, 1 + number %% 5 AS version,
		toDecimal64(number %% 10000, 3) / 1000 AS result, 'm' AS unit, false AS is_deleted, concat('fitness-result-', toString(data_id), '-v', toString(version)) AS event_id
	FROM numbers(1, %d) ARRAY JOIN [0, 1] AS shard),
current AS (SELECT toUInt64(data_id) AS data_id, sipHash64(data_id, toUInt64(detect_id), toUInt64(user_id), toUInt64(project_id), toUInt64(version), toString(result), toString(unit), is_deleted, event_id) AS h FROM fitness_results_current),
wanted AS (SELECT toUInt64(data_id) AS data_id, sipHash64(data_id, toUInt64(detect_id), toUInt64(user_id), toUInt64(project_id), toUInt64(version), toString(result), unit, is_deleted, event_id) AS h FROM source)
SELECT (SELECT count() FROM current WHERE (data_id, h) NOT IN (SELECT data_id, h FROM wanted)), (SELECT count() FROM wanted WHERE (data_id, h) NOT IN (SELECT data_id, h FROM current))`, n))
}

func TestBackfillCommand(t *testing.T) {
	s := newSourceWorld(t)
	s.fill(1000)
	dry := s.must(0, "backfill", "--campaign", "10001", "--dry-run")
	for _, want := range []string{
		"ORDER BY `dataId`", "campaign 10001, from rows:", "campaign 10001, from deletions:", "event_id", "fitness-result-4-v3",
		"Nothing was written to fitness_results_g1. A backfill of 1 campaign would write 1100 of 1000 rows and 100 deletions; refused: 0, not unique: 0.",
	} {
		if !strings.Contains(dry.stdout, want) {
			t.Errorf("the dry run does not say %q:\n%s", want, dry.stdout)
		}
	}
	if n := s.rows("SELECT count() FROM fitness_results_g1"); n != "0\n" {
		t.Errorf("a dry run wrote %s rows", n)
	}
	table := s.must(0, "backfill", "--campaign", "10001", "--reason", "ticket 4711", "--actor", "eve@desk").stdout
	for _, want := range []string{"(applied)", "fitness_results into fitness_results_g1", "1100 in ", "1100 stored, 0 replaced"} {
		if !strings.Contains(table, want) {
			t.Errorf("the result does not say %q:\n%s", want, table)
		}
	}
	asked := s.run("backfill", "--all")
	if asked.code != exitFailed || !strings.Contains(asked.stderr, "Backfill 2 campaigns of projection fitness_results into fitness_results_g1? [y/N]") {
		t.Errorf("--all: %+v", asked)
	}
	var result backfillResult
	if err := json.Unmarshal([]byte(s.must(0, "backfill", "--all", "--yes", "-o", "json").stdout), &result); err != nil {
		t.Fatal(err)
	}
	if result.Campaigns != 2 || result.Rows != 2000 || result.Deletions != 200 || result.Written != 2200 || result.State != "applied" {
		t.Errorf("%+v", result)
	}
	if d := s.different(1000); d != "0\t0\n" {
		t.Errorf("different from the source: %s", d)
	}
	if got := s.rows("SELECT actor, reason, state, scope FROM projector_operations ORDER BY began, id, sequence DESC LIMIT 1 BY id LIMIT 1 FORMAT TSVRaw"); !strings.HasPrefix(got, "eve@desk\tticket 4711\tapplied\t{\"campaigns\":[\"10001\"],") {
		t.Errorf("the record says %q", got)
	}
}

// TestBackfillBadInput: a clear error, the exit code, and nothing written, not
// even a record.
func TestBackfillBadInput(t *testing.T) {
	for _, c := range []struct {
		name string
		old  string // in the configuration
		with string
		args []string
		code int
		want string
	}{
		{"nothing asked for", "", "", []string{"--rate", "5"}, exitUsage, "say what to backfill: --campaign ID, --all, or --resume OPERATION"},
		{"two things asked for", "", "", []string{"--all", "--campaign", "1"}, exitUsage, "exclude each other"},
		{"unknown campaign", "", "", []string{"--campaign", "10001,99"}, exitFailed, "unknown campaign 99: no shard of s0, s1 has a row"},
		{"campaign that is no number", "", "", []string{"--campaign", "10001x"}, exitFailed, `campaign "10001x": column detect_id is UInt64`},
		{"unknown projection", "", "", []string{"--campaign", "10001", "--projection", "none"}, exitUsage, `there is no projection "none"`},
		{"unknown operation", "", "", []string{"--resume", "20261130T134512-4f2a9c"}, exitFailed, "there is no such operation"},
		{"no operation at all", "", "", []string{"--resume", "x"}, exitFailed, "an ID looks like"},
		{"missing field", ", CONCAT('fitness-result-', data_id, '-v', version) AS eventId", "", []string{"--campaign", "10001"}, exitFailed, "no column eventId, from which column event_id is filled"},
		{"missing version", "project_id AS projectId, version,", "project_id AS projectId,", []string{"--campaign", "10001"}, exitFailed, "no column version"},
		{"deletions without the order key", "deletions: SELECT data_id AS dataId, detect_id AS detectId,", "deletions: SELECT data_id AS dataId,", []string{"--campaign", "10001"}, exitFailed, "no column detectId, from which column detect_id is filled"},
		{"a shard that is down", "{name: s1, dsn: \"root@tcp(127.0.0.1:", "{name: s1, dsn: \"root@tcp(127.0.0.1:1", []string{"--campaign", "10001"}, exitFailed, "shard s1: "},
		{"no table", "generation: 1 ", "generation: 2 ", []string{"--campaign", "10001"}, exitFailed, "fitness_results_g2 does not exist; run `projector schema apply`"},
		{"drifted table", `"Decimal(18, 3)"`, `"Decimal(19, 3)"`, []string{"--campaign", "10001"}, exitFailed, "Decimal(18, 3) instead of Decimal(19, 3)"},
		{"no source", "    fitness_results:             #", "    other:             #", []string{"--campaign", "10001"}, exitUsage, `there is no projection "other"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSourceWorld(t)
			s.fill(10)
			if c.old != "" {
				s.edit(c.old, c.with)
			}
			got := s.run(append([]string{"backfill"}, c.args...)...)
			if got.code != c.code || !strings.Contains(got.stderr, c.want) || got.stdout != "" {
				t.Errorf("exit code %d, %s%s\nwant %d with %q", got.code, got.stdout, got.stderr, c.code, c.want)
			}
			if n := s.rows("SELECT (SELECT count() FROM fitness_results_g1), (SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'projector_operations')"); n != "0\t0\n" {
				t.Errorf("it wrote: %s", n)
			}
		})
	}
}

func TestBackfillRefusedRows(t *testing.T) {
	s := newSourceWorld(t)
	s.edit(`"Decimal(18, 3)"`, `"Decimal(18, 2)"`)
	s.rows("DROP TABLE fitness_results_g1 SYNC")
	s.must(0, "schema", "apply", "--yes")
	s.shards[0].Exec(t, "INSERT INTO fitness_result VALUES (1, 1, 1, 1, 1, 2.310, 'm'), (2, 1, 1, 1, 1, 2.315, 'm'), (3, 1, 1, 1, 1, 1, 'm')")
	s.shards[1].Exec(t, "INSERT INTO fitness_result VALUES (3, 1, 1, 1, 1, 1, 'm')")
	got := s.must(exitNo, "backfill", "--campaign", "1")
	for _, want := range []string{"precision", "2.315", "more than 2 decimals", "repeated", "more than one live row of this record"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("the result does not say %q:\n%s", want, got.stdout)
		}
	}
	if !strings.Contains(got.stderr, "3 rows of the source are not in the table: 1 refused, 2 not unique; all others are") {
		t.Errorf("stderr: %s", got.stderr)
	}
	if rows := s.rows("SELECT data_id FROM fitness_results_current"); rows != "1\n" {
		t.Errorf("the table has %q", rows)
	}
}

// TestBackfillResumeRefusedAfterAChange: what is half written under one mapping
// is not finished under another.
func TestBackfillResumeRefusedAfterAChange(t *testing.T) {
	s := newSourceWorld(t)
	s.fill(20000)
	s.flags = append(s.flags, "--set", "batch.rows=2000")
	s.killable()
	id := s.killed("--campaign", "10001", "--rate", "1000")
	s.edit("from: unit,      type", "from: unit, default: none, type")
	got := s.run("backfill", "--resume", id)
	if got.code != exitFailed || !strings.Contains(got.stderr, "the mapping, the table or the queries of projection fitness_results have changed since it began") {
		t.Fatalf("%+v", got)
	}
	s.edit("from: unit, default: none, type", "from: unit,      type")
	hint := s.must(0, "backfill", "--campaign", "10001")
	if !strings.Contains(hint.stderr, "`projector backfill --resume "+id+"` would go on with it") {
		t.Errorf("nothing tells of %s:\n%s", id, hint.stderr)
	}
	s.must(0, "backfill", "--resume", id, "--rate", "100000")
	if got := s.run("backfill", "--resume", id); got.code != exitFailed || !strings.Contains(got.stderr, "is applied: nothing of it is left to be done") {
		t.Errorf("resumed after its end: %+v", got)
	}
}

// TestBackfillInterrupted: a signal ends the process, not the operation, and
// the record says so at once.
func TestBackfillInterrupted(t *testing.T) {
	s := newSourceWorld(t)
	s.fill(5000)
	s.flags = append(s.flags, "--set", "batch.rows=1000")
	process, log := s.process("backfill", "--campaign", "10001", "--rate", "100") // it must not be done before the signal
	s.until("the operation is there", func() bool { return operationOf(log) != "" })
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait()
	id := operationOf(log)
	if code := process.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(log.String(), "interrupted by a signal; `projector backfill --resume "+id+"` goes on") {
		t.Errorf("exit code %d\n%s", code, log)
	}
	if got := s.rows("SELECT argMax(state, sequence), argMax(error, sequence) != '' FROM projector_operations"); got != "failed\t1\n" {
		t.Errorf("the record says %q", got)
	}
	s.must(0, "backfill", "--resume", id, "--rate", "100000")
	if got := s.rows("SELECT count() FROM fitness_results_current"); got != "5000\n" {
		t.Errorf("%s rows are there", got)
	}
}

// killed starts a backfill in a process of its own, kills it with SIGKILL once
// it has a checkpoint, and returns its operation.
func (s *sourceWorld) killed(args ...string) (id string) {
	s.t.Helper()
	process, log := s.process(append([]string{"backfill"}, args...)...)
	s.until("the operation has a checkpoint", func() bool {
		id = operationOf(log)
		return id != "" && s.rows("SELECT countIf(checkpoint != '') > 0 FROM projector_operations WHERE id = '"+id+"'") == "1\n"
	})
	_ = process.Process.Kill()
	_ = process.Wait()
	if process.ProcessState.ExitCode() != -1 {
		s.t.Fatalf("it ended by itself:\n%s", log)
	}
	return id
}

func operationOf(log *lockedBuffer) string {
	for line := range strings.Lines(log.String()) {
		var l struct{ Operation, Message string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Message == "backfill" {
			return l.Operation
		}
	}
	return ""
}

// TestBackfillKilled kills one backfill after another with SIGKILL at random
// points, 8 times, or as often as BACKFILL_KILLS says, and resumes each until it
// is done.
func TestBackfillKilled(t *testing.T) {
	kills := 8
	if n, err := strconv.Atoi(os.Getenv("BACKFILL_KILLS")); err == nil {
		kills = n
	}
	const n = 10_000
	s := newSourceWorld(t)
	s.killable()
	s.fill(n)
	s.flags = append(s.flags, "--set", "batch.rows=1500")
	// One that was killed between its first record and its first line is known by its record alone. What the killed
	// process had sent may be recorded after its death, so every turn looks.
	unfinished := func() string {
		if s.rows("EXISTS TABLE projector_operations") != "1\n" {
			return ""
		}
		return strings.TrimSpace(s.rows("SELECT id FROM (SELECT * FROM projector_operations ORDER BY id, sequence DESC LIMIT 1 BY id) WHERE state = 'running' LIMIT 1"))
	}
	done, id := 0, ""
	for kill := 0; ; {
		if id == "" {
			id = unfinished()
		}
		if id == "" && kill >= kills {
			break
		}
		args := []string{"backfill", "--all", "--yes", "--rate", "10000"}
		if id != "" {
			args = []string{"backfill", "--resume", id}
		}
		process, log := s.process(args...)
		var fuse *time.Timer
		if kill < kills {
			// Two seconds is the time of a whole run, beside that of starting.
			fuse = time.AfterFunc(time.Duration(rand.Int64N(int64(2500*time.Millisecond))), func() { _ = process.Process.Kill() })
		}
		err := process.Wait()
		if fuse != nil {
			fuse.Stop()
		}
		if was := operationOf(log); was != "" {
			id = was
		}
		switch {
		case err == nil:
			id = ""
			done++
		case process.ProcessState.ExitCode() == -1:
			kill++
		case strings.Contains(log.String(), "nothing of it is left to be done"): // it was killed after its end
			id = ""
			done++
		default:
			t.Fatalf("%v: %v\n%s", args, err, log)
		}
	}
	if d := s.different(n); d != "0\t0\n" {
		t.Errorf("different from the source: %s", d)
	}
	if got := s.rows("SELECT count() FROM (SELECT data_id FROM fitness_results_g1 FINAL WHERE is_deleted)"); got != fmt.Sprintln(2*n/10) {
		t.Errorf("%s deletions, want %d", strings.TrimSpace(got), 2*n/10)
	}
	// Every operation ended applied, has each of its states, and counts every row once, whatever was repeated.
	got := s.rows(`SELECT count(), countIf(state = 'applied'), countIf(sequence = states), countIf(JSONExtractUInt(outcome, 'rows') = 20000 AND JSONExtractUInt(outcome, 'deletions') = 2000 AND JSONExtractUInt(outcome, 'written') = 22000),
	(SELECT count() FROM fitness_results_g1 WHERE substring(_origin, 10) NOT IN (SELECT id FROM projector_operations))
FROM (SELECT * FROM projector_operations ORDER BY id, sequence DESC LIMIT 1 BY id) AS o
JOIN (SELECT id, count() AS states FROM projector_operations GROUP BY id) AS c USING id`)
	if want := fmt.Sprintf("%d\t%[1]d\t%[1]d\t%[1]d\t0\n", done); got != want {
		t.Errorf("the record has %q, want %q", got, want)
	}
	runs := s.rows("SELECT sum(run), max(run) FROM (SELECT * FROM projector_operations ORDER BY id, sequence DESC LIMIT 1 BY id)")
	t.Logf("%d kills, %d operations done, runs in all and at most: %s", kills, done, runs)
}

// TestBackfillBesideTheStream: events that arrive while their records are
// backfilled stay, whichever comes first.
func TestBackfillBesideTheStream(t *testing.T) {
	s := newSourceWorld(t, "fitness-results", "fitness-results-dlq")
	const n = 4000
	s.fill(n)
	r := s.start()
	r.ready()
	finished := make(chan outcome, 1)
	go func() { finished <- s.run("backfill", "--all", "--yes", "--rate", "4000", "--set", "batch.rows=400") }()
	produced := 0
	for len(finished) == 0 {
		id := 2 + produced*7%(2*n)
		s.produce(fmt.Appendf(nil, `{"schemaVersion":1,"dataId":%d,"detectId":%d,"userId":1,"projectId":3,"version":100,"result":9.5,"unit":"m","isDeleted":false,"eventId":"newer"}`, id, 10001+id/2%2))
		produced++
	}
	if got := <-finished; got.code != exitDone {
		t.Fatalf("%+v", got)
	}
	s.until("the stream has arrived", func() bool {
		return s.rows("SELECT count() FROM fitness_results_g1 FINAL WHERE version = 100") == fmt.Sprintln(min(produced, 2*n))
	})
	if got := s.rows("SELECT count(), countIf(version = 100 AND event_id = 'newer') FROM fitness_results_current"); got != fmt.Sprintf("%d\t%d\n", 2*n, min(produced, 2*n)) {
		t.Errorf("of %d newer events: %s", produced, got)
	}
	r.stop()
	if code := r.end(); code != exitDone {
		t.Errorf("run ended with %d", code)
	}
}
