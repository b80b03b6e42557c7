package reconcile

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/chprojector/projector/internal/contract"
)

func TestDigestsAgree(t *testing.T) {
	const n, buckets = 20_000, 64
	spec, tables := factSpec(t)
	w := newWorld(t, spec, tables...)
	w.exec(0, "SET GLOBAL time_zone = '+05:00'") // the shard's own zone must not matter
	defer w.exec(0, "SET GLOBAL time_zone = 'SYSTEM'")
	r := rand.New(rand.NewPCG(7, 11))
	facts := []fact{makeFact(r, math.MaxUint64), makeFact(r, 0), makeFact(r, 1<<53+1)}
	for i := range uint64(n) {
		facts = append(facts, makeFact(r, 10+i*7919))
	}
	gone := map[uint64]uint64{3: 9, 5: 12, math.MaxUint64 - 1: 1 << 60}
	w.fill(r, facts, gone)

	scan := contract.Scan{Level: contract.Fields, Buckets: buckets}
	want := sums(t, w.contract, facts, gone, buckets)
	source, err := w.source.Digests(t.Context(), "7", scan)
	if err != nil {
		t.Fatal(err)
	}
	table, err := w.table.Digests(t.Context(), "7", scan)
	if err != nil {
		t.Fatal(err)
	}
	equalSums(t, "MariaDB against Go", source.Buckets, want)
	equalSums(t, "ClickHouse against Go", table.Buckets, want)
	if t.Failed() {
		w.explain(facts)
	}
	if got := source.total(); got.Live != uint64(len(facts)) || got.Deleted != uint64(len(gone)) {
		t.Errorf("%d live and %d deleted, want %d and %d", got.Live, got.Deleted, len(facts), len(gone))
	}
}

// explain shows which fields are rendered differently.
func (w *world) explain(facts []fact) {
	w.t.Helper()
	want := map[string]string{}
	for _, f := range facts {
		content := f.encode(w.t, w.contract)
		id, _ := w.contract.ID(content)
		want[id] = content
	}
	shown := map[string]int{}
	for name, side := range map[string]Side{"MariaDB": w.source, "ClickHouse": w.table} {
		err := side.Records(w.t.Context(), "7", contract.Scan{Level: contract.Fields, Buckets: 1}, func(r Record) error {
			if r.Deleted || r.Content == want[r.ID] {
				return nil
			}
			a, _ := contract.Split(r.Content)
			b, _ := contract.Split(want[r.ID])
			for i, column := range w.contract.Columns() {
				if i < len(a) && i < len(b) && a[i] != b[i] {
					if shown[name+column]++; shown[name+column] < 3 {
						w.t.Logf("%s: %s: %q, Go has %q", name, column, a[i], b[i])
					}
				}
			}
			return nil
		})
		if err != nil {
			w.t.Error(err)
		}
	}
}
