package reconcile

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/chprojector/projector/internal/contract"
)

// plainSpec is a contract of few columns.
func plainSpec(t testing.TB) contract.Spec {
	t.Helper()
	field := func(column string, class contract.Class, scale int) contract.Field {
		return contract.Field{Column: column, Source: column, Class: class, Scale: scale}
	}
	return contract.Spec{
		Identity: []string{"id"}, Version: "version", Deleted: "is_deleted", Campaign: "campaign", OrderBy: []string{"campaign", "id"},
		Columns:   columns(t, "id UInt64", "campaign UInt64", "version UInt64", "school String", "score Decimal(18, 3)", "is_deleted Bool"),
		Rows:      "SELECT id AS dataId FROM fact WHERE campaign = ?",
		Deletions: "SELECT id AS dataId FROM gone WHERE campaign = ?",
		Fields: []contract.Field{
			field("id", contract.Integer, 0), field("version", contract.Integer, 0), field("school", contract.String, 0), field("score", contract.Decimal, 3),
		},
	}
}

// newPlain is a world with few columns, 1000 equal records of campaign 7 and 20
// deleted ones.
func newPlain(t testing.TB) *world {
	t.Helper()
	w := newWorld(t, plainSpec(t),
		"CREATE TABLE fact (id BIGINT UNSIGNED PRIMARY KEY, campaign BIGINT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL, school VARCHAR(40) NOT NULL, score DECIMAL(10,2) NOT NULL, KEY (campaign))",
		"CREATE TABLE gone (id BIGINT UNSIGNED PRIMARY KEY, campaign BIGINT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL, KEY (campaign))")
	for shard := range w.shards {
		w.exec(shard, fmt.Sprintf("INSERT INTO fact SELECT seq, 7, 3, CONCAT('school ', seq), seq / 4 FROM seq_%d_to_1000_step_2", 2-shard))
		w.exec(shard, fmt.Sprintf("INSERT INTO gone SELECT seq, 7, 5 FROM seq_%d_to_1020_step_2", 1002-shard))
	}
	const list = "(id, campaign, version, school, score, is_deleted, _generation)"
	w.insert("INSERT INTO facts_g1 " + list + " SELECT number + 1, 7, 3, concat('school ', toString(number + 1)), toDecimal64(number + 1, 3) / 4, 0, 1 FROM numbers(1000)")
	w.insert("INSERT INTO facts_g1 " + list + " SELECT number + 1, 7, 2, 'old', 1, 0, 1 FROM numbers(1000)")
	w.insert("INSERT INTO facts_g1 " + list + " SELECT number + 1001, 7, 4, '', 0, 0, 1 FROM numbers(20)")
	w.insert("INSERT INTO facts_g1 " + list + " SELECT number + 1001, 7, 5, '', 0, 1, 1 FROM numbers(20)")
	return w
}

func (w *world) comparison() *Comparison {
	return &Comparison{
		Contract: w.contract, Source: w.source, Table: w.table, Progress: idle{}, Deletes: true,
		Options: Options{Level: contract.Fields, Buckets: 32, Settle: time.Millisecond},
	}
}

// plants are one discrepancy each: what is done, and what must be found.
func plants() []struct {
	name    string
	source  string // run on the shard of the record
	table   string // VALUES to insert, or a statement
	id      int
	want    Kind
	columns string
} {
	const row = "(%d, 7, %d, '%s', %s, %d, 1)"
	return []struct {
		name    string
		source  string
		table   string
		id      int
		want    Kind
		columns string
	}{
		{"missing", "INSERT INTO fact VALUES (5001, 7, 1, 'new', 1)", "", 5001, Missing, ""},
		{"missing tombstone", "INSERT INTO gone VALUES (5002, 7, 9)", "", 5002, Missing, ""},
		{"stale", "UPDATE fact SET version = 4, school = 'moved on' WHERE id = 11", "", 11, Stale, ""},
		{"stale tombstone", "UPDATE gone SET version = 6 WHERE id = 1004", "", 1004, Stale, ""},
		{"undeleted", "INSERT INTO gone SELECT id, 7, 4 FROM fact WHERE id = 13", "", 13, Undeleted, ""},
		{"content", "UPDATE fact SET school = 'another' WHERE id = 15", "", 15, ContentConflict, "school"},
		{"two contents", "UPDATE fact SET school = 'another', score = 0.01 WHERE id = 16", "", 16, ContentConflict, "school,score"},
		{"deleted at the same version", "", fmt.Sprintf(row, 17, 3, "", "0", 1), 17, ContentConflict, ""},
		{"ahead", "", fmt.Sprintf(row, 19, 8, "school 19", "4.75", 0), 19, Ahead, ""},
		{"deleted ahead", "", fmt.Sprintf(row, 20, 8, "school 20", "5", 1), 20, Ahead, ""},
		{"unexpected", "", fmt.Sprintf(row, 6001, 1, "ghost", "1", 0), 6001, Unexpected, ""},
		{"moved to another campaign", "UPDATE fact SET campaign = 8, version = 4 WHERE id = 22", "(22, 8, 4, 'school 22', 5.5, 0, 1)", 22, MovedKey, ""},
	}
}

