package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// defect is a difference that a test plants in a campaign which is equal.
type defect struct {
	kind   string
	id     int
	source string // on the shard id%2
	table  string // VALUES of the table: identity to event_id
}

// fill gives record 2·n version 1+n%5, in campaign 10001 for an even n.
func defects() []defect {
	return []defect{
		{"missing", 9000, "INSERT INTO fitness_result VALUES (9000, 10001, 1, 3, 4, 7.125, 'm')", ""},
		{"missing", 9001, "INSERT INTO fitness_result_deletion VALUES (9001, 10001, 6)", ""},
		{"stale", 20, "UPDATE fitness_result SET version = 8, result = 9.875 WHERE data_id = 20", ""},
		{"stale", 21, "DELETE FROM fitness_result WHERE data_id = 21; INSERT INTO fitness_result_deletion VALUES (21, 10001, 9)", "(21, 10001, 1, 3, 7, 1, 'm', 1, 'x')"},
		{"undeleted", 24, "DELETE FROM fitness_result WHERE data_id = 24; INSERT INTO fitness_result_deletion VALUES (24, 10001, 9)", ""},
		{"content_conflict", 28, "", "(28, 10001, 14, 3, 5, 0.014, 'km', 0, 'x')"},
		{"ahead", 32, "", "(32, 10001, 16, 3, 1000, 0.016, 'm', 0, 'x')"},
		{"unexpected", 7777, "", "(7777, 10001, 1, 3, 2, 1, 'm', 0, 'ghost')"},
		{"moved_key", 36, "UPDATE fitness_result SET detect_id = 10002, version = 9 WHERE data_id = 36", "(36, 10002, 18, 3, 9, 0.018, 'm', 0, 'x')"},
	}
}

func (s *sourceWorld) plantDefect(d defect) {
	s.t.Helper()
	for statement := range strings.SplitSeq(d.source, ";") {
		if statement != "" {
			s.shards[d.id%2].Exec(s.t, statement)
		}
	}
	if d.table != "" {
		s.rows("INSERT INTO fitness_results_g1 (data_id, detect_id, user_id, project_id, version, result, unit, is_deleted, event_id, _topic, _partition, _offset, _origin, _generation) " +
			"VALUES " + strings.TrimSuffix(d.table, ")") + ", 'fitness-results', 1, 4711, 'stream', 1)")
	}
}

// equalWorld is a table that says what its source says.
func equalWorld(t *testing.T, n int) *sourceWorld {
	t.Helper()
	s := newSourceWorld(t, "fitness-results", "fitness-results-dlq")
	s.fill(n)
	s.must(0, "backfill", "--all", "--yes")
	return s
}

