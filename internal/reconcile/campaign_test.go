package reconcile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/mysql"
)

// Campaigns that a collation takes for one are several in the table, and a list
// made with DISTINCT names but one of them.
func TestCampaignsOfOneCollation(t *testing.T) {
	spec := plainSpec(t)
	spec.Columns = columns(t, "id UInt64", "campaign String", "version UInt64", "school String", "score Decimal(18, 3)", "is_deleted Bool")
	spec.Fields = append(spec.Fields, contract.Field{Column: "campaign", Source: "campaign", Class: contract.String})
	const text = "campaign VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"
	w := newWorld(t, spec,
		"CREATE TABLE fact (id BIGINT UNSIGNED PRIMARY KEY, "+text+", version BIGINT UNSIGNED NOT NULL, school VARCHAR(40) NOT NULL, score DECIMAL(10,2) NOT NULL, KEY (campaign))",
		"CREATE TABLE gone (id BIGINT UNSIGNED PRIMARY KEY, "+text+", version BIGINT UNSIGNED NOT NULL, KEY (campaign))")
	w.exec(0, "INSERT INTO fact VALUES (1, 'abc', 1, '', 1), (2, 'ABC', 1, '', 1)")
	w.exec(1, "INSERT INTO fact VALUES (3, 'abc ', 1, '', 1)")
	w.exec(1, "INSERT INTO gone VALUES (4, 'Abc', 1), (5, 'abc', 1)")
	w.insert("INSERT INTO facts_g1 (id, campaign, version, school, score, is_deleted, _generation) VALUES " +
		"(1, 'abc', 1, '', 1, 0, 1), (2, 'ABC', 1, '', 1, 0, 1), (3, 'abc ', 1, '', 1, 0, 1), (4, 'Abc', 1, '', 0, 1, 1), (5, 'abc', 1, '', 0, 1, 1)")
	all, err := w.source.Campaigns(t.Context(), "SELECT DISTINCT campaign FROM fact")
	if want := []string{"ABC", "Abc", "abc", "abc "}; err != nil || !slices.Equal(slices.Sorted(maps.Keys(all)), want) {
		t.Fatalf("%v, %v; want %q", all, err, want)
	}
	for campaign := range all {
		if got := w.comparison().Campaign(t.Context(), campaign); got.Verdict != Equal {
			t.Errorf("%q: %+v", campaign, got)
		}
	}
	w.exec(0, "UPDATE fact SET school = 'another' WHERE id = 2")
	w.exec(1, "UPDATE gone SET version = 2 WHERE id = 4")
	for campaign, want := range map[string]Kind{"ABC": ContentConflict, "Abc": Stale} {
		if got := w.comparison().Campaign(t.Context(), campaign); got.Kinds[want] != 1 || len(got.Findings) != 1 {
			t.Errorf("%q: %+v", campaign, got)
		}
	}
}

// Rows of no campaign are compared by nobody, so a list of all campaigns that has
// them is refused, and so is one of which nobody can say where the campaign stands.
func TestRowsOfNoCampaign(t *testing.T) {
	w := newPlain(t)
	if all, err := w.source.Campaigns(t.Context(), "SELECT NULLIF(campaign, 8) FROM fact"); err != nil || !all["7"] {
		t.Errorf("%v, %v", all, err)
	}
	w.exec(1, "INSERT INTO fact VALUES (9001, 8, 1, '', 1)")
	if all, err := w.source.Campaigns(t.Context(), "SELECT NULLIF(campaign, 8) FROM fact"); !errors.Is(err, mysql.ErrNull) || !strings.Contains(err.Error(), "shard s1") {
		t.Errorf("%v, %v", all, err)
	}
	if all, err := w.source.Campaigns(t.Context(), "SELECT DISTINCT campaign, id FROM fact"); err == nil || !strings.Contains(err.Error(), "shard s0: list the campaigns: the query has 2 columns, and one is expected: SELECT") {
		t.Errorf("%v, %v", all, err)
	}
}

// movable is newPlain where a record may change its campaign: it is no part of
// the order key.
func movable(t *testing.T) *world {
	t.Helper()
	spec := plainSpec(t)
	spec.OrderBy = []string{"id"}
	w := newWorld(t, spec,
		"CREATE TABLE fact (id BIGINT UNSIGNED PRIMARY KEY, campaign BIGINT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL, school VARCHAR(40) NOT NULL, score DECIMAL(10,2) NOT NULL)",
		"CREATE TABLE gone (id BIGINT UNSIGNED PRIMARY KEY, campaign BIGINT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL)")
	w.exec(1, "INSERT INTO fact VALUES (11, 7, 3, 'school', 1), (12, 7, 3, 'school', 1)")
	w.plant("", "(11, 7, 3, 'school', 1, 0, 1), (12, 7, 3, 'school', 1, 0, 1)", 11)
	return w
}

