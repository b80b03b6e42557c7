package chschema

import (
	"fmt"
	"slices"
	"strings"
)

func (d *differ) columns() {
	business := names(d.table.Columns)
	for _, c := range d.table.allColumns() {
		have, ok := d.state.Table.column(c.Name)
		lineage := !slices.Contains(business, c.Name)
		switch {
		case ok:
			d.column(c, have)
		case lineage:
			d.refused(newGeneration, "it was created by something else, and nothing says where its rows came from",
				"it lacks the lineage column %s", c.Name)
		case slices.Contains(d.table.OrderBy, c.Name) || c.Name == d.table.Version:
			// The key or the version column differs, which is reported there.
		default:
			d.online(d.table.addColumn(c), "add the column %s %s; existing rows read the default of the type, not of the mapping", c.Name, c.Type)
		}
	}
	known := names(d.table.allColumns())
	for _, c := range d.state.Table.Columns {
		if !slices.Contains(known, c.Name) {
			d.tolerated("it may belong to a newer configuration; rows written now get its default",
				"it has a column %s %s that the configuration lacks", c.Name, c.Type)
		}
	}
}

func (d *differ) column(want Column, have ColumnState) {
	if have.DefaultKind != "" && have.DefaultKind != "DEFAULT" {
		d.refused("ALTER TABLE … MODIFY COLUMN "+QuoteName(want.Name)+" REMOVE "+have.DefaultKind, "rows could not be inserted with the value of the event",
			"the column %s is computed (%s %s)", want.Name, have.DefaultKind, have.Default)
		return
	}
	if d.state.Table.expires(want.Name) {
		d.refused("ALTER TABLE … MODIFY COLUMN "+QuoteName(want.Name)+" REMOVE TTL; values that it has removed already come back with a new generation only",
			"the server puts the type's default in place of values that have expired, and readers could not tell", "the column %s has a TTL", want.Name)
	}
	if want.Name == ColumnIngestedAt && have.Default == "" {
		d.online(d.table.modifyColumn(want), "give the column %s its default %s", want.Name, ingestedDefault)
	}
	if have.Type == want.Type.String() {
		return
	}
	d.columnType(want, have)
}

// columnType allows one change of type, further names of an Enum, which the
// server makes in the metadata alone. Everything else rewrites stored values,
// while an older deployment, which must still run if the newer one is rolled
// back, writes the old type.
func (d *differ) columnType(want Column, have ColumnState) {
	old, err := ParseType(have.Type)
	switch {
	case err == nil && old.Equal(want.Type):
	case err == nil && want.Type.ExtendsEnum(old):
		d.online(d.table.modifyColumn(want), "add names to the column %s: %s becomes %s", want.Name, have.Type, want.Type)
	case err == nil && old.ExtendsEnum(want.Type):
		d.tolerated("it may belong to a newer configuration", "the column %s has more names than the configuration: %s", want.Name, have.Type)
	default:
		key := slices.Contains(d.table.OrderBy, want.Name)
		d.refused(typeRemedy(want, old, key), typeReason(old, key), "the column %s is %s instead of %s", want.Name, have.Type, want.Type)
	}
}

func typeReason(old Type, key bool) string {
	switch {
	case key && old.IsNullable():
		return "a key that can be NULL does not identify a record"
	case key:
		return "it is part of the key"
	}
	return "stored values would have to be rewritten and could change"
}

func typeRemedy(want Column, old Type, key bool) string {
	if key || old.Kind == KindInvalid || strings.HasPrefix(want.Name, "_") {
		return newGeneration
	}
	return fmt.Sprintf("change the configuration back to %s, or add a column of another name, or %s", old, newGeneration)
}

// ExtendsEnum reports whether t and from are Enums and t has every name of from
// with the same value, and more: every value of from is one of t.
func (t Type) ExtendsEnum(from Type) bool {
	if t.Kind != from.Kind || t.Kind != KindEnum8 && t.Kind != KindEnum16 || len(t.Enum) <= len(from.Enum) {
		return false
	}
	for _, v := range from.Enum {
		if !slices.Contains(t.Enum, v) {
			return false
		}
	}
	return true
}
