package reconcile

import (
	"testing"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/contract"
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

// TestConflicts: one version with two contents is never equal, though FINAL may
// pick the source's, unless a newer version hides it.
func TestConflicts(t *testing.T) {
	w := newPlain(t)
	w.insert("SYSTEM STOP MERGES facts_g1")                      // they would remove the evidence
	w.plant("", "(1, 7, 3, 'school 1', 0.25, 0, 1)", 1)          // a repetition is none
	w.plant("", "(1003, 7, 5, 'of a tombstone', 9, 1, 1)", 1003) // nor is what a deletion carries
	if got := w.comparison().Campaign(t.Context(), "7"); got.Verdict != Equal || len(got.Conflicts) != 0 {
		t.Errorf("%+v", got)
	}
	w.plant("", "(2, 7, 2, 'one', 1, 0, 1)", 1)
	w.plant("", "(2, 7, 2, 'two', 1, 0, 1)", 1)
	got := w.comparison().Campaign(t.Context(), "7")
	if got.Verdict != Equal || len(got.Conflicts) != 1 || got.ConflictsCut || got.Conflicts[0].ID != "2" || got.Conflicts[0].Version != 2 || !got.Conflicts[0].Superseded || !got.Covers(got.Conflicts[0].Key) {
		t.Errorf("%+v", got)
	}
	for _, level := range []contract.Level{contract.Counts, contract.Versions, contract.Fields} {
		w.plant("", "(4, 7, 3, 'one', 1, 0, 1)", 1)
		w.plant("", "(4, 7, 3, 'school 4', 1, 0, 1)", 1) // readers see the source's own content, for now
		c := w.comparison()
		c.Options.Level = level
		got = c.Campaign(t.Context(), "7")
		if got.Verdict != Different || len(got.Conflicts) != 2 || got.Conflicts[1].ID != "4" || got.Conflicts[1].In != InTable || got.Conflicts[1].Superseded || got.Covers(got.Conflicts[1].Key) {
			t.Errorf("%s: %+v", level, got)
		}
	}
	for _, school := range []string{"one", "two"} {
		w.insert("INSERT INTO facts_g1 (id, campaign, version, school, score, is_deleted, _generation) " +
			"SELECT number % 1000 + 1, 7, 1 + intDiv(number, 1000), '" + school + "', 1, 0, 1 FROM numbers(1001)")
	}
	if got := w.comparison().Campaign(t.Context(), "7"); got.Verdict != Different || len(got.Conflicts) != maxConflicts || !got.ConflictsCut {
		t.Errorf("%d conflicts, cut: %t", len(got.Conflicts), got.ConflictsCut)
	}
}

// TestDecimalIdentity: a record is named as people write it, and a contradiction
// of it is known to be about the same record as a difference is.
func TestDecimalIdentity(t *testing.T) {
	spec := contract.Spec{
		Identity: []string{"id"}, Version: "version", Campaign: "campaign", OrderBy: []string{"id"},
		Columns: columns(t, "id Decimal(18, 3)", "campaign UInt32", "version UInt32", "name String"),
		Rows:    "SELECT id FROM fact WHERE campaign = ?",
		Fields: []contract.Field{
			{Column: "id", Source: "id", Class: contract.Decimal, Scale: 3}, {Column: "version", Source: "version", Class: contract.Integer}, {Column: "name", Source: "name", Class: contract.String},
		},
	}
	w := newWorld(t, spec, "CREATE TABLE fact (id DECIMAL(10,2) PRIMARY KEY, campaign INT, version INT, name VARCHAR(20))")
	w.exec(0, "INSERT INTO fact VALUES (2.31, 7, 2, 'x'), (2.3, 7, 2, 'x')")
	w.insert("SYSTEM STOP MERGES facts_g1")
	for _, name := range []string{"one", "two"} {
		w.insert("INSERT INTO facts_g1 (id, campaign, version, name, _generation) VALUES (2.31, 7, 1, '" + name + "', 1)")
	}
	got := (&Comparison{Contract: w.contract, Source: w.source, Table: w.table, Progress: idle{}, Options: Options{Level: contract.Fields, Settle: 1}}).Campaign(t.Context(), "7")
	if len(got.Findings) != 2 || got.Findings[0].ID != "2.300" || got.Findings[1].ID != "2.310" || got.Findings[1].Kind != Stale {
		t.Errorf("%+v", got.Findings)
	}
	if len(got.Conflicts) != 1 || got.Conflicts[0].ID != "2.310" || len(got.Findings) == 2 && got.Conflicts[0].Key != got.Findings[1].Key {
		t.Errorf("%+v", got.Conflicts)
	}
}

// TestContradictsByContract: what the contract calls equal is no contradiction,
// though the bytes differ: the stream knows microseconds, a backfill does not.
func TestContradictsByContract(t *testing.T) {
	field := func(column string, class contract.Class) contract.Field {
		return contract.Field{Column: column, Source: column, Class: class, Precision: 3}
	}
	w := newWorld(t, contract.Spec{
		Identity: []string{"id"}, Version: "version", Campaign: "campaign", OrderBy: []string{"id"},
		Columns: columns(t, "id UInt64", "campaign UInt32", "version UInt32", "at DateTime64(6, 'UTC')", "alive UInt8"),
		Rows:    "SELECT id FROM fact WHERE campaign = ?",
		Fields:  []contract.Field{field("id", contract.Integer), field("version", contract.Integer), field("at", contract.Instant), field("alive", contract.Bool)},
	}, "CREATE TABLE fact (id BIGINT PRIMARY KEY, campaign INT, version INT, at DATETIME(3), alive TINYINT)")
	w.exec(0, "INSERT INTO fact VALUES (1, 7, 1, '2026-01-02 03:04:05.678', 1)")
	w.insert("SYSTEM STOP MERGES facts_g1")
	for _, row := range []string{"'2026-01-02 03:04:05.678901', 1", "'2026-01-02 03:04:05.678', 1", "'2026-01-02 03:04:05.678', 2"} {
		w.insert("INSERT INTO facts_g1 (id, campaign, version, at, alive, _generation) VALUES (1, 7, 1, " + row + ", 1)")
	}
	compare := func() *Report {
		return (&Comparison{Contract: w.contract, Source: w.source, Table: w.table, Progress: idle{}, Options: Options{Level: contract.Fields, Settle: 1}}).Campaign(t.Context(), "7")
	}
	if got := compare(); got.Verdict != Equal || len(got.Conflicts) != 0 {
		t.Errorf("%+v", got)
	}
	w.insert("INSERT INTO facts_g1 (id, campaign, version, at, alive, _generation) VALUES (1, 7, 1, '2026-01-02 03:04:05.679', 1, 1)")
	if got := compare(); len(got.Conflicts) != 1 {
		t.Errorf("a millisecond later: %+v", got)
	}
}