// A record that has left the campaign may have its event under way.
func TestLeavesTheCampaign(t *testing.T) {
	w := movable(t)
	compare := func(p Progress, settle time.Duration) *Report {
		c := w.comparison()
		c.Progress, c.Options.Settle = p, settle
		return c.Campaign(t.Context(), "7")
	}
	w.exec(1, "UPDATE fact SET campaign = 8, version = 4 WHERE id = 11")
	if got := compare(behind{}, 1); got.Verdict != Inconclusive || got.Unresolved != 1 {
		t.Errorf("behind: %+v", got)
	}
	if got := compare(idle{}, 1); got.Verdict != Different || got.Kinds[Unexpected] != 1 {
		t.Errorf("never told: %+v", got)
	}
	if got := compare(&later{w: w, row: "(11, 8, 4, 'school', 1, 0, 1)"}, time.Minute); got.Verdict != Equal {
		t.Errorf("told a little later: %+v", got)
	}
}

// All versions of a record count, whichever campaigns they are in: a newer one
// elsewhere hides a contradiction, and a removal that left an older one elsewhere
// would bring it back.
func TestVersionsInSeveralCampaigns(t *testing.T) {
	w := movable(t)
	w.insert("SYSTEM STOP MERGES facts_g1")
	w.plant("", "(11, 7, 3, 'another', 1, 0, 1)", 11)
	if got := w.comparison().Campaign(t.Context(), "7"); got.Contradicted() != 1 {
		t.Errorf("%+v", got)
	}
	w.exec(1, "UPDATE fact SET campaign = 8, version = 4 WHERE id = 11")
	w.plant("", "(11, 8, 4, 'school', 1, 0, 1)", 11)
	if got := w.comparison().Campaign(t.Context(), "7"); got.Verdict != Equal || len(got.Conflicts) != 1 || !got.Conflicts[0].Superseded {
		t.Errorf("%+v", got)
	}
	const id = "V2:11;"
	physical, err := w.table.Physical(t.Context(), "8", []string{id})
	if err != nil || len(physical[id]) != 3 {
		t.Fatalf("%+v, %v", physical, err)
	}
	var rows []contract.PhysicalRow
	for _, p := range physical[id] {
		rows = append(rows, p.PhysicalRow)
	}
	w.insert("SYSTEM START MERGES facts_g1") // mutations stand still with them
	w.insert(w.contract.Removal(w.table.Name, "8", rows))
	if left, err := w.db.Query(t.Context(), "SELECT count() FROM facts_g1 WHERE id = 11"); err != nil || left != "0\n" {
		t.Errorf("%s rows are left, %v", left, err)
	}
}

// later is a projection that has passed all events, and whose next one comes a
// little later.
type later struct {
	w     *world
	row   string
	asked int
}

func (*later) Mark(context.Context) (Mark, error) { return Mark{{"t", 0}: 5}, nil }

func (l *later) Behind(context.Context, Mark) (int64, error) {
	if l.asked++; l.asked == 2 {
		l.w.plant("", l.row, 11)
	}
	return 0, nil
}

// What an event of another campaign has taken along is not in this one any more.
func TestTopicLeavesTheCampaign(t *testing.T) {
	for name, key := range map[string][]string{"the key stays": {"id"}, "the key moves": {"campaign", "id"}} {
		t.Run(name, func(t *testing.T) {
			spec := eventSpec(plainSpec(t))
			spec.OrderBy = key
			w := newWorld(t, spec,
				"CREATE TABLE fact (id BIGINT UNSIGNED PRIMARY KEY, campaign BIGINT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL, school VARCHAR(40) NOT NULL, score DECIMAL(10,2) NOT NULL)",
				"CREATE TABLE gone (id BIGINT UNSIGNED PRIMARY KEY, campaign BIGINT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL)")
			topic, add := campaigns(t, w.contract)
			for _, e := range [][3]int{{1, 1, 7}, {2, 1, 7}, {1, 2, 8}, {2, 2, 8}, {2, 3, 7}, {2, 1, 8}} { // id, version, campaign
				add(e[0], e[1], e[2], "s")
				w.plant("", fmt.Sprintf("(%d, %d, %d, 's', 1, 0, 1)", e[0], e[2], e[1]), e[0])
			}
			c := w.comparison()
			c.Source = topic
			if got := c.Campaign(t.Context(), "7"); len(key) == 1 && got.Verdict != Equal || len(key) == 2 && (len(got.Findings) != 1 || got.Kinds[MovedKey] != 1) {
				t.Errorf("campaign 7: %+v", got)
			}
			if got := c.Campaign(t.Context(), "8"); len(key) == 1 && got.Verdict != Equal || len(key) == 2 && (len(got.Findings) != 1 || got.Kinds[MovedKey] != 1) {
				t.Errorf("campaign 8: %+v", got)
			}
		})
	}
}

