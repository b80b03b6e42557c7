package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/mapping"
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

// TestRecordsAgain: another record at the place of the one that is asked for is not taken for it.
func TestRecordsAgain(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results"))
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	at := time.UnixMilli(1_780_000_000_123)
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "results", Partition: 1, Timestamp: at, Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	records := newRecords(t, cluster.ListenAddrs())
	of := mapping.Lineage{Topic: "results", Partition: 1, Timestamp: at.Add(999 * time.Microsecond)} // Kafka has milliseconds
	if got, err := records.Again(t.Context(), of); err != nil || string(got.Value) != "v" {
		t.Errorf("%v, %v", got, err)
	}
	for _, other := range []time.Time{at.Add(time.Millisecond), at.Add(-time.Millisecond), {}} {
		of.Timestamp = other
		if got, err := records.Again(t.Context(), of); !errors.Is(err, projector.ErrRecordGone) {
			t.Errorf("of %s: %v, %v, want ErrRecordGone", other, got, err)
		}
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

// aborted writes n records that a transaction takes back: offsets that exist and hold nothing, as after compaction.
func aborted(t *testing.T, brokers []string, topic string, partition int32, n int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID(t.Name()+topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	before := int64(0)
	for i := range n {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte("taken back")}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		before = r.Offset - int64(i)
	}
	if err := client.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the marker of the abort is written", func() bool {
		ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
		end, _ := ends.Lookup(topic, partition)
		return err == nil && end.Offset == before+int64(n)+1
	})
}

// holes tests Fetch and Scan on a log that has a start that expired, a hole, and an end that holds nothing. kfake shows
// what a transaction took back to whoever asks for its first offset, so this needs a real broker.
func holes(t *testing.T, brokers []string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	produce(t, client, "holes", 0, 50) // 0 to 49
	aborted(t, brokers, "holes", 0, 3) // 50 to 52, and the marker 53
	produce(t, client, "holes", 0, 10) // 54 to 63
	aborted(t, brokers, "holes", 0, 3) // 64 to 66, 67
	expired := kadm.Offsets{}
	expired.AddOffset("holes", 0, 20, -1)
	if _, err := kadm.NewClient(client).DeleteRecords(t.Context(), expired); err != nil {
		t.Fatal(err)
	}
	records := newRecords(t, brokers)
	for offset, gone := range map[int64]bool{19: true, 20: false, 49: false, 50: true, 53: true, 54: false, 63: false, 64: true, 67: true} {
		start := time.Now()
		r, err := records.Fetch(t.Context(), "holes", 0, offset)
		if gone != errors.Is(err, projector.ErrRecordGone) || !gone && (err != nil || r.Offset != offset) {
			t.Errorf("offset %d: %v, %v; gone should be %v", offset, r, err, gone)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("offset %d took %v", offset, took)
		}
	}
	for _, c := range []struct{ from, to, first, last, n int64 }{
		{0, 1000, 20, 63, 40}, {20, 30, 20, 29, 10}, {45, 60, 45, 59, 11}, {50, 54, -1, -1, 0}, {64, 68, -1, -1, 0}, {60, 64, 60, 63, 4}, {30, 30, -1, -1, 0},
	} {
		first, last, n := int64(-1), int64(-1), int64(0)
		err := records.Scan(t.Context(), "holes", 0, c.from, c.to, func(r *kgo.Record) error {
			if first < 0 {
				first = r.Offset
			}
			if r.Offset <= last {
				t.Errorf("offset %d after %d", r.Offset, last)
			}
			last = r.Offset
			n++
			return nil
		})
		if err != nil || first != c.first || last != c.last || n != c.n {
			t.Errorf("from %d to %d: %d records, %d to %d, %v; want %d, %d to %d", c.from, c.to, n, first, last, err, c.n, c.first, c.last)
		}
	}
	for _, c := range []struct {
		from, to int64
		want     bool
	}{{0, 68, true}, {49, 54, true}, {50, 54, false}, {53, 54, false}, {63, 68, true}, {64, 68, false}, {68, 68, false}} {
		if got, err := records.Yields(t.Context(), "holes", 0, c.from, c.to); err != nil || got != c.want {
			t.Errorf("a consumer is given a record from %d to %d: %t, %v; want %t", c.from, c.to, got, err, c.want)
		}
	}
	enough := errors.New("enough")
	if err := records.Scan(t.Context(), "holes", 0, 0, 1000, func(*kgo.Record) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("scan ended with %v", err)
	}
}

// TestRecordsOfAnUnknownTopic: it may be unknown for a moment only, so that is asked again.
func TestRecordsOfAnUnknownTopic(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(1, "results"))
	records := newRecords(t, cluster.ListenAddrs())
	if _, err := records.Fetch(t.Context(), "nothing", 0, 5); !errors.Is(err, projector.ErrRecordGone) {
		t.Errorf("no topic: %v", err)
	}
	if _, err := records.Fetch(t.Context(), "results", 7, 5); !errors.Is(err, projector.ErrRecordGone) {
		t.Errorf("no partition: %v", err)
	}
}

// TestScanMistrustsAnEarlyEnd: a leader that finds nothing for a while, below the end that it tells itself, as in a
// failover. What was not read must not pass for what does not exist.
func TestScanMistrustsAnEarlyEnd(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(1, "results"))
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	produce(t, client, "results", 0, 10)
	records := newRecords(t, cluster.ListenAddrs())
	read := 0
	count := func(*kgo.Record) error { read++; return nil }
	if err := records.Scan(t.Context(), "results", 0, 0, 20, count); err != nil || read != 10 {
		t.Errorf("up to the end of the log: %d records, %v", read, err)
	}
	cluster.ControlKey(int16(kmsg.Fetch), func(asked kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := asked.(*kmsg.FetchRequest)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		topic, partition := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		topic.Topic, topic.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		partition.ErrorCode = kerr.OffsetOutOfRange.Code
		topic.Partitions = append(topic.Partitions, partition)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	if err := records.Scan(t.Context(), "results", 0, 5, 10, count); err == nil || !strings.Contains(err.Error(), "the log ends at 10") {
		t.Errorf("a leader that has lost the end: %v", err)
	}
}
