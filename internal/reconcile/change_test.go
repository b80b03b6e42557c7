package reconcile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/chprojector/projector/internal/contract"
)

// TestEveryFieldChangeShows changes one field of one record, each field in its
// turn, in the source: the digest must differ, the record must be named, and
// with it that field and no other.
func TestEveryFieldChangeShows(t *testing.T) {
	spec, tables := factSpec(t)
	w := newWorld(t, spec, tables...)
	r := rand.New(rand.NewPCG(3, 5))
	var facts []fact
	for i := range uint64(200) {
		facts = append(facts, makeFact(r, 10+i))
	}
	w.fill(r, facts, nil)
	compare := Comparison{
		Contract: w.contract, Source: w.source, Table: w.table, Progress: idle{}, Deletes: true,
		Options: Options{Level: contract.Fields, Buckets: 16, Settle: 1},
	}
	if got := compare.Campaign(t.Context(), "7"); got.Verdict != Equal {
		t.Fatalf("before any change: %+v", got)
	}
	for i, c := range factColumns() {
		t.Run(c.field.Column, func(t *testing.T) {
			f := facts[i]
			old, next := f.values[i], f.values[i]
			for next == old {
				next = c.make(r)
				// Beyond the contract's precision there is no difference.
				if c.field.Class == contract.Instant && !next.Null {
					before, _ := w.contract.Encode(nil, append([]contract.Value{text("1"), text("1")}, f.values...))
					changed := slices.Clone(f.values)
					changed[i] = next
					after, _ := w.contract.Encode(nil, append([]contract.Value{text("1"), text("1")}, changed...))
					if string(before) == string(after) {
						next = old
					}
				}
			}
			set := func(v contract.Value) {
				w.exec(int(f.id%2), fmt.Sprintf("UPDATE fact SET `%s` = %s WHERE id = %d", c.field.Column, c.literal(v), f.id))
			}
			set(next)
			got := compare.Campaign(t.Context(), "7")
			set(old)
			if got.Verdict != Different || len(got.Findings) != 1 {
				t.Fatalf("%q for %q: %+v", next.Text, old.Text, got)
			}
			found := got.Findings[0]
			if found.Kind != ContentConflict || found.ID != fmt.Sprint(f.id) || len(found.Fields) != 1 || found.Fields[0].Column != c.field.Column {
				t.Errorf("%+v", found)
			}
			for l, want := range []int{0, 0, 1} {
				if got.Levels[l].Differing != want {
					t.Errorf("level %s: %d buckets differ, want %d", got.Levels[l].Level, got.Levels[l].Differing, want)
				}
			}
		})
	}
	t.Run("a regular shift of all rows", func(t *testing.T) {
		w.shift("+", 1)
		got := compare.Campaign(t.Context(), "7")
		w.shift("-", 1)
		if got.Verdict != Different || got.Kinds[ContentConflict] != len(facts) {
			t.Errorf("%v", got.Kinds)
		}
	})
	t.Run("content that slides to the neighbour", func(t *testing.T) {
		for n, id := range []uint64{facts[0].id, facts[1].id} {
			unit, grade := "ab", "c"
			if n == 0 {
				w.exec(int(id%2), "UPDATE fact SET unit = 'a', grade = 'bc' WHERE id = ?", id)
			} else {
				w.exec(int(id%2), "UPDATE fact SET unit = 'ab;V1:', grade = '' WHERE id = ?", id)
			}
			w.retell(id, unit, grade)
		}
		got := compare.Campaign(t.Context(), "7")
		if got.Kinds[ContentConflict] != 2 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("again equal", func(t *testing.T) {
		w.insert("OPTIMIZE TABLE facts_g1 FINAL") // both contents of what was retold are there until then
		w.exec(int(facts[0].id%2), "UPDATE fact SET unit = 'ab', grade = 'c' WHERE id = ?", facts[0].id)
		w.exec(int(facts[1].id%2), "UPDATE fact SET unit = 'ab', grade = 'c' WHERE id = ?", facts[1].id)
		if got := compare.Campaign(t.Context(), "7"); got.Verdict != Equal {
			t.Errorf("%+v", got)
		}
	})
}

// shift moves every record's large number, within its range.
func (w *world) shift(sign string, by int) {
	w.t.Helper()
	for shard := range w.shards {
		w.exec(shard, fmt.Sprintf("UPDATE fact SET filled = filled %s %d", sign, by))
	}
}

// retell replaces unit and grade of the table's newest row, at its version.
func (w *world) retell(id uint64, unit, grade string) {
	w.t.Helper()
	w.insert(fmt.Sprintf("INSERT INTO facts_g1 SELECT * REPLACE ('%s' AS unit, '%s' AS grade) FROM facts_g1 FINAL WHERE id = %d", unit, grade, id))
}

// TestNoFalseDifference holds what is equal by contract though it is written
// differently, and what is not equal though a collation says so.
func TestNoFalseDifference(t *testing.T) {
	field := func(column, class string, scale, precision int) contract.Field {
		return contract.Field{Column: column, Source: column, Class: contract.Class(class), Scale: scale, Precision: precision}
	}
	spec := contract.Spec{
		Identity: []string{"id"}, Version: "version", Campaign: "campaign", OrderBy: []string{"id"},
		Columns: columns(t, "id String", "campaign UInt32", "version UInt32", "result Decimal(18, 3)", "at DateTime64(3, 'UTC')", "pad String", "name String"),
		Rows:    "SELECT id FROM fact WHERE campaign = ?",
		Fields: []contract.Field{
			field("id", "string", 0, 0), field("version", "integer", 0, 0), field("result", "decimal", 3, 0), field("at", "instant", 0, 3),
			field("pad", "string", 0, 0), field("name", "string", 0, 0),
		},
	}
	w := newWorld(t, spec, `CREATE TABLE fact (id VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, campaign INT, version INT, result DECIMAL(10,2),
		at DATETIME(6), pad CHAR(8), name VARCHAR(20) COLLATE utf8mb4_general_ci) CHARACTER SET utf8mb4`)
	w.exec(0, "INSERT INTO fact VALUES ('a', 1, 1, 2.31, '2026-01-02 03:04:05.678901', 'x', 'Straße'), ('A', 1, 1, -0.00, '1969-12-31 23:59:59.999999', 'x  ', 'é')")
	w.insert("INSERT INTO facts_g1 (id, campaign, version, result, at, pad, name, _generation) VALUES " +
		"('a', 1, 1, 2.310, '2026-01-02 03:04:05.678', 'x', 'Straße', 1), ('A', 1, 1, 0, '1969-12-31 23:59:59.999', 'x', 'é', 1)")
	compare := Comparison{Contract: w.contract, Source: w.source, Table: w.table, Progress: idle{}, Options: Options{Level: contract.Fields, Settle: 1}}
	if got := compare.Campaign(t.Context(), "1"); got.Verdict != Equal || got.Source.Live != 2 {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct{ name, value string }{
		{"a trailing blank", "Straße "}, {"letter case", "straße"}, {"sharp s", "Strasse"}, {"decomposed", "Stra\u00dfe\u0301"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.exec(0, "UPDATE fact SET name = ? WHERE id = 'a'", c.value)
			got := compare.Campaign(t.Context(), "1")
			if got.Verdict != Different || len(got.Findings) != 1 || len(got.Findings[0].Fields) != 1 || got.Findings[0].Fields[0].Source != c.value {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestContractDoesNotFitTheSource(t *testing.T) {
	spec, tables := factSpec(t)
	w := newWorld(t, spec, tables...)
	for _, c := range []struct {
		name   string
		change func(*contract.Field)
		want   string
	}{
		{"no such column", func(f *contract.Field) { f.Source = "reslt" }, "fields[5] (amount): Error 1054"},
		{"another class", func(f *contract.Field) { f.Source = "unit" }, "class decimal does not fit the type VARCHAR"},
		{"decimals that would be hidden", func(f *contract.Field) { f.Source = "exact" }, "scale 3 would hide decimals: the source is DECIMAL(38, 10)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := spec
			changed.Fields = slices.Clone(spec.Fields)
			c.change(&changed.Fields[5])
			m, err := OpenMySQL(t.Context(), w.addresses(), compiled(t, changed))
			if err == nil {
				m.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
