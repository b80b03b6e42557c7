package e2e

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/time/rate"

	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/fitness"
)

// events is a sequence with what makes life hard: versions in any order, 20 % repeated, 5 % deletions.
func events(t testing.TB, n int, seed uint64) *fitness.Generator {
	t.Helper()
	const versions, duplicates = 4, 0.2
	g, err := fitness.New(fitness.Config{
		Seed: seed, Records: max(1, int(float64(n)*(1-duplicates)/versions)), Versions: versions,
		Duplicates: duplicates, Deletions: 0.05, Shuffled: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// model is what the events of a sequence say.
func model(t testing.TB, g *fitness.Generator) *fitness.Model {
	t.Helper()
	return modelOf(t, g, g.Len())
}

// modelOf is what the first n events of a sequence say.
func modelOf(t testing.TB, g *fitness.Generator, n int) *fitness.Model {
	t.Helper()
	var m fitness.Model
	var value []byte
	for i := range n {
		value = g.AppendValue(value[:0], i)
		if err := m.Add(value); err != nil {
			t.Fatal(err)
		}
	}
	return &m
}

// feed produces a sequence bit by bit.
type feed struct {
	w      *world
	g      *fitness.Generator
	next   int
	failed *kgo.FirstErrPromise
}

func (w *world) feed(g *fitness.Generator) *feed {
	return &feed{w: w, g: g, failed: kgo.AbortingFirstErrPromise(w.client)}
}

// upTo produces until the given share of the sequence is in the topic, pace events a second; 0 is as fast as it goes.
func (f *feed) upTo(share float64, pace int) {
	f.w.t.Helper()
	limit := rate.NewLimiter(rate.Inf, 1)
	if pace > 0 {
		limit = rate.NewLimiter(rate.Limit(pace), max(1, pace/100))
	}
	for end := int(share * float64(f.g.Len())); f.next < end; f.next++ {
		if err := limit.Wait(f.w.t.Context()); err != nil {
			f.w.t.Fatal(err)
		}
		f.w.client.Produce(f.w.t.Context(), &kgo.Record{
			Topic: f.w.topic, Key: f.g.AppendKey(nil, f.next), Value: f.g.AppendValue(nil, f.next),
		}, f.failed.Promise())
	}
}

// flush waits until the broker has everything.
func (f *feed) flush() {
	f.w.t.Helper()
	if err := f.w.client.Flush(f.w.t.Context()); err != nil {
		f.w.t.Fatal(err)
	}
	if err := f.failed.Err(); err != nil {
		f.w.t.Fatal(err)
	}
}

// fill produces a whole sequence.
func (w *world) fill(g *fitness.Generator) {
	w.t.Helper()
	f := w.feed(g)
	f.upTo(1, 0)
	f.flush()
}

// produce sends records and waits until the broker has them.
func (w *world) produce(records ...*kgo.Record) {
	w.t.Helper()
	for _, r := range records {
		if r.Topic == "" {
			r.Topic = w.topic
		}
	}
	if err := w.client.ProduceSync(w.t.Context(), records...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// equals compares the current view with the model field by field.
func (w *world) equals(m *fitness.Model) {
	w.t.Helper()
	report, err := m.Compare(w.rows("SELECT " + strings.Join(fitness.Columns(), ", ") + " FROM fitness_results_current"))
	if err != nil {
		w.t.Fatal(err)
	}
	if report.Err() != nil {
		w.t.Errorf("the view is wrong: %v", report.Err())
	}
	if report.Rows != m.Live() || m.Live() == 0 {
		w.t.Errorf("%d rows in the view, want %d and not none", report.Rows, m.Live())
	}
	w.t.Logf("against a model of %d events: %s", m.Events(), report)
}

// rows are those of a query whose values hold no tabs or line breaks.
func (w *world) rows(query string) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		out, err := w.db.Query(context.WithoutCancel(w.t.Context()), query)
		if err != nil {
			yield(nil, fmt.Errorf("%s: %w", query, err))
			return
		}
		for line := range strings.Lines(out) {
			cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			row := make([]any, len(cells))
			for i, cell := range cells {
				row[i] = cell
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// letter is a dead letter as it lies in its topic.
type letter struct {
	*kgo.Record
	deadletter.Info
}

// letters reads everything in the dead-letter topic.
func (w *world) letters() (all []letter) {
	w.t.Helper()
	topic := w.topic + "-dlq"
	ends, err := w.admin.ListEndOffsets(w.t.Context(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	left := 0
	for _, end := range ends[topic] {
		left += int(end.Offset)
	}
	if left == 0 {
		return nil
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(w.broker.Brokers()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		w.t.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), soon)
	defer cancel()
	for len(all) < left {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			w.t.Fatalf("read %s: %v", topic, err)
		}
		for r := range fetches.RecordsAll() {
			_, info, ok := deadletter.Parse(r)
			if !ok {
				w.t.Errorf("%s/%d offset %d is no letter: %v", r.Topic, r.Partition, r.Offset, r.Headers)
			}
			all = append(all, letter{r, info})
		}
	}
	return all
}

// intact holds that everything in the topic is committed and nothing became a letter.
func (w *world) intact() {
	w.t.Helper()
	o, err := w.offsets(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for p, end := range o.ends {
		if o.committed[p] != end {
			w.t.Errorf("partition %d: committed %d, the end is %d", p, o.committed[p], end)
		}
	}
	if letters := w.letters(); len(letters) > 0 {
		w.t.Errorf("%d letters, the first: %+v", len(letters), letters[0].Info)
	}
}
