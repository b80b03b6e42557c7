package mapping

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Conflicts finds what comparing every row with the first of its identity and
// version finds.
func TestConflicts(t *testing.T) {
	spec := single(t, "LowCardinality(Nullable(String))", Column{Default: []byte("null")})
	spec.Identity = []string{"region", "id"}
	spec.Columns = append(spec.Columns,
		Column{Name: "region", From: "region", Type: mustType(t, "String")},
		Column{Name: "more", From: "more", Type: mustType(t, "Map(String, Array(Decimal(9, 2)))"), Default: []byte("{}")})
	plan := mustCompile(t, spec)
	rows := plan.NewRows() // one for all, so that its scratch is used again
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		rows.Reset()
		type row struct{ key, content string }
		var model []row
		for i := range rapid.SampledFrom([]int{0, 1, 5, 40, 200}).Draw(t, "rows") {
			key := fmt.Sprintf(`"region":%q,"id":%d,"version":%d`, rapid.SampledFrom([]string{"", "a", "ab"}).Draw(t, "region"),
				rapid.IntRange(0, 5).Draw(t, "id"), rapid.IntRange(0, 5).Draw(t, "version"))
			content := rapid.SampledFrom([]string{
				"", `,"v":""`, `,"v":"x"`, `,"more":{"a":[1]}`, `,"more":{"a":[1.0]}`, `,"more":{"a":[],"b":[1]}`, `,"more":{"a":[1],"b":[]}`, `,"v":null`,
			}).Draw(t, "content")
			if err := plan.Append(rows, []byte("{"+key+content+"}"), Lineage{Topic: "t", Offset: int64(i)}); err != nil {
				t.Fatal(err)
			}
			switch content { // other texts of the same content
			case `,"v":null`:
				content = ""
			case `,"more":{"a":[1.0]}`:
				content = `,"more":{"a":[1]}`
			}
			model = append(model, row{key, content})
		}
		var want, got [][2]int
		for j, r := range model {
			i := slices.IndexFunc(model, func(m row) bool { return m.key == r.key })
			if model[i].content != r.content {
				want = append(want, [2]int{i, j})
			}
		}
		for i, j := range rows.Conflicts {
			got = append(got, [2]int{i, j})
		}
		if !slices.Equal(got, want) {
			t.Fatalf("conflicts %v, want %v, in\n%v", got, want, model)
		}
		found += len(got)
		for range rows.Conflicts {
			break // stopping early is allowed
		}
	})
	if found == 0 {
		t.Error("no conflict was ever made")
	}
}

func TestConflictsAllocateNothing(t *testing.T) {
	plan := mustCompile(t, fitness(t))
	rows := plan.NewRows()
	texts, _ := events(1000, 170)
	for i := range 3000 {
		if err := plan.Append(rows, texts[i%len(texts)], Lineage{Offset: int64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	count := func(int, int) bool { n++; return true }
	if allocs := testing.AllocsPerRun(5, func() { rows.Conflicts(count) }); allocs > 0 {
		t.Errorf("%g allocations", allocs)
	}
	if n != 0 {
		t.Errorf("%d conflicts between equal events", n)
	}
}
