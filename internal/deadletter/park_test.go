package deadletter_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/projector"
)

func TestParkKeepsKeyValueAndHeaders(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(3, "results", "results-dlq"))
	p := newParker(t, deadletter.Config{}, cluster.ListenAddrs())
	letters := []projector.Letter{
		letter(0, []byte(`{"userId":-1}`)),
		letter(1, nil),      // a tombstone stays one
		letter(2, []byte{}), // and an empty value stays empty
		letter(3, []byte{0xff, 0x00, 0xfe}),
	}
	letters[2].Key = nil
	letters[3].Headers = []kgo.RecordHeader{{Key: "trace", Value: []byte{0xff}}, {Key: "trace", Value: nil}}
	before := time.Now()
	if err := p.Park(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	for i, r := range parked(t, cluster.ListenAddrs(), "results-dlq", len(letters)) {
		l := letters[i]
		if !bytes.Equal(r.Key, l.Key) || (r.Key == nil) != (l.Key == nil) || !bytes.Equal(r.Value, l.Value) || (r.Value == nil) != (l.Value == nil) {
			t.Errorf("letter %d: key %q value %q, want %q %q", i, r.Key, r.Value, l.Key, l.Value)
		}
		if r.Partition != l.Partition {
			t.Errorf("letter %d is in partition %d, want its own, %d", i, r.Partition, l.Partition)
		}
		if diff := cmp.Diff(l.Headers, r.Headers[:len(l.Headers)]); len(l.Headers) > 0 && diff != "" {
			t.Errorf("letter %d: headers %s", i, diff)
		}
		_, info, ok := deadletter.Parse(r)
		if !ok || info.Offset != l.Offset || !info.Timestamp.Equal(l.Timestamp) || info.FailedAt.Before(before.Truncate(time.Millisecond)) || info.Pointer != "" {
			t.Errorf("letter %d: %+v", i, info)
		}
		if r.Timestamp.Before(before.Truncate(time.Millisecond)) {
			t.Errorf("letter %d has the timestamp %v: retention would count from there", i, r.Timestamp)
		}
	}
}

