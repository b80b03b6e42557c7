package deadletter_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

// pointer is a letter without a value for results/1@offset, whose record had the given timestamp.
func pointer(offset int64, at time.Time, why string) *kgo.Record {
	header := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	return &kgo.Record{Topic: "results-dlq", Partition: 1, Headers: []kgo.RecordHeader{
		header(deadletter.HeaderClass, "rejected"), header(deadletter.HeaderTopic, "results"), header(deadletter.HeaderPartition, "1"),
		header(deadletter.HeaderOffset, strconv.FormatInt(offset, 10)), header(deadletter.HeaderTimestamp, at.UTC().Format("2006-01-02T15:04:05.000Z07:00")),
		header(deadletter.HeaderProjection, "fitness"), header(deadletter.HeaderPointer, why),
	}}
}

// TestAppendLetters: a letter becomes the row of its own record, be its value in the letter or in the record's topic.
// Another record at its place, as in a topic that was created anew, is not taken for it.
func TestAppendLetters(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results", "results-dlq"))
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	at := time.UnixMilli(1_780_000_000_123)
	p := newParker(t, deadletter.Config{}, cluster.ListenAddrs())
	whole := letter(5, []byte(`{"id":5,"version":1}`))
	whole.Projection = "fitness"
	if err := p.Park(t.Context(), []projector.Letter{whole}); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(t.Context(),
		&kgo.Record{Topic: "results", Partition: 1, Timestamp: at, Value: []byte(`{"id":7,"version":2}`)},
		pointer(0, at, deadletter.PointerTooLarge),
		pointer(0, at.Add(time.Millisecond), deadletter.PointerTooLarge),
		pointer(0, at, deadletter.PointerGone),
		&kgo.Record{Topic: "results-dlq", Partition: 1, Value: []byte("by hand")},
	).FirstErr(); err != nil {
		t.Fatal(err)
	}
	typ := chschema.Type{Kind: chschema.KindUInt64}
	plan, err := mapping.Compile(mapping.Spec{
		Columns:  []mapping.Column{{Name: "id", From: "id", Type: typ}, {Name: "version", From: "version", Type: typ}},
		Identity: []string{"id"}, Version: "version", Generation: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := deadletter.NewReader(deadletter.Config{}, kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ranges, err := r.Since(t.Context(), "results-dlq", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range ranges {
		err := r.Scan(t.Context(), "results-dlq", o.Partition, o.Start, o.End, func(l *deadletter.Letter) error {
			if l.Foreign {
				got = append(got, "foreign")
				return nil
			}
			rows := plan.NewRows()
			err := r.Append(t.Context(), plan, rows, l, "replay:1")
			if reason, ok := errors.AsType[*mapping.Error](err); ok {
				got = append(got, string(reason.Class))
				return nil
			}
			if err != nil {
				return err
			}
			at := rows.Lineage(0)
			got = append(got, fmt.Sprintf("%s of %s/%d@%d, %s", rows.Identity(0), at.Topic, at.Partition, at.Offset, at.Origin))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"id=5 of results/1@5, replay:1", "id=7 of results/1@0, replay:1", "gone", "gone", "foreign"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if later, err := r.Since(t.Context(), "results-dlq", time.Now().Add(time.Hour)); err != nil || later[1].Start != later[1].End {
		t.Errorf("parked in the future: %v, %v", later, err)
	}
}

// TestSelection: each field narrows, and an empty one does not.
func TestSelection(t *testing.T) {
	parked := time.UnixMilli(1_780_000_000_000)
	l := &deadletter.Letter{
		Record: &kgo.Record{Timestamp: parked, Key: []byte("k")}, Info: deadletter.Info{Class: "range", Column: "user_id"},
	}
	for name, c := range map[string]struct {
		s    deadletter.Selection
		want bool
	}{
		"everything":         {deadletter.Selection{}, true},
		"from that moment":   {deadletter.Selection{From: parked}, true},
		"from a moment late": {deadletter.Selection{From: parked.Add(1)}, false},
		"until that moment":  {deadletter.Selection{To: parked}, false},
		"until a bit later":  {deadletter.Selection{To: parked.Add(time.Millisecond)}, true},
		"class":              {deadletter.Selection{Classes: []string{"type", "range"}}, true},
		"other class":        {deadletter.Selection{Classes: []string{"type"}}, false},
		"column":             {deadletter.Selection{Columns: []string{"user_id"}}, true},
		"other column":       {deadletter.Selection{Columns: []string{""}}, false},
		"key":                {deadletter.Selection{Keys: []string{"k"}}, true},
		"other key":          {deadletter.Selection{Keys: []string{"K"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.s.Has(l); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
