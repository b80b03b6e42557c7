package projector

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/mapping"
)

const (
	testTopic = "results"
	testGroup = "projector.results.g1"
)

// testPlan maps {"id": 1, "version": 2, "name": "x"}.
func testPlan(tb testing.TB) *mapping.Plan {
	tb.Helper()
	plan, err := mapping.Compile(mapping.Spec{
		Columns: []mapping.Column{
			{Name: "id", From: "id", Type: chschema.Type{Kind: chschema.KindUInt64}},
			{Name: "version", From: "version", Type: chschema.Type{Kind: chschema.KindUInt64}},
			{Name: "name", From: "name", Type: chschema.Type{Kind: chschema.KindString}},
		},
		Identity:   []string{"id"},
		Version:    "version",
		Generation: 1,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return plan
}

// nowhere stands for a dead-letter topic and for records that are never asked.
type nowhere struct{}

func (nowhere) Park(context.Context, []Letter) error { return errors.New("no dead-letter topic") }

func (nowhere) Again(context.Context, mapping.Lineage) (*kgo.Record, error) {
	return nil, ErrRecordGone
}

// insertFunc is an Inserter without state.
type insertFunc func(ctx context.Context, b Batch) error

func (f insertFunc) Insert(ctx context.Context, b Batch) error { return f(ctx, b) }

func (insertFunc) Close() error { return nil }

// total adds up every series of a counter or gauge, or of those with the given label values.
func total(tb testing.TB, g prometheus.Gatherer, name string, labels ...string) float64 {
	tb.Helper()
	families, err := g.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			for i := 0; i < len(labels); i += 2 {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				if !found {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}