// TestParkWaitsForTheBroker: no nil before the broker's answer.
func TestParkWaitsForTheBroker(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results", "results-dlq"))
	asked, answer := make(chan struct{}), make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if acks := r.(*kmsg.ProduceRequest).Acks; acks != -1 {
			t.Errorf("acks %d, want all", acks)
		}
		close(asked)
		cluster.SleepControl(func() { <-answer })
		return nil, nil, false
	})
	p := newParker(t, deadletter.Config{}, cluster.ListenAddrs())
	done := make(chan error, 1)
	go func() { done <- p.Park(t.Context(), []projector.Letter{letter(0, []byte("x"))}) }()
	<-asked
	select {
	case err := <-done:
		t.Fatalf("Park returned %v before the broker answered", err)
	default:
	}
	close(answer)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestParkTooLarge(t *testing.T) {
	random := make([]byte, 100_000)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("compressible "), 20_000)
	for _, c := range []struct {
		name   string
		letter projector.Letter
		value  []byte
		key    string
		reason string
		traced bool
	}{
		{"value too large", letter(1, random), nil, "key", deadletter.PointerTooLarge, true},
		{"value that fits once compressed", letter(1, text), text, "key", "", true},
		{"key too large", func() projector.Letter { l := letter(1, []byte("v")); l.Key = random; return l }(), nil, "", deadletter.PointerTooLarge, false},
		{"headers too large", func() projector.Letter {
			l := letter(1, []byte("v"))
			l.Headers = []kgo.RecordHeader{{Key: "baggage", Value: random}}
			return l
		}(), nil, "", deadletter.PointerTooLarge, false},
		{"no longer in its topic", projector.Letter{Topic: "results", Partition: 1, Offset: 1, Gone: true}, nil, "", deadletter.PointerGone, false},
		{"beyond what is tried at all", letter(1, make([]byte, 65<<20)), nil, "key", deadletter.PointerTooLarge, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results"))
			if err := cluster.CreateTopic("results-dlq", 2, map[string]string{"max.message.bytes": "50000"}); err != nil {
				t.Fatal(err)
			}
			p := newParker(t, deadletter.Config{}, cluster.ListenAddrs())
			if c.traced {
				c.letter.Headers = []kgo.RecordHeader{{Key: "trace", Value: []byte("1")}}
			}
			// Between two others that go in the same batch.
			if err := p.Park(t.Context(), []projector.Letter{letter(0, []byte("before")), c.letter, letter(2, []byte("after"))}); err != nil {
				t.Fatal(err)
			}
			records := parked(t, cluster.ListenAddrs(), "results-dlq", 3)
			at := slices.IndexFunc(records, func(r *kgo.Record) bool { return headers(r)[deadletter.HeaderOffset] == "1" })
			if at < 0 {
				t.Fatal("the letter is not there")
			}
			r := records[at]
			if !bytes.Equal(r.Value, c.value) || string(r.Key) != c.key {
				t.Errorf("key %q and %d bytes of value, want %q and %d", r.Key, len(r.Value), c.key, len(c.value))
			}
			h := headers(r)
			if reason := h[deadletter.HeaderPointer]; reason != c.reason {
				t.Errorf("pointer %q, want %q", reason, c.reason)
			}
			if (h["trace"] != "") != c.traced {
				t.Errorf("the record's own headers: %v", h)
			}
			for _, r := range slices.Delete(slices.Clone(records), at, at+1) {
				if headers(r)[deadletter.HeaderPointer] != "" || len(r.Value) == 0 {
					t.Errorf("a neighbour became a pointer: %v", headers(r))
				}
			}
		})
	}
}

