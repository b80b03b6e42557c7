package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/testenv"
)

// eventSpec is a contract that reads events too.
func eventSpec(spec contract.Spec) contract.Spec {
	spec.Fields = append(slices.Clone(spec.Fields),
		contract.Field{Column: "campaign", Source: "campaign", Class: contract.Integer, Event: "where.campaign"},
		contract.Field{Column: "is_deleted", Source: "0", Class: contract.Bool, Event: "gone"})
	for i, path := range []string{"id", "v", "school", "score"} {
		spec.Fields[i].Event = path
	}
	return spec
}

func unread(t *Topic) int64 {
	n, _ := t.Unread()
	return n
}

// facts are an empty topic of that name in a Kafka of its own: who asks about it,
// and how it is read.
func facts(t *testing.T, partitions int32) (*kafka.Admin, []kgo.Opt) {
	t.Helper()
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(partitions, "facts"))
	opts := []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)}
	admin, err := kafka.NewAdmin(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	return admin, opts
}

// TestTopic compares the table with what the topic says: versions in any order,
// repetitions, deletions and other campaigns among them, with room for all
// records in memory and for few.
func TestTopic(t *testing.T) {
	w := newPlain(t)
	rules := compiled(t, eventSpec(w.spec))
	if err := rules.CheckEvents(); err != nil {
		t.Fatal(err)
	}
	admin, opts := facts(t, 3)
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
		if got.Verdict != Equal || got.Source.Live != 1000 || got.Source.Deleted != 20 || unread(topic) != 2 {
			t.Errorf("room for %d: %d unread, %+v", room, unread(topic), got)
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

// TestTopicNamesWhatItCouldNotRead: what a reading waits for in vain, and what
// it cannot read, is named with its place.
func TestTopicNamesWhatItCouldNotRead(t *testing.T) {
	admin, opts := facts(t, 2)
	producer, err := kgo.NewClient(append(opts, kgo.TransactionalID("writer"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	produce := func(partition int32, values ...[]byte) {
		t.Helper()
		if err := producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: "facts", Partition: partition, Value: v}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	topic := &Topic{Contract: compiled(t, eventSpec(plainSpec(t))), Admin: admin, Kafka: opts, Topics: []string{"facts"}}
	scan := contract.Scan{Level: contract.Fields, Buckets: 16}
	produce(0, []byte(`{"id":1}`), nil, []byte("no event"), []byte(`{"id":1,"v":3,"where":{"campaign":7},"school":"s","score":1,"gone":false}`))
	if err := producer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	sum, err := topic.Digests(t.Context(), "7", scan)
	if err != nil || sum.total().Live != 1 {
		t.Fatalf("%+v, %v", sum.total(), err)
	}
	want := []Unreadable{{"facts/0@0", "v: it is null"}, {"facts/0@1", "it has no value"}, {"facts/0@2", "invalid character 'o' in literal null (expecting 'u')"}}
	if n, first := topic.Unread(); n != 3 || !slices.Equal(first, want) {
		t.Errorf("%d unread: %q", n, first)
	}
	produce(1, []byte("a transaction that stays open"))
	topic.Silence = 300 * time.Millisecond
	testenv.Eventually(t, "only the other partition is not read", func() bool { // on a busy machine the first may be as silent
		_, err := topic.Digests(t.Context(), "7", scan)
		if err == nil || !strings.Contains(err.Error(), "facts/1 (read up to 0, it ends at 1)") {
			t.Fatal(err)
		}
		return !strings.Contains(err.Error(), "facts/0")
	})
	topic.Silence = 0
	if err := producer.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	if _, err := topic.Digests(t.Context(), "7", scan); err != nil {
		t.Error(err)
	}
}

// TestTopicContradicts: one version with two contents is named, unless a newer
// version makes it history. A repetition is none, nor is a tombstone that carries
// other fields.
func TestTopicContradicts(t *testing.T) {
	w := newPlain(t)
	admin, opts := facts(t, 3)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var records []*kgo.Record
	add := func(id, version int, school string, gone bool) {
		records = append(records, &kgo.Record{Topic: "facts", Key: fmt.Append(nil, len(records)), Value: fmt.Appendf(nil,
			`{"id":%d,"v":%d,"where":{"campaign":7},"school":%q,"score":%d.%02d,"gone":%t}`, id, version, school, id/4, id%4*25, gone)})
	}
	for id := 1; id <= 1000; id++ {
		add(id, 3, fmt.Sprintf("school %d", id), false)
	}
	for id := 1001; id <= 1020; id++ {
		add(id, 5, "", true)
	}
	add(1, 3, "school 1", false)
	add(2, 1, "one", false)
	add(2, 1, "two", false)
	add(1003, 5, "of a tombstone", true)
	rules, table := compiled(t, eventSpec(w.spec)), *w.table
	table.Contract = rules
	for _, room := range []int{0, 100} {
		compare := func() *Report {
			t.Helper()
			if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			records = nil
			topic := &Topic{Contract: rules, Admin: admin, Kafka: opts, Topics: []string{"facts"}, Share: room}
			c := &Comparison{Contract: rules, Source: topic, Table: &table, Progress: idle{}, Deletes: true, Options: Options{Level: contract.Versions, Buckets: 64, Settle: 1}}
			return c.Campaign(t.Context(), "7")
		}
		if room == 0 {
			if got := compare(); got.Verdict != Equal || len(got.Conflicts) != 0 {
				t.Errorf("before: %+v", got)
			}
			add(4, 3, "another", false)
			add(5, 3, "", true)
		}
		got := compare()
		slices.SortFunc(got.Conflicts, func(a, b Conflict) int { return strings.Compare(a.ID, b.ID) })
		if len(got.Conflicts) != 2 || got.Conflicts[0].ID != "4" || got.Conflicts[0].In != InTopic || got.Conflicts[0].Rows != 2 || got.Conflicts[0].Campaign != "7" || got.Conflicts[1].ID != "5" {
			t.Errorf("room for %d: %+v", room, got.Conflicts)
		}
		if got.Verdict != Different || got.Covers(got.Conflicts[0].Key) {
			t.Errorf("room for %d: %s", room, got.Verdict)
		}
	}
}

// TestTopicPartial: of a compacted topic nobody knows what it held, although it
// begins with the first offset.
func TestTopicPartial(t *testing.T) {
	admin, opts := facts(t, 1)
	for name, policy := range map[string]string{"compacted": "compact", "both": "compact,delete", "kept": "delete"} {
		if err := admin.CreateTopic(t.Context(), name, 1, 1, map[string]string{"cleanup.policy": policy}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		topics []string
		want   bool
	}{{[]string{"facts", "kept"}, false}, {[]string{"facts", "compacted"}, true}, {[]string{"both"}, true}} {
		topic := &Topic{Admin: admin, Kafka: opts, Topics: c.topics}
		if got, err := topic.Partial(t.Context()); got != c.want || err != nil {
			t.Errorf("%v: %t, %v", c.topics, got, err)
		}
	}
}

// Who may not know whether a topic is compacted takes it for one that is not.
// That the broker did not answer says nothing about the topic, and is an error.
func TestTopicPartialIsNotTold(t *testing.T) {
	nameless := func(request kmsg.Request) (kmsg.Response, error, bool) {
		describe := request.(*kmsg.DescribeConfigsRequest)
		response := describe.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, r := range describe.Resources {
			resource := kmsg.NewDescribeConfigsResponseResource()
			resource.ResourceType, resource.ResourceName = r.ResourceType, r.ResourceName
			response.Resources = append(response.Resources, resource)
		}
		return response, nil, true
	}
	refuse := func(err *kerr.Error) func(*kfake.Cluster) {
		return func(c *kfake.Cluster) {
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: err, Count: -1})
		}
	}
	for name, c := range map[string]struct {
		answer func(*kfake.Cluster)
		want   string
	}{
		"no right to the topic":   {refuse(kerr.TopicAuthorizationFailed), ""},
		"no right to the cluster": {refuse(kerr.ClusterAuthorizationFailed), ""},
		"no such key":             {func(c *kfake.Cluster) { c.ControlKey(int16(kmsg.DescribeConfigs), nameless) }, ""},
		"no answer":               {refuse(kerr.UnknownServerError), "learn whether the topics are compacted: describe cleanup.policy of topic facts: UNKNOWN_SERVER_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(1, "facts"))
			c.answer(cluster)
			admin, err := kafka.NewAdmin(kgo.SeedBrokers(cluster.ListenAddrs()...))
			if err != nil {
				t.Fatal(err)
			}
			defer admin.Close()
			partial, err := (&Topic{Admin: admin, Topics: []string{"facts"}}).Partial(t.Context())
			if partial || c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
				t.Errorf("%t, %v; want %q", partial, err, c.want)
			}
		})
	}
}
