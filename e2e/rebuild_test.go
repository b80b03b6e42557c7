package e2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the shards
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/testenv"
)

// schools is a world in which each result has the school of the pupil and the
// school where the test was held. They differ in campaign 10002 alone.
type schools struct {
	*world
	shards []*sql.DB
	text   string // the configuration, as yet without the test's topic
}

// The mapping of the column school_id: as it was deployed, and as it should be.
const (
	wrongSchool = "from: venue.id,  type: UInt32}"
	rightSchool = "from: school.id, type: UInt32}"
)

func newSchools(t *testing.T) *schools {
	t.Helper()
	if testing.Short() {
		t.Skip("needs servers")
	}
	s := &schools{}
	var list []string
	for i := range 2 {
		shard := testenv.SharedMariaDB(t)
		shard.Exec(t,
			"CREATE TABLE fitness_result (data_id BIGINT UNSIGNED PRIMARY KEY, detect_id BIGINT UNSIGNED NOT NULL, school_id INT UNSIGNED NOT NULL, "+
				"venue_id INT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL, result DECIMAL(18, 3) NOT NULL, KEY (detect_id))",
			"CREATE TABLE fitness_result_deletion (data_id BIGINT UNSIGNED PRIMARY KEY, detect_id BIGINT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL, KEY (detect_id))")
		db, err := sql.Open("mysql", shard.DSN())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		s.shards, list = append(s.shards, db), append(list, fmt.Sprintf("{name: s%d, dsn: %q}", i, shard.DSN()))
	}
	text := repositoryConfig(t)
	for _, r := range [][2]string{
		{"shards: [{name: s0, dsn_file: /run/secrets/s0}]", "shards: [" + strings.Join(list, ", ") + "]"},
		{"{name: user_id,    from: userId,    type: UInt64}", "{name: school_id, " + wrongSchool},
		{"      - {name: project_id, from: projectId, type: UInt32}\n", ""},
		{"      - {name: unit,       from: unit,      type: LowCardinality(String)}\n", ""},
		{"user_id AS userId, project_id AS projectId, version, result, unit,", "school_id AS `school.id`, venue_id AS `venue.id`, version, result,"},
		{"{column: unit,    source: unit,    class: string}", "{column: school_id, source: school_id, class: integer}"},
		{
			"{name: fitness_results_by_campaign, query: \"SELECT detect_id, project_id, count() AS results, avg(result) AS average, max(result) AS best FROM {current} GROUP BY detect_id, project_id\"}",
			"{name: results_by_school, query: \"SELECT detect_id, school_id, count() AS results FROM {current} GROUP BY detect_id, school_id\"}",
		},
	} {
		text = replaced(t, text, r[0], r[1])
	}
	s.text = text
	s.world = newWorld(t, setup{config: text, env: []string{"PROJECTOR_BATCH__DELAY=100ms"}})
	return s
}

// successor is the same world under the corrected configuration of generation 2.
func (s *schools) successor() *world {
	s.t.Helper()
	next := *s.world
	next.write(replaced(s.t, replaced(s.t, s.text, wrongSchool, rightSchool), "    generation: 1 ", "    generation: 2 "))
	next.group = s.topic + ".fitness_results.g2"
	return &next
}

