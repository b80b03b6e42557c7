package mapping

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPaths(t *testing.T) {
	column := func(name, from, typ string) Column { return Column{Name: name, From: from, Type: mustType(t, typ)} }
	spec := Spec{
		Identity: []string{"id"}, Version: "version",
		SchemaVersion: SchemaVersion{From: "meta.schema", Accept: []int64{1, 3}},
		Columns: []Column{
			column("id", "meta.id", "UInt64"), column("version", "meta.version", "UInt64"), column("version_text", "meta.label", "String"),
			column("deep", "payload.a.b.c", "String"), column("sibling", "payload.a.d", "UInt8"), column("dotted", `payload.x\.y`, "UInt8"),
			column("quoted", `payload."q\\`, "UInt8"), column("same", "meta.version", "DateTime64(3)"), column("é", "é", "String"),
		},
	}
	spec.Columns[8].Name = "e"
	spec.Columns[7].Unit = "ms"
	plan := mustCompile(t, spec)
	rows := plan.NewRows()
	event := `{"meta":{"version":1759220100250,"id":7,"label":"x","schema":3,"more":1},"payload":{"a":{"b":{"c":"deep","z":null},"d":5},"x.y":6,"\"q\\":8},"\u00e9":"è","other":{"a":{"a":1},"b":{"a":1}}}`
	for range 3 {
		if err := plan.Append(rows, []byte(event), Lineage{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"id": "7", "version": "1759220100250", "version_text": "x", "deep": "deep", "sibling": "5", "dotted": "6", "quoted": "8", "same": "2025-09-30 08:15:00.250", "e": "è", "no such column": ""} {
		if got := rows.Format(2, name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if got := rows.UnknownFields(); got != 9 {
		t.Errorf("%d unknown fields, want 9", got)
	}
	for _, c := range []struct {
		from, to string
		want     Error
	}{
		{`"d":5`, `"d":500`, Error{Class: ClassRange, Column: "sibling", Path: "payload.a.d", Value: "500"}},
		{`"d":5`, `"d":5,"d":5`, Error{Class: ClassDuplicate, Column: "sibling", Path: "payload.a.d", Value: `"d"`}},
		{`{"b":{"c":"deep","z":null},"d":5}`, `null`, Error{Class: ClassMissing, Column: "deep", Path: "payload.a.b.c"}},
		{`{"c":"deep","z":null}`, `{}`, Error{Class: ClassMissing, Column: "deep", Path: "payload.a.b.c"}},
		{`{"c":"deep","z":null}`, `[]`, Error{Class: ClassType, Path: "payload.a.b", Value: "[]"}},
		{`{"c":"deep","z":null}`, `"{}"`, Error{Class: ClassType, Path: "payload.a.b", Value: `"{}"`}},
		{`"payload":`, `"meta":null,"payload":`, Error{Class: ClassDuplicate, Path: "meta", Value: `"meta"`}},
		{`"schema":3`, `"schema":2`, Error{Class: ClassSchemaVersion, Path: "meta.schema", Value: "2"}},
		{`"schema":3`, `"scheme":3`, Error{Class: ClassSchemaVersion, Path: "meta.schema"}},
		{`"version":1759220100250`, `"version":99999999999999999`, Error{Class: ClassRange, Column: "same", Path: "meta.version", Value: "99999999999999999"}},
		{`"z":null`, `"z":[1,1,{"k":1,"k":2}]`, Error{Class: ClassDuplicate, Path: "payload.a.b.z", Value: `"k"`}},
	} {
		text := strings.Replace(event, c.from, c.to, 1)
		err := plan.Append(rows, []byte(text), Lineage{})
		var got *Error
		if !errors.As(err, &got) {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got.Reason = ""
		if diff := cmp.Diff(c.want, *got); diff != "" {
			t.Errorf("%s:\n%s", text, diff)
		}
	}
}

func TestDefaults(t *testing.T) {
	spec := single(t, "Nullable(Decimal(9, 2))", Column{Default: []byte(" null ")})
	spec.Columns = append(spec.Columns,
		Column{Name: "unit", From: "unit", Type: mustType(t, "LowCardinality(String)"), Default: []byte(`"m"`)},
		Column{Name: "tags", From: "more.tags", Type: mustType(t, "Array(String)"), Default: []byte(`["none"]`)},
		Column{Name: "at", From: "at", Type: mustType(t, "DateTime"), Default: []byte("0"), Unit: "s"},
	)
	plan := mustCompile(t, spec)
	rows := plan.NewRows()
	for i, c := range []struct{ event, v, unit, tags, at string }{
		{`{"id":1,"version":1}`, "NULL", "m", "['none']", "1970-01-01 00:00:00"},
		{`{"id":1,"version":1,"v":1,"unit":"","more":{"tags":[]},"at":1}`, "1", "", "[]", "1970-01-01 00:00:01"},
		{`{"id":1,"version":1,"more":null}`, "NULL", "m", "['none']", "1970-01-01 00:00:00"},
		{`{"id":1,"version":1,"more":{}}`, "NULL", "m", "['none']", "1970-01-01 00:00:00"},
	} {
		if err := plan.Append(rows, []byte(c.event), Lineage{}); err != nil {
			t.Fatalf("%s: %v", c.event, err)
		}
		for name, want := range map[string]string{"v": c.v, "unit": c.unit, "tags": c.tags, "at": c.at} {
			if got := rows.Format(i, name); got != want {
				t.Errorf("%s: %s = %q, want %q", c.event, name, got, want)
			}
		}
	}
	// A default is for a missing field, not for a null.
	var e *Error
	if err := plan.Append(rows, []byte(`{"id":1,"version":1,"unit":null}`), Lineage{}); !errors.As(err, &e) || e.Class != ClassNull {
		t.Errorf("null in a column with a default: %v", err)
	}
	if err := plan.Append(rows, []byte(`{"version":1}`), Lineage{}); !errors.As(err, &e) || e.Class != ClassMissing || e.Column != "id" {
		t.Errorf("a missing field without a default among others: %v", err)
	}
}

func TestStrict(t *testing.T) {
	spec := single(t, "Tuple(x UInt8)", Column{})
	spec.Strict = true
	plan := mustCompile(t, spec)
	rows := plan.NewRows()
	if err := plan.Append(rows, []byte(`{"id":1,"version":1,"v":{"x":1}}`), Lineage{}); err != nil {
		t.Fatal(err)
	}
	for text, path := range map[string]string{
		`{"id":1,"version":1,"v":{"x":1},"w":1}`: "w",
		`{"id":1,"version":1,"v":{"y":1,"x":1}}`: "v",
		`{"w":{"deep":1},"id":[]}`:               "w",
	} {
		var e *Error
		if err := plan.Append(rows, []byte(text), Lineage{}); !errors.As(err, &e) || e.Class != ClassUnknownField || e.Path != path {
			t.Errorf("%s: %v (%+v)", text, err, e)
		}
	}
	if rows.Len() != 1 || rows.UnknownFields() != 0 {
		t.Errorf("%d rows, %d unknown fields", rows.Len(), rows.UnknownFields())
	}
}

func TestPlanIsShared(t *testing.T) {
	plan := mustCompile(t, fitness(t))
	texts, _ := events(100, 1000)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			rows := plan.NewRows()
			for i, text := range texts {
				if err := plan.Append(rows, text, Lineage{Offset: int64(i)}); err != nil {
					t.Error(err)
				}
				if err := plan.Append(rows, text[:len(text)-i-1], Lineage{}); err == nil {
					t.Errorf("%s was accepted", text[:len(text)-i-1])
				}
			}
			if rows.Len() != len(texts) {
				t.Errorf("%d rows of %d", rows.Len(), len(texts))
			}
		})
	}
	all.Wait()
}
