package outbox

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/testenv"
)

func createTopic(t testing.TB, kafka *testenv.Kafka, name string, partitions int32, configs map[string]*string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), partitions, 1, configs, name); err != nil {
		t.Fatal(err)
	}
}

// consume reads all that a topic holds, partition by partition in its order.
func consume(t testing.TB, kafka *testenv.Kafka, topic string) (records []*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Brokers()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	want := int64(0)
	ends.Each(func(o kadm.ListedOffset) { want += o.Offset })
	for deadline := time.Now().Add(time.Minute); int64(len(records)) < want; {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		records = append(records, fetches.Records()...)
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d records of %s read within a minute", len(records), want, topic)
		}
	}
	return records
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// total adds up a metric of the outbox over the shards and over the labels that
// are not named by one of their values.
func total(t testing.TB, registry *prometheus.Registry, name string, labels ...string) (n float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "projector_outbox_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if slices.ContainsFunc(labels, func(label string) bool { return !slices.Contains(values, label) }) {
				continue
			}
			n += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		return n
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

func alterTopic(t testing.TB, topic, key, value string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(sharedKafka(t).Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	responses, err := kadm.NewClient(client).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: key, Value: &value}}, topic)
	if err != nil || responses[0].Err != nil {
		t.Fatal(err, responses)
	}
}

func number(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