// TestParkBatchTooLarge: together the letters exceed what the topic accepts,
// each alone does not.
func TestParkBatchTooLarge(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results"))
	if err := cluster.CreateTopic("results-dlq", 2, map[string]string{"max.message.bytes": "4000"}); err != nil {
		t.Fatal(err)
	}
	p := newParker(t, deadletter.Config{}, cluster.ListenAddrs())
	letters := make([]projector.Letter, 50)
	for i := range letters {
		value := make([]byte, 1000)
		if _, err := rand.Read(value); err != nil {
			t.Fatal(err)
		}
		letters[i] = letter(int64(i), value)
	}
	if err := p.Park(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	for i, r := range parked(t, cluster.ListenAddrs(), "results-dlq", len(letters)) {
		if !bytes.Equal(r.Value, letters[i].Value) {
			t.Errorf("letter %d: %d bytes, headers %v", i, len(r.Value), headers(r))
		}
	}
}

// TestParkManyGroups: more than one group, in order.
func TestParkManyGroups(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results"))
	p := newParker(t, deadletter.Config{}, cluster.ListenAddrs())
	letters := make([]projector.Letter, 100)
	for i := range letters {
		letters[i] = letter(int64(i), bytes.Repeat([]byte{byte(i)}, 40_000))
	}
	if err := p.Park(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	for i, r := range parked(t, cluster.ListenAddrs(), "results-dlq", len(letters)) {
		if !bytes.Equal(r.Value, letters[i].Value) || r.Partition != 1 {
			t.Errorf("letter %d: %d bytes in partition %d", i, len(r.Value), r.Partition)
		}
	}
}

func TestParkTopicThatAcceptsNothing(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results"))
	if err := cluster.CreateTopic("results-dlq", 2, map[string]string{"max.message.bytes": "100"}); err != nil {
		t.Fatal(err)
	}
	p := newParker(t, deadletter.Config{}, cluster.ListenAddrs())
	err := p.Park(t.Context(), []projector.Letter{letter(0, []byte("x"))})
	if err == nil || !strings.Contains(err.Error(), "results-dlq accepts not even a letter without key and value: raise its max.message.bytes") {
		t.Errorf("Park: %v", err)
	}
}

func TestParkCreatesItsTopic(t *testing.T) {
	cluster := testenv.NewFakeKafka(t)
	if err := cluster.CreateTopic("results", 7, map[string]string{"max.message.bytes": "2000000"}); err != nil {
		t.Fatal(err)
	}
	p := newParker(t, deadletter.Config{Suffix: ".failed"}, cluster.ListenAddrs())
	if err := p.Park(t.Context(), []projector.Letter{letter(0, []byte("x"))}); err != nil {
		t.Fatal(err)
	}
	info := cluster.TopicInfo("results.failed")
	if n := len(cluster.PartitionInfos("results.failed")); n != 7 {
		t.Errorf("%d partitions, want those of the source, 7", n)
	}
	for key, want := range map[string]string{"retention.ms": "-1", "cleanup.policy": "delete", "max.message.bytes": fmt.Sprint(2_000_000 + 64<<10)} {
		if got := info.Configs[key]; got == nil || *got != want {
			t.Errorf("%s = %v, want %s", key, got, want)
		}
	}
}

// TestParkWithoutTheRightToCreate: the error says what to do, and once that is
// done the same letters are parked.
func TestParkWithoutTheRightToCreate(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(4, "results"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "results-dlq", Err: kerr.TopicAuthorizationFailed, Count: -1})
	p := newParker(t, deadletter.Config{}, cluster.ListenAddrs())
	letters := []projector.Letter{letter(0, []byte("x"))}
	for name, err := range map[string]error{"Park": p.Park(t.Context(), letters), "Prepare": p.Prepare(t.Context(), "results")} {
		want := "kafka-topics.sh --bootstrap-server HOST:PORT --create --topic results-dlq --partitions 4 --replication-factor 1 --config cleanup.policy=delete --config max.message.bytes="
		if !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want the command %s", name, err, want)
		}
		if _, ok := errors.AsType[*projector.InsertError](err); ok {
			t.Errorf("%s: a missing right counts as trouble that passes: %v", name, err)
		}
	}
	if err := cluster.CreateTopic("results-dlq", 1, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Park(t.Context(), letters); err != nil {
		t.Error(err)
	}
	parked(t, cluster.ListenAddrs(), "results-dlq", 1)
}

// TestParkAfterItsTopicWasDeleted: somebody cleans up, and the next letters
// still find a topic.
func TestParkAfterItsTopicWasDeleted(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results"))
	p := newParker(t, deadletter.Config{}, cluster.ListenAddrs())
	letters := []projector.Letter{letter(0, []byte("x"))}
	if err := p.Park(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	if err := cluster.DeleteTopic("results-dlq"); err != nil {
		t.Fatal(err)
	}
	for attempt := 1; ; attempt++ {
		err := p.Park(t.Context(), letters)
		if err == nil {
			break
		}
		t.Logf("attempt %d: %v", attempt, err)
		if attempt == 3 {
			t.Fatal(err)
		}
	}
	parked(t, cluster.ListenAddrs(), "results-dlq", 1)
}

// TestParkConcurrently: lanes share a parker.
func TestParkConcurrently(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results"))
	p := newParker(t, deadletter.Config{}, cluster.ListenAddrs())
	const lanes, each = 8, 20
	var wg sync.WaitGroup
	for lane := range lanes {
		wg.Go(func() {
			for i := range each {
				if err := p.Park(t.Context(), []projector.Letter{letter(int64(lane*each+i), []byte("x"))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, r := range parked(t, cluster.ListenAddrs(), "results-dlq", lanes*each) {
		seen[headers(r)[deadletter.HeaderOffset]] = true
	}
	if len(seen) != lanes*each {
		t.Errorf("%d different letters, want %d", len(seen), lanes*each)
	}
}
