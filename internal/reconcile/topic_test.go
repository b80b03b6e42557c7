package reconcile

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/testenv"
)

// TestTopic compares the table with what the topic says: versions in any order,
// repetitions, deletions and other campaigns among them, with room for all
// records in memory and for few.
func TestTopic(t *testing.T) {
	w := newPlain(t)
	spec := w.spec
	spec.Fields = append(slices.Clone(spec.Fields),
		contract.Field{Column: "campaign", Source: "campaign", Class: contract.Integer, Event: "where.campaign"},
		contract.Field{Column: "is_deleted", Source: "0", Class: contract.Bool, Event: "gone"})
	for i, path := range []string{"id", "v", "school", "score"} {
		spec.Fields[i].Event = path
	}
	rules := compiled(t, spec)
	if err := rules.CheckEvents(); err != nil {
		t.Fatal(err)
	}
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(3, "facts"))
	opts := []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)}
	admin, err := kafka.NewAdmin(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	produce := func(events ...string) {
		t.Helper()
		client, err := kgo.NewClient(opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		var records []*kgo.Record
		for i, e := range events {
			records = append(records, &kgo.Record{Topic: "facts", Key: fmt.Append(nil, i), Value: []byte(e)})
		}
		if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	event := func(id, version, campaign int, school, score string, gone bool) string {
		return fmt.Sprintf(`{"id":%d,"v":%d,"where":{"campaign":%d},"school":%q,"score":%s,"gone":%t}`, id, version, campaign, school, score, gone)
	}
	var events []string
	for id := 1; id <= 1000; id++ {
		score := fmt.Sprintf("%d.%02d", id/4, id%4*25)
		events = append(events, event(id, 3, 7, fmt.Sprintf("school %d", id), score, false), event(id, 2, 7, "old", "1e0", false))
		if id%3 == 0 {
			events = append(events, event(id, 3, 7, fmt.Sprintf("school %d", id), score+"0", false), event(id+5000, 1, 8, "elsewhere", "1", false))
		}
	}
	for id := 1001; id <= 1020; id++ {
		events = append(events, event(id, 5, 7, "", "0", true), event(id, 4, 7, "", "0", false))
	}
	produce(append(events, "no event", `{"id":1}`)...)

	table := *w.table
	table.Contract = rules
	for _, room := range []int{0, 100} {
		topic := &Topic{Contract: rules, Admin: admin, Kafka: opts, Topics: []string{"facts"}, Share: room}
		c := &Comparison{Contract: rules, Source: topic, Table: &table, Progress: idle{}, Deletes: true, Options: Options{Level: contract.Fields, Buckets: 64, Settle: 1}}
		got := c.Campaign(t.Context(), "7")
		if got.Verdict != Equal || got.Source.Live != 1000 || got.Source.Deleted != 20 || topic.Unread() != 2 {
			t.Errorf("room for %d: %d unread, %+v", room, topic.Unread(), got)
		}
	}
	topic := &Topic{Contract: rules, Admin: admin, Kafka: opts, Topics: []string{"facts"}}
	c := &Comparison{Contract: rules, Source: topic, Table: &table, Progress: idle{}, Deletes: true, Options: Options{Level: contract.Fields, Buckets: 64, Settle: 1}}
	produce(event(5, 9, 7, "newer", "1", false), event(2000, 1, 7, "new", "1", false), event(6, 9, 7, "", "0", true))
	w.plant("", "(7, 7, 3, 'wrong', 1.75, 0, 1)", 7)
	w.plant("", "(3000, 7, 3, 'ghost', 1.75, 0, 1)", 3000)
	got := c.Campaign(t.Context(), "7")
	want := map[string]Kind{"5": Stale, "2000": Missing, "6": Undeleted, "7": ContentConflict, "3000": Unexpected}
	if len(got.Findings) != len(want) {
		t.Errorf("%+v", got)
	}
	for _, f := range got.Findings {
		if want[f.ID] != f.Kind {
			t.Errorf("%s is %s, want %s", f.ID, f.Kind, want[f.ID])
		}
	}
	c.Options.Partial = true // of what retention has removed nothing is known
	partial := c.Campaign(t.Context(), "7")
	if partial.Kinds[Unexpected] != 0 || len(partial.Findings) != len(want)-1 {
		t.Errorf("%+v", partial)
	}
	for _, f := range got.Findings {
		if partial.Covers(f.Key) {
			t.Errorf("a partial topic settles %s %s", f.Kind, f.ID)
		}
	}
	if groups, err := admin.Lag(t.Context(), "projector.facts.g1", "facts"); err != nil || slices.ContainsFunc(groups, func(l kafka.PartitionLag) bool { return l.Committed >= 0 }) {
		t.Errorf("committed: %+v, %v", groups, err)
	}
}
