package deadletter_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/projector"
)

// TestParkOnApacheKafka: sizes and topics as a real broker judges them.
func TestParkOnApacheKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Java process")
	}
	broker := testenv.NewKafka(t, testenv.KafkaConfig{})
	brokers := broker.Brokers()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	small := "20000"
	if _, err := adm.CreateTopic(t.Context(), 2, 1, map[string]*string{"max.message.bytes": &small}, "results-dlq"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopic(t.Context(), 3, 1, nil, "results"); err != nil {
		t.Fatal(err)
	}
	p := newParker(t, deadletter.Config{}, brokers)
	random := make([]byte, 30_000)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("compressible "), 10_000)
	if err := p.Park(t.Context(), []projector.Letter{letter(0, []byte("small")), letter(1, random), letter(2, text), letter(3, nil)}); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range parked(t, brokers, "results-dlq", 4) {
		h := headers(r)
		got[h[deadletter.HeaderOffset]] = fmt.Sprintf("%d %s", len(r.Value), h[deadletter.HeaderPointer])
	}
	want := map[string]string{"0": "5 ", "1": "0 too-large", "2": "130000 ", "3": "0 "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	// Another suffix: the topic is created.
	p = newParker(t, deadletter.Config{Suffix: ".failed"}, brokers)
	if err := p.Park(t.Context(), []projector.Letter{letter(0, []byte("small"))}); err != nil {
		t.Fatal(err)
	}
	if r := parked(t, brokers, "results.failed", 1)[0]; r.Partition != 1 {
		t.Errorf("partition %d, want that of the record, 1", r.Partition)
	}
	configs, err := adm.DescribeTopicConfigs(t.Context(), "results.failed")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs[0].Configs {
		if c.Key == "retention.ms" && c.MaybeValue() != "-1" {
			t.Errorf("retention.ms = %s", c.MaybeValue())
		}
	}
}

// TestParkAcrossARestart: the broker is killed while letters come in. What was
// acknowledged before is there after, and what was not is parked later.
func TestParkAcrossARestart(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Java process")
	}
	broker := testenv.NewKafka(t, testenv.KafkaConfig{})
	p := newParker(t, deadletter.Config{Timeout: time.Second}, broker.Brokers())
	next := int64(0)
	park := func() error {
		err := p.Park(t.Context(), []projector.Letter{letter(next, []byte("x"))})
		if err == nil {
			next++
		} else if ie, ok := errors.AsType[*projector.InsertError](err); !ok || ie.Class != projector.Transient {
			t.Errorf("letter %d: %v, want a transient error", next, err)
		}
		return err
	}
	// A fresh broker may take longer than this timeout for its first topic.
	for start := time.Now(); park() != nil && time.Since(start) < time.Minute; {
	}
	for range 20 {
		if err := park(); err != nil {
			t.Log(err)
		}
	}
	broker.Kill()
	for range 2 {
		if park() == nil {
			t.Error("a dead broker acknowledged")
		}
	}
	if err := broker.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); park() != nil; {
		if time.Since(start) > time.Minute {
			t.Fatal("the broker is back, and letters are not")
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers()...), kgo.ConsumeTopics("results-dlq"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for seen := map[string]bool{}; int64(len(seen)) < next; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d acknowledged letters are there", len(seen), next)
		}
		for r := range fetches.RecordsAll() {
			seen[headers(r)[deadletter.HeaderOffset]] = true
		}
	}
}