// results stores n results of a version and tells the topic of them: the first
// half in campaign 10001, whose pupils are tested at their own school, the rest
// in 10002, where all are tested at school 900. Every tenth is deleted.
func (s *schools) results(from, n int, version uint64) {
	s.t.Helper()
	var records []*kgo.Record
	for id := from; id < from+n; id++ {
		campaign, school := 10001+id%2, 100+id%7
		venue := school
		if campaign == 10002 {
			venue = 900
		}
		shard, deleted := s.shards[id/2%2], id%10 == 0
		var err error
		if deleted {
			_, err = shard.ExecContext(s.t.Context(), "REPLACE INTO fitness_result_deletion VALUES (?, ?, ?)", id, campaign, version)
		} else {
			_, err = shard.ExecContext(s.t.Context(), "REPLACE INTO fitness_result VALUES (?, ?, ?, ?, ?, 7.5)", id, campaign, school, venue, version)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		records = append(records, &kgo.Record{Key: fmt.Append(nil, id), Value: fmt.Appendf(nil,
			`{"schemaVersion":1,"dataId":%d,"detectId":%d,"school":{"id":%d},"venue":{"id":%d},"version":%d,"result":7.500,"isDeleted":%t,"eventId":"fitness-result-%[1]d-v%[5]d"}`,
			id, campaign, school, venue, version, deleted)})
	}
	s.produce(records...)
}

// wrong is what readers see of the defect, in each campaign.
func (s *schools) wrong() string {
	s.t.Helper()
	return s.ask("SELECT countIf(detect_id = 10001 AND school_id != 100 + data_id % 7), countIf(detect_id = 10002 AND school_id != 100 + data_id % 7), count() FROM fitness_results_current")
}

// TestStoryWrongSchool is docs/story-wrong-school.md: a mapping defect writes the
// wrong school for one campaign, with every record and version intact. It shows
// what does not find it, what does, and how readers get the right rows without
// a moment in which they see less.
func TestStoryWrongSchool(t *testing.T) {
	const n = 600
	s := newSchools(t)
	s.apply()
	old := s.start("g1")
	s.results(1, n, 1)
	s.settle()
	if got := s.wrong(); got != "0\t300\t540" {
		t.Fatalf("wrong in 10001, wrong in 10002, all: %q", got)
	}

	// What does not find it.
	if all := s.status(0); *all[0].Lag != 0 || len(all[0].Letters) > 0 && all[0].Letters[0].Letters > 0 {
		t.Errorf("status finds something: %+v", all)
	}
	s.must(0, "schema", "check")
	s.must(0, "mapping", "check")
	s.must(0, "reconcile", "--all", "--level", "counts", "--settle", "1s")
	s.must(0, "reconcile", "--all", "--level", "versions", "--settle", "1s")
	s.must(0, "reconcile", "--campaign", "10001", "--settle", "1s")
	if got := s.ask("SELECT count() FROM fitness_results_conflicts"); got != "0" {
		t.Errorf("%s conflicts", got)
	}
	s.must(0, "backfill", "--campaign", "10002", "--reason", "try a backfill") // through the same mapping
	if got := s.wrong(); got != "0\t300\t540" {
		t.Errorf("after a backfill: %q", got)
	}

	// What does.
	found := s.must(3, "reconcile", "--all", "--settle", "1s", "-o", "json")
	var reports []struct {
		Campaign string
		Verdict  string
		Kinds    map[string]int
		Findings []struct{ Fields []struct{ Column string } }
	}
	if err := json.Unmarshal([]byte(found.stdout), &reports); err != nil || len(reports) != 2 {
		t.Fatalf("%v\n%s", err, found.stdout)
	}
	if r := reports[1]; reports[0].Verdict != "equal" || r.Kinds["content_conflict"] != 300 || len(r.Kinds) != 1 || len(r.Findings[0].Fields) != 1 || r.Findings[0].Fields[0].Column != "school_id" {
		t.Errorf("reconcile finds %+v", reports)
	}

	// The rebuild, while results keep coming.
	next := s.successor()
	s.results(1001, 100, 1)
	next.must(0, "rebuild", "start", "--yes", "--reason", "school_id reads the venue, ticket 4711")
	s.results(2001, 100, 1)
	s.results(11, 20, 2)
	serving := next.start("g2")
	verified := next.must(0, "rebuild", "verify", "--settle", "1s")
	for _, want := range []string{"2 of 2 campaigns equal", "0 added, 0 removed, 0 at another version"} {
		if !strings.Contains(verified.stdout, want) {
			t.Errorf("verify does not say %q:\n%s", want, verified.stdout)
		}
	}
	if !strings.Contains(verified.stdout, "10002     0      0        0         400       school_id 400") || strings.Contains(verified.stdout, "\n  10001") {
		t.Errorf("verify does not say what changes for readers:\n%s", verified.stdout)
	}
	if got := s.wrong(); got != "0\t400\t720" {
		t.Errorf("before the switch readers see %q", got)
	}
	next.must(0, "rebuild", "switch", "--yes")
	if got := s.wrong(); got != "0\t0\t720" {
		t.Errorf("after the switch readers see %q", got)
	}
	if got := s.ask("SELECT count() FROM results_by_school WHERE school_id = 900"); got != "0" {
		t.Errorf("the report has %s rows of the venue", got)
	}

	// The old deployment was forgotten. It cannot do harm, and does not go unnoticed.
	next.must(0, "rebuild", "close", "--yes")
	s.results(3001, 10, 1)
	old.ends(soon, 1)
	old.says("a newer generation has taken over")
	if got := s.ask("SELECT count() FROM fitness_results_g1 WHERE data_id > 3000"); got != "0" {
		t.Errorf("the closed table has %s late rows", got)
	}
	if lag := s.lag(); lag != 10 {
		t.Errorf("the old group is %d events behind, want the 10 that it could not write", lag)
	}
	next.settle()
	next.must(0, "rebuild", "verify", "--settle", "1s")
	next.must(0, "reconcile", "--all", "--settle", "1s")
	if got := s.wrong(); got != "0\t0\t729" {
		t.Errorf("at the end readers see %q", got)
	}
	record := s.ask("SELECT argMax(state, sequence), any(reason), length(JSONExtractArrayRaw(argMax(checkpoint, sequence), 'steps')) FROM projector_operations WHERE kind = 'rebuild'")
	if record != "verified\tschool_id reads the venue, ticket 4711\t9" {
		t.Errorf("the record says %q", record)
	}
	serving.drain()
}
