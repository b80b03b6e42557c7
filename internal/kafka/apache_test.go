package kafka_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/projector"
)

// TestApacheKafka asks a real broker what the fake one answers elsewhere.
func TestApacheKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Java process")
	}
	brokers := testenv.NewKafka(t, testenv.KafkaConfig{}).Brokers()
	admin, err := kafka.NewAdmin(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ctx := t.Context()

	if _, err := admin.Topics(ctx, "results"); !errors.Is(err, kafka.ErrUnknownTopic) {
		t.Errorf("a topic before it is created: %v", err)
	}
	if _, err := admin.Offsets(ctx, "results"); !errors.Is(err, kafka.ErrUnknownTopic) {
		t.Errorf("its offsets: %v", err)
	}
	for range 2 {
		if err := admin.CreateTopic(ctx, "results", 2, -1, map[string]string{"max.message.bytes": "123456"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := admin.CreateTopic(ctx, "wrong", 2, -1, map[string]string{"max.message.bytes": "many"}); err == nil {
		t.Error("a wrong configuration was accepted")
	}
	topics, err := admin.Topics(ctx, "results")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]kafka.Topic{{Name: "results", Partitions: 2, Replicas: 1}}, topics); diff != "" {
		t.Error(diff)
	}
	if n, err := admin.MaxMessageBytes(ctx, "results"); err != nil || n != 123456 {
		t.Errorf("max.message.bytes = %d, %v", n, err)
	}

	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	produce(t, client, "results", 0, 10)
	produce(t, client, "results", 0, 10)
	produce(t, client, "results", 1, 5)
	adm := kadm.NewClient(client)
	expired, commit := kadm.Offsets{}, kadm.Offsets{}
	expired.AddOffset("results", 0, 4, -1)
	commit.AddOffset("results", 0, 2, -1)
	if _, err := adm.DeleteRecords(ctx, expired); err != nil {
		t.Fatal(err)
	}
	if err := adm.CommitAllOffsets(ctx, "g", commit); err != nil {
		t.Fatal(err)
	}
	for group, committed := range map[string]int64{"g": 2, "nobody": -1} {
		lags, err := admin.Lag(ctx, group, "results")
		if err != nil {
			t.Fatal(err)
		}
		want := []kafka.PartitionLag{
			{Topic: "results", Partition: 0, Start: 4, End: 20, Committed: committed},
			{Topic: "results", Partition: 1, Start: 0, End: 5, Committed: -1},
		}
		if diff := cmp.Diff(want, lags); diff != "" {
			t.Errorf("group %s: %s", group, diff)
		}
	}

	records := newRecords(t, brokers)
	for _, offset := range []int64{15, 4, 19, 4} {
		r, err := records.Fetch(ctx, "results", 0, offset)
		if err != nil || r.Offset != offset {
			t.Errorf("offset %d: %v, %v", offset, r, err)
		}
	}
	if _, err := records.Fetch(ctx, "results", 0, 3); !errors.Is(err, projector.ErrRecordGone) {
		t.Errorf("an expired record: %v", err)
	}

	if err := admin.CreateTopic(ctx, "holes", 1, -1, nil); err != nil {
		t.Fatal(err)
	}
	holes(t, brokers)
	commitsAndMembers(t, brokers)
}
