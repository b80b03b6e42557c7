package testenv

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestKafkaSurvivesKill(t *testing.T) {
	broker := NewKafka(t, KafkaConfig{})
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers()...), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(t.Context(), 2, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	produce := func() {
		t.Helper()
		if err := client.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce()
	if err := broker.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := broker.probe(t.Context()); err == nil {
		t.Error("a killed broker answers")
	}
	if err := broker.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	produce()
	ends, err := admin.ListEndOffsets(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	var records int64
	ends.Each(func(o kadm.ListedOffset) { records += o.Offset })
	if records != 2 {
		t.Errorf("%d records after the restart, want 2", records)
	}
}
