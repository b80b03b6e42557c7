package deadletter_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

func TestStats(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(3, "results"), kfake.SeedTopics(1, "orders", "orders-dlq", "plain"))
	p := newParker(t, deadletter.Config{}, cluster.ListenAddrs())
	start := time.Now().Truncate(time.Millisecond)
	var letters []projector.Letter
	for i, class := range []mapping.Class{"type", "range", "type", "missing", "type"} {
		l := letter(int64(i), []byte("x"))
		l.Partition, l.Error = int32(i%3), &mapping.Error{Class: class}
		letters = append(letters, l)
	}
	if err := p.Park(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "results-dlq", Value: []byte("by hand")}).FirstErr(); err != nil {
		t.Fatal(err)
	}

	r, err := deadletter.NewReader(deadletter.Config{}, kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := r.Stats(t.Context(), "results", "plain", "orders")
	if err != nil {
		t.Fatal(err)
	}
	want := []deadletter.Stats{
		{Topic: "results-dlq", Letters: 6, Scanned: 6, Classes: map[string]int{"type": 3, "range": 1, "missing": 1, "": 1}},
		{Topic: "plain-dlq", Classes: map[string]int{}},
		{Topic: "orders-dlq", Classes: map[string]int{}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(deadletter.Stats{}, "Oldest", "Newest", "Samples")); diff != "" {
		t.Error(diff)
	}
	if s := got[0]; s.Oldest.Before(start) || s.Newest.Before(s.Oldest) || s.Newest.After(time.Now()) {
		t.Errorf("parked from %v to %v", s.Oldest, s.Newest)
	}
	for class, offset := range map[string]int64{"range": 1, "missing": 3} {
		if sample := got[0].Samples[class]; sample.Info.Offset != offset || sample.Info.Topic != "results" || sample.Parked.Before(start) {
			t.Errorf("the sample of %s is %+v", class, sample)
		}
	}
	if s := got[0].Samples; len(s) != 4 || s[""].Info != (deadletter.Info{}) || s["type"].Info.Class != "type" {
		t.Errorf("samples %+v", s)
	}
	if s := got[1]; !s.Oldest.IsZero() || !s.Newest.IsZero() {
		t.Errorf("a topic without letters has them from %v to %v", s.Oldest, s.Newest)
	}
}

// TestStatsAreBounded: of many letters all are counted and the newest read.
func TestStatsAreBounded(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results"))
	p := newParker(t, deadletter.Config{}, cluster.ListenAddrs())
	letters := make([]projector.Letter, 12_000)
	for i := range letters {
		letters[i] = letter(int64(i), nil)
		letters[i].Partition = int32(i % 2)
		letters[i].Error = &mapping.Error{Class: mapping.Class(fmt.Sprint("early", i < 6000))}
	}
	if err := p.Park(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	r, err := deadletter.NewReader(deadletter.Config{}, kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stats, err := r.Stats(t.Context(), "results")
	if err != nil {
		t.Fatal(err)
	}
	s := stats[0]
	if s.Letters != 12_000 || s.Scanned < 9_000 || s.Scanned > 11_000 {
		t.Errorf("%d letters, %d scanned, want 12000 and about 10000", s.Letters, s.Scanned)
	}
}

// TestStatsOfLettersThatExpire: what leaves its topic while it is counted is not waited for.
func TestStatsOfLettersThatExpire(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(1, "results"))
	p := newParker(t, deadletter.Config{}, cluster.ListenAddrs())
	if err := p.Park(t.Context(), []projector.Letter{letter(0, nil), letter(1, nil), letter(2, nil)}); err != nil {
		t.Fatal(err)
	}
	r, err := deadletter.NewReader(deadletter.Config{}, kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.WithHooks(&afterEnds{do: func() {
		if err := cluster.DeleteRecords("results-dlq", 0, 3); err != nil {
			t.Error(err)
		}
	}}))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if stats, err := r.Stats(ctx, "results"); err != nil || stats[0].Letters != 3 || stats[0].Scanned != 0 {
		t.Errorf("%+v, %v; want 3 letters and none read", stats, err)
	}
}

// afterEnds does something once the starts and the ends of a topic have been told.
type afterEnds struct {
	answers atomic.Int32
	do      func()
}

func (h *afterEnds) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.ListOffsets) && h.answers.Add(1) == 2 {
		h.do()
	}
}
