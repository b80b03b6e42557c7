package offsets

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

// records has an event at each of its offsets; the others were compacted away.
type records map[int64]bool

func (r records) Fetch(_ context.Context, _ string, _ int32, offset int64) (*kgo.Record, error) {
	if !r[offset] {
		return nil, projector.ErrRecordGone
	}
	return &kgo.Record{Value: fmt.Appendf(nil, `{"id": %d, "version": 1}`, offset)}, nil
}

// table says of every row that it has it, or that it does not.
type table bool

func (has table) Holds(_ context.Context, _ *mapping.Rows, from, to int, _ []string, _ string) ([]bool, error) {
	same := make([]bool, to-from)
	for i := range same {
		same[i] = bool(has)
	}
	return same, nil
}

// TestVerifyComparesSomething: rows of which no record is left prove nothing of the topic that there is now.
func TestVerifyComparesSomething(t *testing.T) {
	plan, err := mapping.Compile(mapping.Spec{
		Columns: []mapping.Column{
			{Name: "id", From: "id", Type: chschema.Type{Kind: chschema.KindUInt64}},
			{Name: "version", From: "version", Type: chschema.Type{Kind: chschema.KindUInt64}},
		},
		Identity: []string{"id"}, Version: "version", Generation: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		start   int64
		records records
		table   table
		want    bool
	}{
		{"both are there", 0, records{900: true, 800: true}, true, true},
		{"both are there, of another topic", 0, records{900: true, 800: true}, false, false},
		{"one was compacted away", 0, records{800: true}, true, true},
		{"one was compacted away, one is another's", 0, records{900: true}, false, false},
		{"both were compacted away", 0, nil, true, false},
		{"the anchor has expired", 850, records{900: true}, true, true},
		{"the anchor has expired, the other was compacted away", 850, nil, true, false},
		{"both have expired", 950, nil, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Survey{Plan: plan, Records: c.records, Rows: c.table}
			p := &Partition{PartitionLag: kafka.PartitionLag{Topic: "results", Start: c.start, End: 1000}, Stored: 900, Anchor: 800}
			got, err := s.verify(t.Context(), p)
			if err != nil || got != c.want {
				t.Errorf("verified: %v, %v; want %v", got, err, c.want)
			}
		})
	}
}
