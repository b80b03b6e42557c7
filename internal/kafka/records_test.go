package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/projector"
)

func newRecords(t *testing.T, brokers []string) *kafka.Records {
	t.Helper()
	records, err := kafka.NewRecords(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(records.Close)
	return records
}

func TestRecordsFetch(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results"), kfake.SeedTopics(1, "other"))
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	produce(t, client, "results", 0, 100)
	produce(t, client, "results", 1, 10)
	produce(t, client, "results", 1, 10) // a second batch
	produce(t, client, "other", 0, 3)
	expired := kadm.Offsets{}
	expired.AddOffset("results", 0, 20, -1)
	if _, err := kadm.NewClient(client).DeleteRecords(t.Context(), expired); err != nil {
		t.Fatal(err)
	}

	records := newRecords(t, cluster.ListenAddrs())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	// Forth and back, and the same again: nothing of an earlier fetch may show.
	for _, c := range []struct {
		topic     string
		partition int32
		offset    int64
		want      string // "" = gone
	}{
		{"results", 0, 57, "results/0#57"},
		{"results", 0, 56, "results/0#56"},
		{"results", 0, 56, "results/0#56"},
		{"other", 0, 2, "other/0#2"},
		{"results", 1, 15, "results/1#5"},
		{"results", 0, 99, "results/0#99"},
		{"results", 0, 20, "results/0#20"},
		{"results", 0, 19, ""},
		{"results", 0, 101, ""},
		{"results", 0, 21, "results/0#21"},
	} {
		start := time.Now()
		got, err := records.Fetch(ctx, c.topic, c.partition, c.offset)
		switch {
		case c.want == "" && !errors.Is(err, projector.ErrRecordGone):
			t.Errorf("%s/%d@%d: %v, want ErrRecordGone", c.topic, c.partition, c.offset, err)
		case c.want != "" && (err != nil || string(got.Value) != c.want || got.Offset != c.offset):
			t.Errorf("%s/%d@%d: %v, %v, want %s", c.topic, c.partition, c.offset, got, err, c.want)
		}
		t.Logf("%s/%d@%d: %s", c.topic, c.partition, c.offset, time.Since(start).Round(time.Millisecond))
	}
}

func TestRecordsFetchConcurrently(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(1, "results"))
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	produce(t, client, "results", 0, 20)
	records := newRecords(t, cluster.ListenAddrs())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			r, err := records.Fetch(ctx, "results", 0, int64(i))
			if err != nil || string(r.Value) != fmt.Sprintf("results/0#%d", i) {
				t.Errorf("offset %d: %v, %v", i, r, err)
			}
		})
	}
	wg.Wait()
}

// TestRecordsFetchGivesUp: the record is not there yet, the broker waits for
// it, and the fetch ends with its context.
func TestRecordsFetchGivesUp(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(1, "results"))
	records := newRecords(t, cluster.ListenAddrs())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := records.Fetch(ctx, "results", 0, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("fetch: %v, want the deadline", err)
	}
}
