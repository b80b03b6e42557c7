package deadletter

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		n := rapid.IntRange(8, 40).Draw(t, "n")
		got := cut(s, n)
		if len(got) > n {
			t.Fatalf("%d bytes, want at most %d", len(got), n)
		}
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		valid := strings.ToValidUTF8(s, "\uFFFD")
		kept, shortened := strings.CutSuffix(got, "…")
		if got != valid && (!shortened || !strings.HasPrefix(valid, kept) || len(kept) < n-len("…")-utf8.UTFMax) {
			t.Fatalf("%q of %q", got, s)
		}
	})
}

func TestHeaders(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 8e6, time.FixedZone("CST", 8*3600))
	l := projector.Letter{
		Topic: "results", Partition: 3, Offset: 42, Timestamp: time.Date(2026, 2, 3, 4, 5, 6, 789e6, time.UTC),
		Key: []byte("k"), Value: []byte("v"), Code: 469,
		Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte{0xff}}, {Key: "trace", Value: nil}},
		Error:   &mapping.Error{Class: "rejected", Column: "result", Reason: strings.Repeat("é", 1000)},
	}
	r := record(&l, origin(&l, "-dlq"), whole, now)
	want := &kgo.Record{
		Topic: "results-dlq", Partition: 3, Key: []byte("k"), Value: []byte("v"),
		Headers: []kgo.RecordHeader{
			{Key: "trace", Value: []byte{0xff}},
			{Key: "trace"},
			{Key: "projector-class", Value: []byte("rejected")},
			{Key: "projector-column", Value: []byte("result")},
			{Key: "projector-error", Value: []byte("column result: " + strings.Repeat("é", 503) + "…")},
			{Key: "projector-code", Value: []byte("469")},
			{Key: "projector-topic", Value: []byte("results")},
			{Key: "projector-partition", Value: []byte("3")},
			{Key: "projector-offset", Value: []byte("42")},
			{Key: "projector-timestamp", Value: []byte("2026-02-03T04:05:06.789Z")},
			{Key: "projector-failed-at", Value: []byte("2026-03-03T21:06:07.008Z")},
			{Key: "projector-replays", Value: []byte("0")},
		},
	}
	if diff := cmp.Diff(want.Headers, r.Headers); diff != "" {
		t.Error(diff)
	}
	if r.Topic != want.Topic || r.Partition != want.Partition || string(r.Key) != "k" || string(r.Value) != "v" || !r.Timestamp.IsZero() {
		t.Errorf("record %+v", r)
	}
}

// TestReplays: a letter that fails again is the same letter, once more replayed.
func TestReplays(t *testing.T) {
	first := projector.Letter{
		Topic: "results", Partition: 3, Offset: 42, Timestamp: time.UnixMilli(1_700_000_000_123), Key: []byte("k"), Value: []byte("v"),
		Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte("1")}}, Error: &mapping.Error{Class: mapping.ClassType, Column: "a"},
	}
	r := record(&first, origin(&first, "-dlq"), whole, time.UnixMilli(1_700_000_001_000))
	for replay := range 3 {
		again := projector.Letter{
			Topic: r.Topic, Partition: 0, Offset: int64(7 + replay), Timestamp: time.UnixMilli(1_700_000_002_000),
			Key: r.Key, Value: r.Value, Headers: r.Headers, Error: &mapping.Error{Class: mapping.ClassRange, Column: "b"},
		}
		r = record(&again, origin(&again, "-dlq"), whole, time.UnixMilli(1_700_000_003_000))
		got, ok := Parse(r)
		want := Info{
			Class: "range", Column: "b", Error: got.Error, Topic: "results", Partition: 3, Offset: 42,
			Timestamp: time.UnixMilli(1_700_000_000_123).UTC(), FailedAt: time.UnixMilli(1_700_000_003_000).UTC(), Replays: replay + 1,
		}
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Error(diff)
		}
		if r.Topic != "results-dlq" || r.Headers[0].Key != "trace" || len(r.Headers) != 11 {
			t.Errorf("record for %s with %d headers", r.Topic, len(r.Headers))
		}
	}
}

func TestOrigin(t *testing.T) {
	place := func(topic, partition, offset string) []kgo.RecordHeader {
		return []kgo.RecordHeader{
			{Key: HeaderTopic, Value: []byte(topic)}, {Key: HeaderPartition, Value: []byte(partition)}, {Key: HeaderOffset, Value: []byte(offset)},
		}
	}
	for _, c := range []struct {
		name    string
		topic   string
		headers []kgo.RecordHeader
		want    source
	}{
		{"record", "results", nil, source{topic: "results", partition: 1, offset: 2, target: "results-dlq"}},
		{"letter", "results-dlq", place("results", "5", "9"), source{topic: "results", partition: 5, offset: 9, replays: 1, target: "results-dlq"}},
		{"letter copied into its topic by hand", "results", place("results", "5", "9"), source{topic: "results", partition: 1, offset: 2, replays: 1, target: "results-dlq"}},
		{"topic that only looks like one for letters", "orders-dlq", nil, source{topic: "orders-dlq", partition: 1, offset: 2, target: "orders-dlq-dlq"}},
		{"letter of another topic", "orders-dlq", place("results", "5", "9"), source{topic: "orders-dlq", partition: 1, offset: 2, replays: 1, target: "orders-dlq-dlq"}},
		{"partition that is no number", "results-dlq", place("results", "five", "9"), source{topic: "results-dlq", partition: 1, offset: 2, target: "results-dlq-dlq"}},
		{"partition out of range", "results-dlq", place("results", "4294967297", "9"), source{topic: "results-dlq", partition: 1, offset: 2, target: "results-dlq-dlq"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := origin(&projector.Letter{Topic: c.topic, Partition: 1, Offset: 2, Headers: c.headers}, "-dlq")
			if got != c.want {
				t.Errorf("origin %+v, want %+v", got, c.want)
			}
		})
	}
}

// FuzzParse: headers come from anyone who may produce.
func FuzzParse(f *testing.F) {
	f.Add("results", "1", "2", "2026-02-03T04:05:06.789Z", "1")
	f.Add("", "-1", "x", "yesterday", "99999999999999999999")
	f.Fuzz(func(t *testing.T, topic, partition, offset, timestamp, replays string) {
		r := &kgo.Record{Headers: []kgo.RecordHeader{
			{Key: HeaderTopic, Value: []byte(topic)},
			{Key: HeaderPartition, Value: []byte(partition)},
			{Key: HeaderOffset, Value: []byte(offset)},
			{Key: HeaderTimestamp, Value: []byte(timestamp)},
			{Key: HeaderReplays, Value: []byte(replays)},
		}}
		if info, ok := Parse(r); ok && info.Topic != topic {
			t.Errorf("topic %q became %q", topic, info.Topic)
		}
	})
}
