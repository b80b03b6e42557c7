package reconcile

import (
	"testing"

	"github.com/chprojector/projector/chschema"
)

func TestWatch(t *testing.T) {
	w := newPlain(t)
	w.insert("SYSTEM STOP MERGES facts_g1")
	watch := &Watch{Contract: w.contract, Reader: w.table.Reader, Table: chschema.Table{
		Database: w.db.Name, Name: "facts", Generation: 1, Identity: []string{"id"}, Version: "version", Campaign: "campaign", Columns: w.spec.Columns,
	}}
	if got, err := watch.Look(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("before: %+v, %v", got, err)
	}
	w.plant("", "(5, 7, 3, 'another school', 1.25, 0, 1)", 5) // against a row that was there before
	w.plant("", "(6, 7, 9, 'one', 1, 0, 1)", 6)
	w.plant("", "(6, 7, 9, 'two', 1, 0, 1)", 6)
	for name, change := range map[string]func(){"by the contract": func() {}, "by all columns": func() { watch.Contract = nil }} {
		change()
		watch.since = 0
		got, err := watch.Look(t.Context())
		if err != nil || len(got) != 2 || got[0].ID != "5" || got[1].ID != "6" || got[1].Version != 9 || got[1].Campaign != "7" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