func (s *sourceWorld) planned(code int, args ...string) plan {
	s.t.Helper()
	var p plan
	out := s.must(code, append([]string{"repair", "plan", "--settle", "300ms", "--actor", "ann", "--reason", "ticket 4711", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out.stdout), &p); err != nil {
		s.t.Fatalf("%v in %s", err, out.stdout)
	}
	return p
}

func (s *sourceWorld) repaired(code int, args ...string) repairResult {
	s.t.Helper()
	var r repairResult
	out := s.must(code, append(append([]string{"repair"}, args...), "-o", "json")...)
	if err := json.Unmarshal([]byte(out.stdout), &r); err != nil {
		s.t.Fatalf("%v in %s", err, out.stdout)
	}
	return r
}

// versions fails the test unless a live record, or its deletion, has the
// version that its source has.
func (s *sourceWorld) wantState(id int, want string) {
	s.t.Helper()
	got := s.rows(fmt.Sprintf("SELECT version, is_deleted, toString(result) FROM fitness_results_g1 FINAL WHERE data_id = %d", id))
	if strings.TrimSpace(got) != want {
		s.t.Errorf("record %d is %q in the table, want %q", id, got, want)
	}
}

// after is what the table says of each defect once it is repaired; "" is that
// nothing repairs it.
var after = map[int]string{
	9000: "4\tfalse\t7.125", 9001: "6\ttrue\t0", 20: "8\tfalse\t9.875", 21: "9\ttrue\t0", 24: "9\ttrue\t0", 7777: "gone",
}

func (s *sourceWorld) wantRepaired(id int) {
	s.t.Helper()
	if after[id] == "gone" {
		s.wantState(id, "")
		return
	}
	s.wantState(id, after[id])
}

// TestRepairKindsAlone: each kind of difference alone is found, classified,
// repaired with the source's own version, or refused with a reason, and verified.
func TestRepairKindsAlone(t *testing.T) {
	for _, d := range defects() {
		t.Run(fmt.Sprintf("%s/%d", d.kind, d.id), func(t *testing.T) {
			t.Parallel()
			s := equalWorld(t, 50)
			s.plantDefect(d)
			if after[d.id] == "" {
				p := s.planned(exitNo, "--campaign", "10001")
				if len(p.Repairs) != 0 || len(p.Left) != 1 || string(p.Left[0].Kind) != d.kind || p.Left[0].Count != 1 || !strings.Contains(p.Left[0].Advice, "not repaired") {
					t.Fatalf("%+v", p)
				}
				return
			}
			p := s.planned(0, "--campaign", "10001")
			if len(p.Repairs) != 1 || !maps.Equal(p.Repairs[0].Kinds, map[string]int{d.kind: 1}) || len(p.Left) != 0 {
				t.Fatalf("%+v", p)
			}
			id := p.Repairs[0].Operation
			applied := s.repaired(0, "apply", id, "--actor", "bob", "--yes")
			if applied.State != "applied" || applied.Applied != 1 || applied.Skipped != 0 {
				t.Errorf("%+v", applied)
			}
			s.wantRepaired(d.id)
			if got := s.must(0, "status", "--projection", "fitness_results").stdout; !strings.Contains(got, "1 applied and not verified") {
				t.Errorf("status:\n%s", got)
			}
			verified := s.repaired(0, "verify", id, "--actor", "eve")
			if verified.State != "verified" || verified.Verified != 1 {
				t.Errorf("%+v", verified)
			}
			s.must(0, "reconcile", "--campaign", "10001", "--settle", "300ms")
			s.must(exitFailed, "repair", "apply", id, "--actor", "bob", "--yes")
		})
	}
}

// TestRepairKindsTogether plants everything at once.
func TestRepairKindsTogether(t *testing.T) {
	s := equalWorld(t, 50)
	for _, d := range defects() {
		s.plantDefect(d)
	}
	p := s.planned(exitNo, "--campaign", "10001,10002")
	if len(p.Repairs) != 2 || len(p.Left) != 3 {
		t.Fatalf("%+v", p)
	}
	if !maps.Equal(p.Repairs[0].Kinds, map[string]int{"missing": 2, "stale": 2, "undeleted": 1}) || !maps.Equal(p.Repairs[1].Kinds, map[string]int{"unexpected": 1}) {
		t.Errorf("%+v", p.Repairs)
	}
	if q := p.Quarantined; len(q) != 1 || q[0].ID != "7777" || len(q[0].Rows) != 1 || q[0].Rows[0].Topic != "fitness-results" || q[0].Rows[0].Partition != 1 || q[0].Rows[0].Offset != 4711 || q[0].Rows[0].Origin != "stream" {
		t.Errorf("quarantined: %+v", q)
	}
	replay, removal := p.Repairs[0].Operation, p.Repairs[1].Operation
	s.must(exitFailed, "repair", "verify", replay)
	if got := s.must(exitFailed, "repair", "apply", removal, "--actor", "Ann", "--yes"); !strings.Contains(got.stderr, "a second person must apply it") {
		t.Errorf("%s", got.stderr)
	}
	if got := s.must(exitFailed, "repair", "apply", removal, "--actor", "bob"); !strings.Contains(got.stderr, "Remove 1 record from fitness_results_g1") {
		t.Errorf("%s", got.stderr)
	}
	s.wantState(7777, "2\tfalse\t1")
	if r := s.repaired(0, "apply", replay, "--actor", "ann", "--rate", "2"); r.Applied != 5 {
		t.Errorf("%+v", r)
	}
	if r := s.repaired(0, "apply", removal, "--actor", "bob", "--yes"); r.Applied != 1 {
		t.Errorf("%+v", r)
	}
	for _, id := range []string{replay, removal} {
		if r := s.repaired(0, "verify", id, "--settle", "300ms"); r.State != "verified" || r.Verified != r.Records {
			t.Errorf("%+v", r)
		}
	}
	for id := range after {
		s.wantRepaired(id)
	}
	if got := s.rows("SELECT groupUniqArray(_origin) FROM fitness_results_g1 WHERE data_id IN (9000, 9001) OR data_id = 20 AND version = 8"); got != "['repair:"+replay+"']\n" {
		t.Errorf("origins: %s", got)
	}
	shown := s.must(0, "repair", "show", removal).stdout
	for _, want := range []string{"ticket 4711", "planned", "approved", "bob", "version 2 from stream at fitness-results/1/4711", "verified"} {
		if !strings.Contains(shown, want) {
			t.Errorf("show does not say %q:\n%s", want, shown)
		}
	}
	if got := s.must(0, "repair", "show", removal, "-o", "json").stdout; !strings.Contains(got, `"event_id": "ghost"`) {
		t.Errorf("the removed row is not on record:\n%s", got)
	}
	if got := s.must(0, "repair", "list", "--state", "verified").stdout; strings.Count(got, "\n") != 3 {
		t.Errorf("list:\n%s", got)
	}
	// Nothing is left but what no repair cures.
	if p := s.planned(exitNo, "--campaign", "10001,10002"); len(p.Repairs) != 0 || len(p.Left) != 3 {
		t.Errorf("%+v", p)
	}
}

// TestRepairSkipsWhatChanged: a record that has changed on either side since the
// plan is left alone, and the repair that leaves a difference is refuted.
func TestRepairSkipsWhatChanged(t *testing.T) {
	s := equalWorld(t, 50)
	list := defects()
	for _, i := range []int{0, 2, 4, 7} { // missing 9000, stale 20, undeleted 24, unexpected 7777
		s.plantDefect(list[i])
	}
	p := s.planned(0, "--campaign", "10001")
	s.shards[0].Exec(t, "UPDATE fitness_result SET version = 5 WHERE data_id = 9000")
	s.plantDefect(defect{table: "(20, 10001, 10, 3, 8, 9.875, 'm', 0, 'x')"}) // the stream has brought it
	s.plantDefect(defect{table: "(7777, 10001, 1, 3, 3, 1, 'm', 0, 'ghost')"})
	r := s.repaired(exitNo, "apply", p.Repairs[0].Operation)
	if r.Applied != 1 || r.Skipped != 2 {
		t.Errorf("%+v", r)
	}
	notes := map[string]string{}
	for _, i := range r.Items {
		notes[i.ID] = i.State + ": " + i.Note
	}
	for id, want := range map[string]string{"9000": "skipped: the source has changed: it is version 5", "20": "skipped: the table has changed: it had version 1", "24": "applied: "} {
		if !strings.HasPrefix(notes[id], want) {
			t.Errorf("record %s is %q, want %q", id, notes[id], want)
		}
	}
	if r := s.repaired(exitNo, "apply", p.Repairs[1].Operation, "--actor", "bob", "--yes"); r.Skipped != 1 || !strings.Contains(r.Items[0].Note, "nobody has approved") {
		t.Errorf("%+v", r)
	}
	s.wantState(7777, "3\tfalse\t1")
	if r := s.repaired(exitNo, "verify", p.Repairs[0].Operation, "--settle", "300ms"); r.State != "refuted" || r.Refuted != 1 || r.Verified != 2 {
		t.Errorf("%+v", r)
	}
	if p := s.planned(0, "--finding", "9000"); len(p.Repairs) != 1 || p.Repairs[0].Records != 1 || p.Repairs[0].Kinds["missing"] != 1 {
		t.Errorf("%+v", p)
	}
	if got := s.must(exitFailed, "repair", "plan", "--finding", "31"); !strings.Contains(got.stderr, "no unresolved finding") {
		t.Errorf("%s", got.stderr)
	}
}

// TestRepairIsNotVerifiedByChance: what a repair wrote has got a rival of the
// same version, and readers happen to see the right one.
func TestRepairIsNotVerifiedByChance(t *testing.T) {
	s := equalWorld(t, 50)
	s.rows("SYSTEM STOP MERGES fitness_results_g1")
	s.plantDefect(defects()[2]) // stale 20
	id := s.planned(0, "--campaign", "10001").Repairs[0].Operation
	s.repaired(0, "apply", id)
	for _, unit := range []string{"km", "m"} {
		s.plantDefect(defect{table: "(20, 10001, 10, 3, 8, 9.875, '" + unit + "', 0, 'x')"})
	}
	if r := s.repaired(exitNo, "verify", id, "--settle", "300ms"); r.Refuted != 1 || r.Items[0].Note != "the table has several contents at version 8" {
		t.Errorf("%+v", r)
	}
	s.rows("ALTER TABLE projector_repair_items UPDATE at = at + 3600 WHERE 1 SETTINGS mutations_sync = 2") // the server's clock is put back
	s.rows("SYSTEM START MERGES fitness_results_g1")
	s.rows("OPTIMIZE TABLE fitness_results_g1 FINAL")
	if r := s.repaired(0, "verify", id, "--settle", "300ms"); r.Verified != 1 {
		t.Errorf("%+v", r)
	}
	if r := s.repaired(0, "show", id); r.Verified != 1 {
		t.Errorf("the record has another answer than the last one: %+v", r)
	}
}

// TestRepairAfterDeduplication: rows that were lost after they had been
// repaired are repaired again, by a block that is equal to the first, on a table
// that drops blocks it has seen.
func TestRepairAfterDeduplication(t *testing.T) {
	s := equalWorld(t, 50)
	s.rows("ALTER TABLE fitness_results_g1 MODIFY SETTING non_replicated_deduplication_window = 1000")
	s.plantDefect(defects()[0])
	for range 2 {
		p := s.planned(0, "--campaign", "10001")
		if len(p.Repairs) != 1 || p.Repairs[0].Kinds["missing"] != 1 {
			t.Fatalf("%+v", p)
		}
		s.repaired(0, "apply", p.Repairs[0].Operation)
		s.repaired(0, "verify", p.Repairs[0].Operation)
		if got := s.rows("SELECT version, toString(result) FROM fitness_results_current WHERE data_id = 9000"); got != "4\t7.125\n" {
			t.Fatalf("the view shows %q", got)
		}
		s.rows("ALTER TABLE fitness_results_g1 DELETE WHERE data_id = 9000 SETTINGS mutations_sync = 2")
	}
}

// TestRepairKilled kills repairs with SIGKILL at random points, 6 times or as
// often as REPAIR_KILLS says, and goes on with each until it is done.
func TestRepairKilled(t *testing.T) {
	kills := 6
	if n, err := strconv.Atoi(os.Getenv("REPAIR_KILLS")); err == nil {
		kills = n
	}
	const n = 1000
	s := equalWorld(t, n)
	s.killable()
	killed, done := 0, 0
	for killed < kills {
		// Half of the records become stale, and as many come that nobody knows.
		for _, shard := range s.shards {
			shard.Exec(t, "UPDATE fitness_result SET version = version + 10 WHERE detect_id = 10001")
		}
		s.rows(fmt.Sprintf("INSERT INTO fitness_results_g1 (data_id, detect_id, version, _topic, _offset, _origin, _generation) SELECT 50000000 + number, 10001, 1, 'fitness-results', number + %d, 'stream', 1 FROM numbers(%d)", done*n, n))
		p := s.planned(0, "--campaign", "10001")
		if len(p.Repairs) != 2 || p.Repairs[0].Records != n || p.Repairs[1].Records != n {
			t.Fatalf("%+v", p.Repairs)
		}
		for i, part := range p.Repairs {
			for attempt := 1; ; attempt++ {
				process, log := s.process("repair", "apply", part.Operation, "--actor", "bob", "--yes", "--rate", "700")
				var fuse *time.Timer
				if killed < kills && attempt <= 3 { // either takes about two seconds, with the start of the process
					fuse = time.AfterFunc(time.Duration(rand.Int64N(int64(1800*time.Millisecond))), func() { _ = process.Process.Kill() })
				}
				err := process.Wait()
				if fuse != nil {
					fuse.Stop()
				}
				if err == nil || strings.Contains(log.String(), "nothing of it is left to be done") {
					break
				}
				if process.ProcessState.ExitCode() != -1 {
					t.Fatalf("repair %d: %v\n%s", i, err, log)
				}
				killed++
			}
			if r := s.repaired(0, "verify", part.Operation, "--settle", "300ms"); r.State != "verified" || r.Verified != n || r.Skipped != 0 {
				t.Fatalf("%+v", r.Counts)
			}
			done++
		}
		s.must(0, "reconcile", "--campaign", "10001", "--settle", "300ms")
	}
	// Each operation has every one of its states, each record its steps, and what was written has a record.
	got := s.rows(`SELECT count(), countIf(state = 'verified'), countIf(sequence = states),
	(SELECT count() FROM fitness_results_g1 WHERE startsWith(_origin, 'repair:') AND substring(_origin, 8) NOT IN (SELECT id FROM projector_operations)),
	(SELECT count() FROM (SELECT operation, key, groupUniqArray(state) AS s FROM projector_repair_items GROUP BY operation, key) WHERE NOT hasAll(s, ['planned', 'applied', 'verified']))
FROM (SELECT * FROM projector_operations WHERE kind = 'repair' ORDER BY id, sequence DESC LIMIT 1 BY id) AS o
JOIN (SELECT id, count() AS states FROM projector_operations GROUP BY id) AS c USING id`)
	if want := fmt.Sprintf("%d\t%[1]d\t%[1]d\t0\t0\n", done); got != want {
		t.Errorf("the record has %q, want %q", got, want)
	}
	runs := s.rows("SELECT sum(run), max(run) FROM (SELECT * FROM projector_operations WHERE kind = 'repair' ORDER BY id, sequence DESC LIMIT 1 BY id)")
	t.Logf("%d kills, %d repairs done, runs in all and at most: %s", killed, done, runs)
}

func TestRepairBadInput(t *testing.T) {
	s := equalWorld(t, 10)
	backfills := s.rows("SELECT id FROM projector_operations LIMIT 1")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"plan"}, exitUsage, "--campaign"},
		{[]string{"plan", "--campaign", "1x"}, exitUsage, "1x"},
		{[]string{"plan", "--campaign", "99"}, exitFailed, "nothing is planned"},
		{[]string{"plan", "--campaign", "10001", "--settle", "0s"}, exitUsage, "--settle must be positive"},
		{[]string{"apply", "x"}, exitFailed, "an ID looks like"},
		{[]string{"apply", "20261130T134512-4f2a9c"}, exitFailed, "there is no such operation"},
		{[]string{"apply", strings.TrimSpace(backfills)}, exitFailed, "is a backfill, not a repair"},
		{[]string{"verify", strings.TrimSpace(backfills)}, exitFailed, "is a backfill, not a repair"},
		{[]string{"plan", "--campaign", "10001", "--set", "source.shards="}, exitUsage, "source.shards"},
	} {
		got := s.run(append([]string{"repair"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%v: exit code %d, %s\nwant %d with %q", c.args, got.code, got.stderr, c.code, c.want)
		}
	}
	if got := s.must(0, "repair", "plan", "--campaign", "10001"); !strings.Contains(got.stdout, "nothing to repair") {
		t.Errorf("%s", got.stdout)
	}
	s.plantDefect(defect{id: 2, source: "UPDATE fitness_result SET version = 50 WHERE data_id = 4"})
	id := s.planned(0, "--campaign", "10001").Repairs[0].Operation
	s.edit("from: unit,      type", "from: unit, default: none, type")
	if got := s.must(exitFailed, "repair", "apply", id); !strings.Contains(got.stderr, "have changed since it was planned") {
		t.Errorf("%s", got.stderr)
	}
	if !slices.Contains(strings.Fields(s.must(0, "repair", "list").stdout), id) {
		t.Error("list does not have the plan")
	}
}
