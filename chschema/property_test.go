package chschema_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/chprojector/projector/chschema"
)

// keyTypes and anyTypes are what a column may be.
var (
	keyTypes = []string{
		"UInt8", "UInt64", "Int32", "Int256", "String", "FixedString(3)", "UUID", "Date", "Date32", "DateTime", "DateTime('Asia/Shanghai')",
		"DateTime64(3, 'UTC')", "Enum8('a' = 1, 'it\\'s' = 2)", "IPv4", "IPv6", "Bool", "Decimal(18, 3)", "Decimal(76, 10)", "LowCardinality(String)", "LowCardinality(UUID)",
	}
	versionTypes = []string{"UInt8", "UInt16", "UInt32", "UInt64", "UInt128", "UInt256"}
	// Names that are words of SQL need their quotes everywhere.
	columnNames = []string{"from", "select", "order", "final", "key", "settings", "ttl", "index", "a", "B", "x1", "value", "tuple", "interval", "with", "in", "null", "all", "distinct", "TTL", "SETTINGS", "by"}
)

// drawTable draws a valid table of any shape.
func drawTable(t *rapid.T, database string) chschema.Table {
	types := typeColumns()
	names := rapid.Permutation(columnNames).Draw(t, "names")
	table := chschema.Table{Database: database, Name: "t", Generation: rapid.Uint32Range(1, 3).Draw(t, "generation")}
	keys := rapid.IntRange(1, 4).Draw(t, "keys")
	for i := range keys {
		table.Columns = append(table.Columns, column(names[i]+" "+rapid.SampledFrom(keyTypes).Draw(t, "key type")))
		table.OrderBy = append(table.OrderBy, names[i])
	}
	table.OrderBy = rapid.Permutation(table.OrderBy).Draw(t, "order")
	table.Identity = table.OrderBy[:rapid.IntRange(1, keys).Draw(t, "identity")]
	table.Version = names[keys]
	table.Columns = append(table.Columns, column(table.Version+" "+rapid.SampledFrom(versionTypes).Draw(t, "version type")))
	if rapid.Bool().Draw(t, "deletions") {
		table.Deleted = names[keys+1]
		table.Columns = append(table.Columns, column(table.Deleted+" "+rapid.SampledFrom([]string{"Bool", "UInt8"}).Draw(t, "deleted type")))
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "further") {
		c := rapid.SampledFrom(types).Draw(t, "type")
		table.Columns = append(table.Columns, chschema.Column{Name: names[keys+2+i], Type: c.Type})
	}
	table.Columns = rapid.Permutation(table.Columns).Draw(t, "columns")
	key := rapid.SampledFrom(table.OrderBy).Draw(t, "partition column")
	table.PartitionBy = rapid.SampledFrom([]string{"", "`%s`", "cityHash64(`%[1]s`) %% 8", "(`%[1]s`, sipHash64(`%[1]s`)%%2)"}).Draw(t, "partition")
	if table.PartitionBy != "" {
		table.PartitionBy = fmt.Sprintf(table.PartitionBy, key)
	}
	if rapid.Bool().Draw(t, "view") {
		table.Views = []chschema.View{{Name: "v", Query: fmt.Sprintf("select COUNT(*) n, `%s`::String AS k from {current} group by k", key)}}
	}
	if rapid.Bool().Draw(t, "settings") {
		table.Settings = map[string]string{"fsync_after_insert": rapid.SampledFrom([]string{"0", "true"}).Draw(t, "fsync"), "index_granularity": "4096"}
	}
	return table
}

// TestWhatIsAppliedIsNoDrift: any valid table is created, then found to be as
// it should be; and a column more is one change more.
func TestWhatIsAppliedIsNoDrift(t *testing.T) {
	s := newServer(t)
	checks(t, 20)
	rapid.Check(t, func(r *rapid.T) {
		table := drawTable(r, s.Name)
		if err := table.Validate(); err != nil {
			r.Fatalf("%+v: %v", table, err)
		}
		s.exec(t, "DROP DATABASE "+s.Name+" SYNC", "CREATE DATABASE "+s.Name)
		for step := range 2 {
			if err := chschema.Apply(t.Context(), s.conn, s.diff(t, table), nil); err != nil {
				r.Fatal(err)
			}
			if changes := s.diff(t, table); len(changes) > 0 {
				r.Fatalf("step %d: %s", step, verdicts(changes))
			}
			if err := chschema.Check(t.Context(), s.conn, table); err != nil {
				r.Fatal(err)
			}
			for _, d := range table.Definitions() {
				if err := s.conn.Exec(t.Context(), "SELECT * FROM "+table.Qualified(d.Name)); err != nil {
					r.Fatalf("%s: %v", d.Name, err)
				}
			}
			at := rapid.IntRange(0, len(table.Columns)).Draw(r, "place of a new column")
			added := chschema.Column{Name: "added", Type: rapid.SampledFrom(typeColumns()).Draw(r, "type of a new column").Type}
			table.Columns = slices.Insert(slices.Clone(table.Columns), at, added)
		}
	})
}
