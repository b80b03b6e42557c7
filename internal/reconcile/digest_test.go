package reconcile

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/testenv"
)

// TestDigestsAgree compares 20,003 adversarial records on two servers of
// MariaDB, whose own time zones, character sets and SQL modes must not matter.
// One of them going away is an answer about no campaign, and names the shard.
func TestDigestsAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	const n, buckets = 20_000, 64
	spec, tables := factSpec(t)
	other, err := testenv.StartMariaDB(t.Context(), testenv.MariaDBConfig{Databases: []string{"facts"}, Args: []string{
		"--default-time-zone=+05:00", "--character-set-server=latin1", "--collation-server=latin1_general_cs", "--sql-mode=ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH",
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Stop() }() // the test stops it, too
	w := newWorldOn(t, spec, []*testenv.MariaDBDatabase{{MariaDB: other, Name: "facts"}, testenv.SharedMariaDB(t)}, tables...)
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
	c := &Comparison{Contract: w.contract, Source: w.source, Table: w.table, Progress: idle{}, Deletes: true, Options: Options{Level: contract.Fields, Buckets: buckets, Settle: 1}}
	if got := c.Campaign(t.Context(), "7"); got.Verdict != Equal || len(got.Parts) != 2 || got.Parts[0].Live == 0 || got.Parts[1].Live == 0 {
		t.Errorf("both servers: %+v", got)
	}
	if err := other.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := c.Campaign(t.Context(), "7"); got.Verdict != Failed || !strings.Contains(got.Error, "shard s0") || got.Covers("V1:1;") {
		t.Errorf("one server is gone: %+v", got)
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
