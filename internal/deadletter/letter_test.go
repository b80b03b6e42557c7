package deadletter

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
		Key: []byte("k"), Value: []byte("v"), Code: 469, Projection: "fitness",
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
			{Key: "projector-projection", Value: []byte("fitness")},
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
		own, got, ok := Parse(r)
		want := Info{
			Class: "range", Column: "b", Error: got.Error, Topic: "results", Partition: 3, Offset: 42,
			Timestamp: time.UnixMilli(1_700_000_000_123).UTC(), FailedAt: time.UnixMilli(1_700_000_003_000).UTC(), Replays: replay + 1,
		}
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Error(diff)
		}
		if r.Topic != "results-dlq" || len(own) != 1 || own[0].Key != "trace" || len(r.Headers) != len(headerNames) {
			t.Errorf("record for %s with %d headers", r.Topic, len(r.Headers))
		}
	}
}

func TestOrigin(t *testing.T) {
	place := func(topic, partition, offset string) []kgo.RecordHeader {
		return []kgo.RecordHeader{
			{Key: HeaderClass}, {Key: HeaderTopic, Value: []byte(topic)}, {Key: HeaderPartition, Value: []byte(partition)}, {Key: HeaderOffset, Value: []byte(offset)},
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
		{"offset below zero", "results-dlq", place("results", "5", "-9"), source{topic: "results-dlq", partition: 1, offset: 2, target: "results-dlq-dlq"}},
		{"partition out of range", "results-dlq", place("results", "4294967297", "9"), source{topic: "results-dlq", partition: 1, offset: 2, target: "results-dlq-dlq"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := origin(&projector.Letter{Topic: c.topic, Partition: 1, Offset: 2, Headers: c.headers}, "-dlq")
			got.headers = nil
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(source{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOwnHeaders: what a record brought along comes out again as it was, whatever its names, and however often it is
// parked.
func TestOwnHeaders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.SampledFrom(headerNames), rapid.SampledFrom([]string{"trace", "projector-", "projector-tenant", ""}))
		own := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) kgo.RecordHeader {
			return kgo.RecordHeader{Key: name.Draw(t, "name"), Value: []byte(rapid.SampledFrom([]string{"1", "results", "too-large"}).Draw(t, "value"))}
		}), 0, 20).Draw(t, "own")
		l := projector.Letter{Topic: "results", Partition: 3, Offset: 42, Headers: own, Projection: "fitness", Error: &mapping.Error{Class: mapping.ClassType}}
		replays := origin(&l, "-dlq").replays // a letter that was copied into its topic by hand goes on counting
		for range rapid.IntRange(1, 4).Draw(t, "times parked") {
			r := record(&l, origin(&l, "-dlq"), whole, time.UnixMilli(1_700_000_001_000))
			got, info, ok := Parse(r)
			if diff := cmp.Diff(own, got, cmpopts.EquateEmpty()); !ok || diff != "" {
				t.Fatal(diff)
			}
			want := Info{Class: "type", Error: info.Error, Topic: "results", Partition: 3, Offset: 42, Replays: replays, Projection: "fitness", FailedAt: time.UnixMilli(1_700_000_001_000).UTC()}
			if diff := cmp.Diff(want, info); diff != "" {
				t.Fatal(diff)
			}
			l = projector.Letter{Topic: r.Topic, Partition: 1, Offset: 7, Headers: r.Headers, Projection: "fitness", Error: l.Error}
			replays++
		}
	})
}

// TestPointerStays: a replay that fails does not make a letter without a value look like an event without one.
func TestPointerStays(t *testing.T) {
	l := projector.Letter{Topic: "results", Partition: 3, Offset: 42, Value: []byte("large"), Error: &mapping.Error{Class: mapping.ClassType}}
	r := record(&l, origin(&l, "-dlq"), pointer, time.UnixMilli(1_700_000_001_000))
	for range 2 {
		l = projector.Letter{Topic: r.Topic, Headers: r.Headers, Error: l.Error}
		r = record(&l, origin(&l, "-dlq"), whole, time.UnixMilli(1_700_000_002_000))
		if _, info, ok := Parse(r); !ok || info.Pointer != PointerTooLarge {
			t.Errorf("pointer %q, want %q", info.Pointer, PointerTooLarge)
		}
	}
}

// TestTimestampIsReadBack: producers choose timestamps, and letters are told apart by them.
func TestTimestampIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-70_000_000_000_000, 260_000_000_000_000)).Draw(t, "ms")
		l := projector.Letter{Topic: "results", Timestamp: time.UnixMilli(want)}
		if _, info, ok := Parse(record(&l, origin(&l, "-dlq"), whole, time.Now())); !ok || info.Timestamp.UnixMilli() != want {
			t.Fatalf("%d became %d", want, info.Timestamp.UnixMilli())
		}
	})
}

// FuzzParse: headers come from anyone who may produce.
func FuzzParse(f *testing.F) {
	f.Add("results", "1", "2", "2026-02-03T04:05:06.789Z", "1")
	f.Add("", "-1", "x", "yesterday", "99999999999999999999")
	f.Fuzz(func(t *testing.T, topic, partition, offset, timestamp, replays string) {
		r := &kgo.Record{Headers: []kgo.RecordHeader{
			{Key: HeaderClass},
			{Key: HeaderTopic, Value: []byte(topic)},
			{Key: HeaderPartition, Value: []byte(partition)},
			{Key: HeaderOffset, Value: []byte(offset)},
			{Key: HeaderTimestamp, Value: []byte(timestamp)},
			{Key: HeaderReplays, Value: []byte(replays)},
		}}
		if _, info, ok := Parse(r); ok && info.Topic != topic {
			t.Errorf("topic %q became %q", topic, info.Topic)
		}
	})
}
