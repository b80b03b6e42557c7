package backfill

import (
	"database/sql"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/mapping"
)

// TestTextsSurvive: whatever text a column holds is the text that the mapping
// reads, and what is no UTF-8 is refused and not changed.
func TestTextsSurvive(t *testing.T) {
	text := chschema.Type{Kind: chschema.KindString}
	spec := mapping.Spec{
		Columns: []mapping.Column{
			{Name: "id", From: `a.b"\.\\c.id`, Type: text}, {Name: "v", From: "a.v", Type: chschema.Type{Kind: chschema.KindUInt64}}, {Name: "doc", From: "doc.x", Type: text},
		},
		Identity: []string{"id"}, Version: "v",
	}
	plan, err := mapping.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	layout := &mysql.Layout{Columns: []mysql.Column{{Name: "a.v", Type: "BIGINT"}, {Name: `a.b"\.\\c.id`, Type: "VARCHAR"}, {Name: "doc", Type: "JSON"}}}
	form, err := newTemplate(&spec, layout, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows := plan.NewRows()
	rapid.Check(t, func(t *rapid.T) {
		id, x := rapid.String().Draw(t, "id"), rapid.String().Draw(t, "x")
		doc, err := json.Marshal(map[string]any{"x": x, "y": []int{1}})
		if err != nil {
			t.Fatal(err)
		}
		event := form.append(nil, []sql.RawBytes{[]byte("0042"), []byte(id), doc})
		rows.Reset()
		if err := plan.Append(rows, event, mapping.Lineage{}); err != nil {
			t.Fatalf("%s: %v", event, err)
		}
		if rows.Format(0, "id") != id || rows.Format(0, "doc") != x || rows.Format(0, "v") != "42" {
			t.Errorf("%s became %q, %q, %s", event, rows.Format(0, "id"), rows.Format(0, "doc"), rows.Format(0, "v"))
		}
		broken := id + "\xff"
		if err := plan.Append(rows, form.append(nil, []sql.RawBytes{[]byte("1"), []byte(broken), doc}), mapping.Lineage{}); err == nil {
			t.Errorf("%q was taken", broken)
		}
	})
}
