package backfill_test

import (
	"fmt"
	"testing"

	"github.com/chprojector/projector/internal/backfill"
	"github.com/chprojector/projector/mapping"
)

// BenchmarkMap is reading and mapping alone, with no write: what one core of the program does for each row.
func BenchmarkMap(b *testing.B) {
	const n = 400_000
	w := plainWorld(b)
	for i, s := range w.shards {
		s.Exec(b, fmt.Sprintf("INSERT INTO results SELECT 1, seq * 2 + %d, seq / 1000, 'a note', 2 FROM seq_1_to_%d", i, n/2))
	}
	source, err := w.open()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		got, err := backfill.Map(b.Context(), source, one("1"), 1, func(string, backfill.Phase, *mapping.Rows) {})
		if err != nil || got.Written != n {
			b.Fatalf("%+v: %v", got, err)
		}
	}
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "rows/s")
}