func (w *world) plant(source, table string, id int) {
	w.t.Helper()
	if source != "" {
		for statement := range strings.SplitSeq(source, ";") {
			w.exec(id%2, statement)
			if strings.Contains(statement, "INSERT INTO gone SELECT id") {
				w.exec(id%2, "DELETE FROM fact WHERE id = ?", id)
			}
		}
	}
	if table != "" {
		w.insert("INSERT INTO facts_g1 (id, campaign, version, school, score, is_deleted, _generation) VALUES " + table)
	}
}

func TestKindsAlone(t *testing.T) {
	for _, p := range plants() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			w := newPlain(t)
			if got := w.comparison().Campaign(t.Context(), "7"); got.Verdict != Equal || got.Source.Live != 1000 || got.Source.Deleted != 20 {
				t.Fatalf("before: %+v", got)
			}
			w.plant(p.source, p.table, p.id)
			got := w.comparison().Campaign(t.Context(), "7")
			if got.Verdict != Different || len(got.Findings) != 1 || got.Kinds[p.want] != 1 {
				t.Fatalf("%+v", got)
			}
			f := got.Findings[0]
			var names []string
			for _, d := range f.Fields {
				names = append(names, d.Column)
			}
			if f.Kind != p.want || f.ID != fmt.Sprint(p.id) || strings.Join(names, ",") != p.columns {
				t.Errorf("%+v", f)
			}
		})
	}
}

func TestKindsTogether(t *testing.T) {
	w := newPlain(t)
	want := map[Kind]int{}
	for _, p := range plants() {
		w.plant(p.source, p.table, p.id)
		want[p.want]++
	}
	for _, buckets := range []uint32{1, 32, 1024} {
		c := w.comparison()
		c.Options.Buckets, c.Options.Batch = buckets, 100 // smaller than one bucket, so that it is split
		got := c.Campaign(t.Context(), "7")
		if got.Verdict != Different || !maps.Equal(got.Kinds, want) {
			t.Errorf("%d buckets: %v, want %v (%s)", buckets, got.Kinds, want, got.Error)
		}
	}
	t.Run("levels", func(t *testing.T) {
		const contents = 2 // differ in nothing else
		c := w.comparison()
		c.Options.Level = contract.Versions
		if got := c.Campaign(t.Context(), "7"); len(got.Findings) != len(plants())-contents || got.Kinds[ContentConflict] != want[ContentConflict]-contents {
			t.Errorf("versions: %v", got.Kinds)
		}
		c.Options.Level, c.Options.Buckets = contract.Counts, 1<<16 // hardly a bucket with two plants
		got := c.Campaign(t.Context(), "7")
		for _, k := range []Kind{Missing, Undeleted, Unexpected} {
			if got.Kinds[k] != want[k] {
				t.Errorf("counts: %v, want all %d %s", got.Kinds, want[k], k)
			}
		}
	})
	t.Run("limit", func(t *testing.T) {
		c := w.comparison()
		c.Options.Limit, c.Options.Batch, c.Options.Buckets = 1, 1, 1024
		got := c.Campaign(t.Context(), "7")
		if got.Verdict != Different || got.Unopened == 0 || len(got.Findings) == 0 {
			t.Errorf("%d unopened, %v", got.Unopened, got.Kinds)
		}
	})
	t.Run("sample", func(t *testing.T) {
		n := 0
		for b := range uint32(32) {
			c := w.comparison()
			c.Options.Only = []uint32{b}
			got := c.Campaign(t.Context(), "7")
			if got.Error != "" || got.Compared != 1 {
				t.Errorf("%+v", got)
			}
			n += len(got.Findings)
		}
		if n != len(plants()) {
			t.Errorf("%d findings in all samples together, want %d", n, len(plants()))
		}
	})
}

// A difference that an event under way explains does not count while the
// projection is behind, and one that it does not explain counts all the same.
func TestProjectionIsBehind(t *testing.T) {
	w := newPlain(t)
	w.plant("UPDATE fact SET version = 4 WHERE id = 11", "", 11)
	c := w.comparison()
	c.Progress = behind{}
	told := 0
	c.Again = func(campaign string, round, of, records int, reason string) {
		if told++; campaign != "7" || round != told || of != DefaultRounds || records != 1 || !strings.Contains(reason, "3 events behind") {
			t.Errorf("told of campaign %s, round %d of %d, %d records, %s", campaign, round, of, records, reason)
		}
	}
	got := c.Campaign(t.Context(), "7")
	if told != DefaultRounds {
		t.Errorf("who waited was told %d times", told)
	}
	c.Again = nil
	if got.Verdict != Inconclusive || got.Unresolved != 1 || !strings.Contains(got.Reason, "3 events behind") {
		t.Errorf("%+v", got)
	}
	w.plant("", "(6001, 7, 1, 'ghost', 1, 0, 1)", 6001)
	if got := c.Campaign(t.Context(), "7"); got.Verdict != Different || got.Kinds[Unexpected] != 1 || got.Unresolved != 1 {
		t.Errorf("%+v", got)
	}
}

type behind struct{}

