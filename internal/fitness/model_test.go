package fitness

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestModelOfTheStory(t *testing.T) {
	steps := slices.DeleteFunc(Story(), func(s Step) bool { return s.Poison })
	for range 50 {
		rand.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		var m Model
		for _, step := range steps {
			if err := m.Add(step.Value); err != nil {
				t.Fatalf("%s: %v", step.Note, err)
			}
		}
		report, err := m.Compare(yield([]any{uint64(StoryRecord), "10000", 4, uint32(3), 2, "2.31", "m", "fitness-result-1-v2"}))
		if err != nil || report.Err() != nil {
			t.Fatal(err, report.Err())
		}
		if m.Records() != 2 || m.Live() != 1 || m.Events() != uint64(len(steps)) {
			t.Fatalf("%d records, %d live, %d events; want 2, 1, %d", m.Records(), m.Live(), m.Events(), len(steps))
		}
	}
}

// The current state by the generator's own account and by the model's reading of the JSON are the same.
func TestModelAgainstTheGeneratorsAccount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, err := New(Config{
			Seed: rapid.Uint64().Draw(t, "seed"), Records: 100, Versions: rapid.IntRange(1, 4).Draw(t, "versions"),
			Duplicates: 0.3, Deletions: 0.2, Shuffled: true,
			FirstID: rapid.SampledFrom([]uint64{0, 9007199254740993, 1<<64 - 100}).Draw(t, "first id"),
			Size:    rapid.SampledFrom([]int{0, 800}).Draw(t, "size"),
		})
		if err != nil {
			t.Fatal(err)
		}
		var m Model
		current := map[uint64]Event{}
		for i := range g.Len() {
			if err := m.Add(g.AppendValue(nil, i)); err != nil {
				t.Fatal(err)
			}
			if e := g.At(i); e.Version >= current[e.DataID].Version {
				current[e.DataID] = e
			}
		}
		var rows [][]any
		for _, e := range current {
			if !e.IsDeleted {
				rows = append(rows, row(e))
			}
		}
		report, err := m.Compare(yield(rows...))
		if err != nil || report.Err() != nil {
			t.Fatal(err, report.Err())
		}
		if report.Equal != m.Live() || report.Rows != m.Live() {
			t.Fatalf("%v, want %d equal", report, m.Live())
		}
	})
}

