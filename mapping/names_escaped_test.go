package mapping

import (
	"errors"
	"testing"
)

// one appends events of a column x to new rows.
func one(t *testing.T, c Column, events ...string) (rows *Rows, err error) {
	t.Helper()
	plan := mustCompile(t, Spec{
		Columns:  []Column{{Name: "id", From: "id", Type: mustType(t, "UInt64")}, {Name: "version", From: "version", Type: mustType(t, "UInt64")}, c},
		Identity: []string{"id"}, Version: "version", Generation: 1,
	})
	rows = plan.NewRows()
	for _, e := range events {
		err = plan.Append(rows, []byte(e), Lineage{Topic: "t"})
	}
	return rows, err
}

// A field whose name needs escapes is read in every spelling, and nothing else
// is taken for it.
func TestNameWithEscapes(t *testing.T) {
	for event, want := range map[string]string{
		`{"id":1,"version":1,"a\"\n":"x"}`:                 "x",
		`{"id":1,"version":1, "\u0061\u0022\u000A" : "x"}`: "x",
		"{\"id\":1,\"version\":1, \x00\"x\"}":              "",
		"{\"id\":1,\"version\":1,\x00\"x\"}":               "",
	} {
		rows, err := one(t, Column{Name: "x", From: "a\"\n", Type: mustType(t, "String")}, `{"id":1,"version":1,"a\"\n":"to learn the order from"}`, event)
		if want != "" && (err != nil || rows.Format(1, "x") != want) {
			t.Errorf("%s: %v", event, err)
		}
		if failed, ok := errors.AsType[*Error](err); want == "" && (!ok || failed.Class != ClassMalformed) {
			t.Errorf("%q: %v, want malformed", event, err)
		}
	}
}
