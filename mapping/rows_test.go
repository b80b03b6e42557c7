package mapping

import (
	"fmt"
	"testing"
)

func TestReset(t *testing.T) {
	for _, s := range samples() {
		rows := s.rowsOf(t)
		first := encode(rows)
		size := rows.Size()
		if size <= 0 {
			t.Errorf("%s: size %d", s.typ, size)
		}
		for range 2 {
			rows.Reset()
			if rows.Len() != 0 || rows.UnknownFields() != 0 {
				t.Fatalf("%s: %d rows after Reset", s.typ, rows.Len())
			}
			if rows.Size() > 40 { // what stands for NULL may stay
				t.Errorf("%s: %d bytes after Reset", s.typ, rows.Size())
			}
			for i, value := range s.values {
				if err := rows.plan.Append(rows, fmt.Appendf(nil, `{"id":%d,"version":1,"v":%s}`, i, value), Lineage{Topic: "t", Offset: int64(i)}); err != nil {
					t.Fatal(err)
				}
			}
			if encode(rows) != first || rows.Size() != size {
				t.Errorf("%s: other bytes after Reset", s.typ)
			}
		}
	}
}

// A batch that was filled before takes any event without an allocation.
func TestAppendAllocatesNothing(t *testing.T) {
	check := func(name string, plan *Plan, texts [][]byte) {
		t.Helper()
		rows := plan.NewRows()
		at := Lineage{Topic: "fitness-results", Origin: "stream"}
		fill := func() {
			rows.Reset()
			for _, text := range texts {
				at.Offset++
				if err := plan.Append(rows, text, at); err != nil {
					t.Fatalf("%s: %s: %v", name, text, err)
				}
			}
			_ = rows.Size()
		}
		fill()
		if allocs := testing.AllocsPerRun(5, fill); allocs > 0 {
			t.Errorf("%s: %g allocations for %d events", name, allocs, len(texts))
		}
	}
	for _, size := range []int{170, 1000, 10_000} {
		texts, _ := events(50, size)
		check(fmt.Sprintf("events of %d bytes", size), mustCompile(t, fitness(t)), texts)
	}
	for _, s := range samples() {
		var texts [][]byte
		for i, value := range s.values {
			texts = append(texts, fmt.Appendf(nil, `{"\u0069d":%d,"version":1,"\u00e9":[],"v":%s}`, i, value))
		}
		check(s.typ, mustCompile(t, single(t, s.typ, s.options)), texts)
	}
}

func TestSize(t *testing.T) {
	plan := mustCompile(t, fitness(t))
	rows := plan.NewRows()
	texts, _ := events(1000, 170)
	for i, text := range texts {
		if err := plan.Append(rows, text, Lineage{Topic: "fitness-results", Offset: int64(i), Origin: "stream"}); err != nil {
			t.Fatal(err)
		}
	}
	encoded := 0
	for _, c := range rows.Columns() {
		encoded += len(c.AppendNative(nil, 0, rows.Len()))
	}
	if size := rows.Size(); size < encoded*9/10 || size > encoded*2 {
		t.Errorf("size %d, but %d bytes encoded", size, encoded)
	}
	if rows.Plan() != plan {
		t.Error("Plan returns another")
	}
}

// Values are equal exactly if they are printed the same between quotes.
func TestEqual(t *testing.T) {
	for _, s := range samples() {
		rows := s.rowsOf(t)
		v := rows.Columns()[2]
		for i := range min(rows.Len(), 20) {
			for j := range min(rows.Len(), 20) {
				want := string(v.appendText(nil, i, true)) == string(v.appendText(nil, j, true))
				if got := v.equal(i, j); got != want {
					t.Errorf("%s: %s and %s equal: %t", s.typ, v.Format(i), v.Format(j), got)
				}
				if k, ok := v.column.(keyed); ok && string(k.appendKey(nil, i)) == string(k.appendKey(nil, j)) != want {
					t.Errorf("%s: the keys of %s and %s", s.typ, v.Format(i), v.Format(j))
				}
			}
		}
	}
}

func TestIdentity(t *testing.T) {
	spec := fitness(t)
	spec.Identity = []string{"detect_id", "unit", "event_id"}
	plan := mustCompile(t, spec)
	rows := plan.NewRows()
	if err := plan.Append(rows, []byte(fitnessEvent), Lineage{}); err != nil {
		t.Fatal(err)
	}
	if got, want := rows.Identity(0), "detect_id=418, unit=m, event_id=0198c1a2-7b0e"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