func TestCompareNoticesEveryDifference(t *testing.T) {
	g, err := New(Config{Records: 50, Versions: 2, Deletions: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	var m Model
	var right [][]any
	var deleted Event
	for i := range g.Len() {
		if err := m.Add(g.AppendValue(nil, i)); err != nil {
			t.Fatal(err)
		}
		if e := g.At(i); e.Version == 2 && !e.IsDeleted {
			right = append(right, row(e))
		} else if e.Version == 2 {
			deleted = e
		}
	}
	check := func(name string, rows [][]any, want Report, words ...string) {
		t.Helper()
		got, err := m.Compare(yield(rows...))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text := fmt.Sprint(got.Err())
		for _, word := range words {
			if !strings.Contains(text, word) {
				t.Errorf("%s: %q does not say %q", name, text, word)
			}
		}
		if (got.Err() == nil) != (len(words) == 0) {
			t.Errorf("%s: error %v", name, got.Err())
		}
		got.First = nil
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	n := len(right)
	check("right", right, Report{Rows: n, Equal: n})

	for r := range right {
		for c, name := range Columns() {
			for _, wrong := range []func(any) any{
				func(v any) any { return fmt.Sprint(v) + "1" },
				func(v any) any { return fmt.Sprint(v) + " " },
				func(any) any { return "" },
				func(any) any { return nil },
			} {
				rows := slices.Clone(right)
				rows[r] = slices.Clone(rows[r])
				rows[r][c] = wrong(rows[r][c])
				want := Report{Rows: n, Equal: n - 1, Different: 1}
				if c == 0 { // another identity: one record too much, one missing
					want = Report{Rows: n, Equal: n - 1, Unexpected: 1, Missing: 1}
				}
				check(fmt.Sprintf("%s of row %d is %q", name, r, rows[r][c]), rows, want, name)
			}
		}
	}
	check("one missing", right[1:], Report{Rows: n - 1, Equal: n - 1, Missing: 1}, fmt.Sprint(right[0][0]), "is missing")
	check("one twice", append(slices.Clone(right), right[3]), Report{Rows: n + 1, Equal: n, Repeated: 1},
		fmt.Sprint(right[3][0]), "more than once")
	check("a deleted one", append(slices.Clone(right), row(deleted)), Report{Rows: n + 1, Equal: n, Unexpected: 1},
		fmt.Sprint(deleted.DataID), "deleted by version 2")
	check("nothing", nil, Report{Missing: n}, "is missing")

	older := slices.Clone(right)
	for i := range g.Len() {
		if e := g.At(i); e.Version == 1 && fmt.Sprint(e.DataID) == fmt.Sprint(older[0][0]) {
			older[0] = row(e)
		}
	}
	check("an outdated one", older, Report{Rows: n, Equal: n - 1, Different: 1}, "version is \"1\", the events say \"2\"")
}

func TestCompareReportsTheFirstDifferencesOnly(t *testing.T) {
	var m Model
	var rows [][]any
	for i := range 100 {
		e := Event{DataID: uint64(i + 1), Version: 1}
		if err := m.Add(e.AppendJSON(nil)); err != nil {
			t.Fatal(err)
		}
		e.Version = 2
		rows = append(rows, row(e))
	}
	report, err := m.Compare(yield(rows...))
	if err != nil || report.Different != 100 || len(report.First) != 20 {
		t.Errorf("%v, %d in words, %v; want 100 different, 20 in words", report, len(report.First), err)
	}
}

func TestCompareHandsOnTheErrorsOfRows(t *testing.T) {
	broken := errors.New("connection reset")
	var m Model
	_, err := m.Compare(func(yield func([]any, error) bool) { yield(nil, broken) })
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if _, err := m.Compare(yield([]any{1, 2})); err == nil || !strings.Contains(err.Error(), "2 values") {
		t.Errorf("a narrow row: %v", err)
	}
}

func TestModelRefuses(t *testing.T) {
	for name, value := range map[string]string{
		"no JSON":             `nope`,
		"two objects":         sound + sound,
		"missing field":       strings.Replace(sound, `"unit":"m",`, ``, 1),
		"null":                strings.Replace(sound, `2.31`, `null`, 1),
		"text":                strings.Replace(sound, `2.31`, `"2.31"`, 1),
		"null text":           strings.Replace(sound, `"m"`, `null`, 1),
		"fraction":            strings.Replace(sound, `"userId":4`, `"userId":4.5`, 1),
		"range":               strings.Replace(sound, `"version":2`, `"version":18446744073709551616`, 1),
		"project range":       strings.Replace(sound, `"projectId":3`, `"projectId":4294967296`, 1),
		"four decimals":       strings.Replace(sound, `2.31`, `2.3105`, 1),
		"schema version":      strings.Replace(sound, `"schemaVersion":1`, `"schemaVersion":2`, 1),
		"no schema version":   strings.Replace(sound, `,"schemaVersion":1`, ``, 1),
		"conflicting content": strings.Replace(sound, `2.31`, `2.32`, 1),
	} {
		var m Model
		if err := m.Add([]byte(sound)); err != nil {
			t.Fatal(err)
		}
		if err := m.Add([]byte(value)); err == nil {
			t.Errorf("%s: accepted", name)
		}
		report, err := m.Compare(yield([]any{900001, 10001, 4, 3, 2, 2.31, "m", "fitness-result-900001-v2"}))
		if err != nil || report.Err() != nil {
			t.Errorf("%s: the model has changed: %v %v", name, err, report.Err())
		}
	}
}

func TestThousandths(t *testing.T) {
	for text, want := range map[string]int64{
		"2.31": 2310, "2.310": 2310, "6E+2": 600_000, "6e2": 600_000, "100": 100_000, "-0.5": -500, "-0": 0, "0.000": 0,
		"64.32": 64_320, "2.3100000": 2310, "231e-2": 2310, "999999999999999.999": 999_999_999_999_999_999,
		"-999999999999999.999": -999_999_999_999_999_999, "9.223372036854775807E15": 9_223_372_036_854_775_807,
	} {
		if got, err := thousandths(text); err != nil || got != want {
			t.Errorf("%s: %d thousandths, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-", "m", "2.3105", "-0.0005", "9.223372036854775808E15", "1.2.3", "<nil>"} {
		if got, err := thousandths(text); err == nil {
			t.Errorf("%q is taken for %d thousandths", text, got)
		}
	}
}

// The short way of thousandths and math/big agree wherever the short way answers.
func TestPlainThousandthsAgreesWithBig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?[0-9]{1,14}(\.[0-9]{0,4})?`).Draw(t, "text")
		if n, ok := plainThousandths(text); ok {
			if want, err := thousandths(text + "e0"); err != nil || n != want {
				t.Fatalf("%s: %d and %d, %v", text, n, want, err)
			}
		}
	})
}

func row(e Event) []any {
	return []any{
		e.DataID, e.DetectID, e.UserID, e.ProjectID, e.Version, formatThousandths(e.Result), e.Unit,
		fmt.Sprintf("fitness-result-%d-v%d", e.DataID, e.Version),
	}
}

func yield(rows ...[]any) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}

func BenchmarkModelAdd(b *testing.B) {
	g, err := New(Config{Records: 1 << 18, Versions: 2, Duplicates: 0.2, Shuffled: true})
	if err != nil {
		b.Fatal(err)
	}
	var m Model
	var buffer []byte
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		buffer = g.AppendValue(buffer[:0], i%g.Len())
		if err := m.Add(buffer); err != nil {
			b.Fatal(err)
		}
	}
}