// orders are all orders of a list.
func orders[T any](list []T) (all [][]T) {
	if len(list) == 0 {
		return [][]T{nil}
	}
	for i, first := range list {
		for _, rest := range orders(slices.Delete(slices.Clone(list), i, i+1)) {
			all = append(all, append([]T{first}, rest...))
		}
	}
	return all
}

// movableRules is a contract whose records may change their campaign.
func movableRules(t *testing.T) *contract.Contract {
	t.Helper()
	spec := eventSpec(plainSpec(t))
	spec.OrderBy = []string{"id"}
	return compiled(t, spec)
}

// campaigns is an empty topic, and a function that adds an event to it.
func campaigns(t *testing.T, rules *contract.Contract) (topic *Topic, add func(id, version, campaign int, school string)) {
	t.Helper()
	admin, opts := facts(t, 1)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &Topic{Contract: rules, Admin: admin, Kafka: opts, Topics: []string{"facts"}}, func(id, version, campaign int, school string) {
		t.Helper()
		value := fmt.Sprintf(`{"id":%d,"v":%d,"where":{"campaign":%d},"school":%q,"score":1,"gone":false}`, id, version, campaign, school)
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "facts", Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// Partitions and topics are read in any order, and an old event may be published
// late: which campaign a record is in is decided by versions alone.
func TestTopicLeavesTheCampaignInAnyOrder(t *testing.T) {
	type event struct {
		version, campaign int
		school            string
	}
	const stays, leaves = 7, 8 // the campaign of the newest version of records of either group
	topic, add := campaigns(t, movableRules(t))
	want, id := map[int]map[string]uint64{stays: {}, leaves: {}}, 0
	for _, c := range []struct {
		events []event
		in     int
		newest uint64
	}{
		{[]event{{3, 7, "s"}, {5, 8, "s"}, {1, 8, "s"}}, leaves, 5},
		{[]event{{3, 7, "s"}, {3, 7, "contradicts"}, {4, 8, "s"}}, leaves, 4},
		{[]event{{3, 7, "s"}, {5, 8, "s"}, {6, 7, "s"}}, stays, 6},
	} {
		for _, events := range orders(c.events) {
			id++
			for _, e := range events {
				add(id, e.version, e.campaign, e.school)
			}
			want[c.in][fmt.Sprint(id)] = c.newest
		}
	}
	scan := contract.Scan{Level: contract.Fields, Buckets: 16}
	for _, topic.Share = range []int{0, 2} {
		for campaign, versions := range want {
			got := map[string]uint64{}
			if err := topic.Records(t.Context(), fmt.Sprint(campaign), scan, func(r Record) error {
				got[topic.Contract.Identity(r.ID)] = r.Version
				return nil
			}); err != nil || !maps.Equal(got, versions) {
				t.Errorf("campaign %d has %v, want %v, %v", campaign, got, versions, err)
			}
			sum, err := topic.Digests(t.Context(), fmt.Sprint(campaign), scan)
			var revision uint64
			for _, v := range versions {
				revision += v
			}
			if total := sum.total(); err != nil || total.Live != uint64(len(versions)) || total.Revision != revision || len(sum.Conflicts) != 0 {
				t.Errorf("room for %d: campaign %d sums up to %+v with %d conflicts, want %v, %v", topic.Share, campaign, total, len(sum.Conflicts), versions, err)
			}
		}
	}
}

// readings counts the clients that were made.
type readings int

func (n *readings) OnNewClient(*kgo.Client) { *n++ }

// The reading for other campaigns ends where the first one ended: a record that
// has left since is one that still was there then. Without other campaigns there
// is none.
func TestTopicReadsOtherCampaignsToTheSameEnd(t *testing.T) {
	topic, add := campaigns(t, movableRules(t))
	n := new(readings)
	topic.Kafka = append(topic.Kafka, kgo.WithHooks(n))
	read := func() (versions []uint64) {
		t.Helper()
		if err := topic.read(t.Context(), contract.Scan{Buckets: 1}, "7", func(contract.Event, string) { add(1, 9, 8, "s") },
			func(e contract.Event) { versions = append(versions, e.Version) }); err != nil {
			t.Fatal(err)
		}
		return versions
	}
	add(1, 3, 7, "s")
	if got := read(); len(got) != 0 || *n != 1 {
		t.Errorf("%v in %d readings", got, *n)
	}
	if got := read(); !slices.Equal(got, []uint64{9}) || *n != 3 {
		t.Errorf("%v in %d readings", got, *n)
	}
}

// A record that was deleted on one shard may live on another one since, and its
// deletion may be on record on both.
func TestDeletionOnAnotherShard(t *testing.T) {
	w := newPlain(t)
	w.exec(0, "INSERT INTO gone VALUES (11, 7, 2), (3001, 7, 5)") // 11 lives on shard 1 at version 3
	w.exec(1, "INSERT INTO gone VALUES (3001, 7, 4)")
	w.plant("", "(3001, 7, 5, '', 0, 1, 1)", 3001)
	if got := w.comparison().Campaign(t.Context(), "7"); got.Verdict != Equal {
		t.Errorf("%+v", got)
	}
	w.exec(0, "UPDATE gone SET version = 4 WHERE id = 11")
	if got := w.comparison().Campaign(t.Context(), "7"); got.Kinds[Undeleted] != 1 || len(got.Findings) != 1 {
		t.Errorf("%+v", got)
	}
}

// fixed is a source that has these records, in this order.
type fixed struct {
	Side
	records []Record
}

func (f fixed) Records(_ context.Context, _ string, _ contract.Scan, each func(Record) error) error {
	for _, r := range f.records {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

// Shards answer in any order, and what they have of one record counts alike in
// each: two live rows are a failure though a newer deletion is on record too.
func TestShardsAnswerInAnyOrder(t *testing.T) {
	row := func(place string, version uint64) Record { return Record{ID: "V1:1;", Version: version, Place: place} }
	deletion := func(place string, version uint64) Record {
		return Record{ID: "V1:1;", Version: version, Place: place, Deleted: true}
	}
	for name, c := range map[string]struct {
		records []Record
		want    string // the place of the state; "" is a failure
	}{
		"a deletion between the rows":  {[]Record{row("s0", 1), deletion("s1", 5), row("s2", 3)}, ""},
		"a deletion before the rows":   {[]Record{row("s0", 2), deletion("s1", 1), row("s2", 3)}, ""},
		"a deletion beside each row":   {[]Record{row("s0", 2), deletion("s0", 4), row("s2", 2), deletion("s2", 4)}, ""},
		"the row is newest":            {[]Record{deletion("s0", 1), deletion("s1", 4), row("s2", 5)}, "s2"},
		"a deletion is newest":         {[]Record{deletion("s0", 1), row("s1", 4), deletion("s2", 5)}, "s2"},
		"a row and a deletion are one": {[]Record{deletion("s0", 4), row("s1", 4), deletion("s2", 3)}, "s1"},
	} {
		for _, records := range orders(c.records) {
			j := &job{Comparison: &Comparison{Contract: compiled(t, plainSpec(t)), Source: fixed{records: records}}}
			pairs, err := j.source(t.Context(), contract.Scan{}, nil)
			switch {
			case c.want == "" && (err == nil || !strings.Contains(err.Error(), "holds the record 1 twice (s") || !strings.Contains(err.Error(), "s0") || !strings.Contains(err.Error(), "s2")):
				t.Errorf("%s: %+v: %v", name, records, err)
			case c.want != "" && (err != nil || pairs["V1:1;"].source.Place != c.want):
				t.Errorf("%s: %+v: %+v, %v", name, records, pairs["V1:1;"], err)
			}
		}
	}
}

// A version below zero is none, and above all not one near 2^64.
func TestNegativeVersion(t *testing.T) {
	w := newPlain(t)
	w.exec(1, "ALTER TABLE fact MODIFY version BIGINT NOT NULL")
	if got := w.comparison().Campaign(t.Context(), "7"); got.Verdict != Equal {
		t.Errorf("%+v", got)
	}
	w.exec(1, "UPDATE fact SET version = -3 WHERE id = 11")
	got := w.comparison().Campaign(t.Context(), "7")
	if got.Verdict != Failed || !strings.Contains(got.Error, "shard s1: sum up campaign 7") || !strings.Contains(got.Error, "version` + cast(0 as unsigned)") {
		t.Errorf("%s: %s %+v", got.Verdict, got.Error, got.Findings)
	}
}

// A table that is locked is waited for once, and not once more for each field.
func TestLockedTableIsWaitedForOnce(t *testing.T) {
	w := newPlain(t)
	db, err := sql.Open("mysql", w.shards[0].DSN()+"?lock_wait_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	holder, err := w.source.shards[0].db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if _, err := holder.ExecContext(t.Context(), "LOCK TABLES fact WRITE"); err != nil {
		t.Fatal(err)
	}
	locked := (&shard{name: "s0", db: db}).probe(t.Context(), w.contract)
	var name string
	var asked int
	if err := db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Com_stmt_prepare'").Scan(&name, &asked); err != nil {
		t.Fatal(err)
	}
	if locked == nil || !strings.Contains(locked.Error(), "1205") || asked != 1 {
		t.Errorf("asked %d times: %v", asked, locked)
	}
}
