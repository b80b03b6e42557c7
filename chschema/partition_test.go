package chschema_test

import (
	"strings"
	"testing"

	"github.com/chprojector/projector/chschema"
)

// partitioned has a key column of each sort that a partition can be made of.
func partitioned(database, by string) chschema.Table {
	return chschema.Table{
		Database: database, Name: "p", Generation: 1, PartitionBy: by, Version: "v",
		Columns: columns("id UInt64", "name String", "day Date", "day32 Date32", "at DateTime('UTC')", "ms DateTime64(3, 'Asia/Shanghai')",
			"naive DateTime", "region LowCardinality(String)", "v UInt64", "from UInt64", "value UInt64"),
		Identity: []string{"id"}, OrderBy: []string{"id", "name", "day", "day32", "at", "ms", "naive", "region", "from"},
	}
}

var goodPartitions = []string{
	"", "id % 8", "(id % 8)", "modulo(id, 8)", "intDiv(id, 1000000)", "toYYYYMM(day)", "toYYYYMM(day32)", "toYYYYMM(at)", "toYYYYMM(ms)",
	"toYYYYMM(naive, 'UTC')", "toStartOfWeek(day, 1)", "toStartOfWeek(naive, 1, 'UTC')", "toMonday(at)", "toDate(at)", "region",
	"(toYear(day), region)", "tuple(region, id % 2)", "cityHash64(id, name) % 16", "sipHash64(name) % 4 + 1", "`from` % 3", "intHash32(id) % 8",
	"toUInt8(id % 8)", "substring(name, 1, 2)", "lower(name)", "length(region)", "id * 2 - 1", "(id + 1) * (id - -1) % 7",
	"jumpConsistentHash(id, 8)", "day", "toYYYYMM(at + 86400)", "bitAnd(id, 7)", "naive",
}

var badPartitions = []struct{ name, by, want string }{
	{"another column", "value % 8", "value is not an order_by column"},
	{"the version", "v % 8", "v is not an order_by column"},
	{"an unknown column", "x", "x is not an order_by column"},
	{"lineage", "_partition", "_partition is not an order_by column"},
	{"hidden in a call", "intDiv(id, cityHash64(value))", "value is not an order_by column"},
	{"no column", "1", "it uses no column"},
	{"the clock", "toYYYYMM(now())", "now is not among the functions"},
	{"today", "(today(), id % 8)", "today is not among"},
	{"chance", "rand(id) % 8", "rand is not among"},
	{"a new id", "generateUUIDv4()", "generateUUIDv4 is not among"},
	{"a dictionary", "dictGet('d', 'a', id)", "dictGet is not among"},
	{"other rows", "runningDifference(id)", "runningDifference is not among"},
	{"the machine", "hostName()", "hostName is not among"},
	{"the block", "blockNumber()", "blockNumber is not among"},
	{"case of a function", "TOYYYYMM(day)", "TOYYYYMM is not among"},
	{"a sub-select", "(SELECT 1)", "is not expected here"},
	{"a bare select", "SELECT", "a sub-select is no function of the row"},
	{"a lambda", "arrayMap(x -> x, [id])", "is not expected here"},
	{"a cast", "id::UInt8", "is not expected here"},
	{"division", "id / 8", "is not expected here"},
	{"a comment", "id % 8 -- x", "is not expected here"},
	{"a semicolon", "id; DROP TABLE x", `';' has no place`},
	{"two expressions", "id % 8, region", "write (a, b) for a tuple"},
	{"an open parenthesis", "(id % 8", "the expression ends too early"},
	{"an open quote", "substring(name, 'x", "is not closed"},
	{"a closing parenthesis", "id)", "is not expected here"},
	{"a star", "*", "is not expected here"},
	{"depth", strings.Repeat("(", 100) + "id" + strings.Repeat(")", 100), "nested deeper"},
	{"length", "id % 8" + strings.Repeat(" ", 2000), "at most 1024"},
	{"a time without a zone", "toYYYYMM(naive)", "name the zone in the column's type or as the last argument"},
	{"a time without a zone, moved", "toDate(naive + 3600)", "reads a time without a zone"},
	{"a number as a date", "toYYYYMM(id)", "must read a date or a time"},
	{"a text as a date", "toDate(name)", "must read a date or a time"},
	{"a date of nothing", "toYYYYMM()", "must read a date or a time"},
}

func TestPartition(t *testing.T) {
	for _, by := range goodPartitions {
		if err := partitioned("d", by).Validate(); err != nil {
			t.Errorf("%s: %v", by, err)
		}
	}
	for _, tt := range badPartitions {
		t.Run(tt.name, func(t *testing.T) {
			err := partitioned("d", tt.by).Validate()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %q", tt.by, err, tt.want)
			}
		})
	}
}

// TestPartitionIsRecognized creates each on the server, which prints it its
// own way.
func TestPartitionIsRecognized(t *testing.T) {
	s := newServer(t)
	for _, by := range goodPartitions {
		table := partitioned(s.Name, by)
		s.exec(t, "DROP TABLE IF EXISTS p_g1 SYNC", table.CreateTable())
		state, err := chschema.Inspect(t.Context(), s.conn, table)
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range chschema.DiffTable(table, state) {
			t.Errorf("%q, printed as %q: %s", by, state.Table.PartitionKey, change)
		}
	}
}
