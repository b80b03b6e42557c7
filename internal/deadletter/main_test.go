package deadletter_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newParker(t *testing.T, c deadletter.Config, brokers []string) *deadletter.Parker {
	t.Helper()
	p, err := deadletter.NewParker(c, kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// letter is one of a record at an offset of results/1, with a value.
func letter(offset int64, value []byte) projector.Letter {
	return projector.Letter{
		Topic: "results", Partition: 1, Offset: offset, Timestamp: time.Date(2026, 2, 3, 4, 5, 6, 789e6, time.UTC),
		Key: []byte("key"), Value: value,
		Error: &mapping.Error{Class: mapping.ClassRange, Column: "user_id", Path: "userId", Value: "-1", Reason: "below 0"},
	}
}

// parked reads n letters of a topic, by partition and offset within it.
func parked(t *testing.T, brokers []string, topic string, n int) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var records []*kgo.Record
	for len(records) < n {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%d of %d letters in %s: %v", len(records), n, topic, err)
		}
		records = append(records, fetches.Records()...)
	}
	if len(records) > n {
		t.Fatalf("%d letters in %s, want %d", len(records), topic, n)
	}
	return records
}

func headers(r *kgo.Record) map[string]string {
	m := map[string]string{}
	for _, h := range r.Headers {
		m[h.Key] = string(h.Value)
	}
	return m
}