func (behind) Mark(context.Context) (Mark, error)          { return Mark{{"t", 0}: 5}, nil }
func (behind) Behind(context.Context, Mark) (int64, error) { return 3, nil }

// Where the source keeps no deletions, a row that is gone from it may have its
// deletion under way.
func TestDeletionUnderWay(t *testing.T) {
	w := newPlain(t)
	spec := w.spec
	spec.Deletions = ""
	rules, table := compiled(t, spec), *w.table
	table.Contract = rules
	source, err := OpenMySQL(t.Context(), w.addresses(), rules)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	compare := func(p Progress, settle time.Duration) *Report {
		c := w.comparison()
		c.Contract, c.Source, c.Table, c.Progress, c.Deletes, c.Options.Settle = rules, source, &table, p, false, settle
		return c.Campaign(t.Context(), "7")
	}
	if got := compare(idle{}, 1); got.Verdict != Equal {
		t.Fatalf("before: %+v", got)
	}
	w.exec(1, "DELETE FROM fact WHERE id = 11")
	if got := compare(behind{}, 1); got.Verdict != Inconclusive || got.Unresolved != 1 || !strings.Contains(got.Reason, "3 events behind") {
		t.Errorf("behind: %+v", got)
	}
	if got := compare(idle{}, 1); got.Verdict != Different || got.Kinds[Unexpected] != 1 {
		t.Errorf("never deleted: %+v", got)
	}
	if got := compare(&late{w: w}, time.Minute); got.Verdict != Equal {
		t.Errorf("deleted a little later: %+v", got)
	}
}

// late is a projection that has passed all events, and whose next one, published
// only then, is a deletion.
type late struct {
	w     *world
	asked int
}

func (*late) Mark(context.Context) (Mark, error) { return Mark{{"t", 0}: 5}, nil }

func (l *late) Behind(context.Context, Mark) (int64, error) {
	if l.asked++; l.asked == 2 {
		l.w.plant("", "(11, 7, 4, '', 0, 1, 1)", 11)
	}
	return 0, nil
}

// A record that changes between the two readings is unresolved, never equal.
func TestSourceNeverRests(t *testing.T) {
	w := newPlain(t)
	w.plant("UPDATE fact SET version = 4 WHERE id = 11", "", 11)
	c := w.comparison()
	c.Source = restless{w}
	got := c.Campaign(t.Context(), "7")
	if got.Verdict != Inconclusive || got.Unresolved != 1 || got.Rounds != DefaultRounds || !strings.Contains(got.Reason, "kept changing") {
		t.Errorf("%+v", got)
	}
}

// restless changes a record after each reading.
type restless struct{ w *world }

func (r restless) Digests(ctx context.Context, campaign string, s contract.Scan) (Summary, error) {
	return r.w.source.Digests(ctx, campaign, s)
}

func (r restless) Records(ctx context.Context, campaign string, s contract.Scan, each func(Record) error) error {
	defer r.w.exec(1, "UPDATE fact SET version = version + 1 WHERE id = 11")
	return r.w.source.Records(ctx, campaign, s, each)
}

func TestShardIsDown(t *testing.T) {
	w := newPlain(t)
	shards := w.addresses()
	shards[1].DSN.Value = strings.Replace(shards[1].DSN.Value, w.shards[1].Addr(), "127.0.0.1:1", 1)
	if m, err := OpenMySQL(t.Context(), shards, w.contract); err == nil || !strings.Contains(err.Error(), "shard s1: connect") {
		m.Close()
		t.Errorf("%v", err)
	}
	w.source.shards[1].db.Close() // it goes away after it was opened
	if got := w.comparison().Campaign(t.Context(), "7"); got.Verdict != Failed || !strings.Contains(got.Error, "shard s1") {
		t.Errorf("%+v", got)
	}
}

func TestUnknownCampaign(t *testing.T) {
	w := newPlain(t)
	if got := w.comparison().Campaign(t.Context(), "99"); got.Verdict != Failed || !strings.Contains(got.Error, ErrNoCampaign.Error()) {
		t.Errorf("%+v", got)
	}
}

// An empty sample is of a small campaign, or of none.
func TestSampleOfAnUnknownCampaign(t *testing.T) {
	w := newPlain(t)
	w.exec(0, "INSERT INTO fact VALUES (9001, 9, 1, 'school', 1)")
	c := w.comparison()
	used := contract.Bucket("V4:9001;", 32)
	c.Options.Only = []uint32{(used + 1) % 32}
	if got := c.Campaign(t.Context(), "9"); got.Verdict != Equal {
		t.Errorf("a small campaign: %+v", got)
	}
	if got := c.Campaign(t.Context(), "99"); got.Verdict != Failed {
		t.Errorf("no campaign: %+v", got)
	}
}

func TestRecordOnTwoShards(t *testing.T) {
	w := newPlain(t)
	w.exec(0, "INSERT INTO fact VALUES (1, 7, 3, 'school 1', 0.25)")
	if got := w.comparison().Campaign(t.Context(), "7"); got.Verdict != Failed || !strings.Contains(got.Error, "holds the record 1 twice (s") {
		t.Errorf("%+v", got)
	}
}
