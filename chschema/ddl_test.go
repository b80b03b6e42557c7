package chschema_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chprojector/projector/chschema"
)

var update = flag.Bool("update", false, "write the golden files")

// goldenTables cover every clause that the DDL can have.
func goldenTables() map[string]chschema.Table {
	minimal := chschema.Table{
		Database: "d", Name: "t", Generation: 12, Columns: columns("id String", "v UInt8"),
		Identity: []string{"id"}, OrderBy: []string{"id"}, Version: "v",
	}
	cluster := fitness("reporting")
	cluster.Cluster = "main-1"
	cluster.Settings = map[string]string{"fsync_after_insert": "1", "storage_policy": "hot's", "min_bytes_for_wide_part": "10485760"}
	cluster.PartitionBy = "(toYYYYMM(at), detect_id % 8)"
	cluster.OrderBy = []string{"detect_id", "at", "data_id"}
	cluster.Columns = append(cluster.Columns, columns("at DateTime64(3, 'UTC')")...)

	types := minimal
	types.Columns = append(columns("id UUID", "v UInt64", "from Nullable(String)"), typeColumns()...)
	types.Settings = map[string]string{"non_replicated_deduplication_window": "0"}
	return map[string]chschema.Table{"fitness": fitness("reporting"), "minimal": minimal, "cluster": cluster, "types": types}
}

// typeColumns has a column of every kind.
func typeColumns() []chschema.Column {
	return columns("i8 Int8", "i16 Int16", "i32 Int32", "i64 Int64", "i128 Int128", "i256 Int256",
		"u8 UInt8", "u16 UInt16", "u32 UInt32", "u64 UInt64", "u128 UInt128", "u256 UInt256",
		"f32 Float32", "f64 Float64", "b Bool", "s String", "fs FixedString(16)", "uuid UUID",
		"d Date", "d32 Date32", "dt DateTime", "dtz DateTime('Asia/Shanghai')", "dt64 DateTime64(6)", "dt64z DateTime64(9, 'UTC')",
		`e8 Enum8('a' = -1, 'it\'s' = 2)`, "e16 Enum16('x' = 1000)", "ip4 IPv4", "ip6 IPv6",
		"dec32 Decimal(9, 2)", "dec64 Decimal(18, 3)", "dec128 Decimal(38, 10)", "dec256 Decimal(76, 38)",
		"n Nullable(Decimal(18, 3))", "lc LowCardinality(String)", "lcn LowCardinality(Nullable(String))", "lcf LowCardinality(FixedString(3))",
		"a Array(Nullable(String))", "aa Array(Array(UInt64))", "m Map(LowCardinality(String), Array(Int32))",
		"tu Tuple(UInt8, Nullable(String))", "tn Tuple(x Float64, `select` String)", "ne Array(Tuple(k String, v Map(String, UInt8)))")
}

func TestGolden(t *testing.T) {
	for name, table := range goldenTables() {
		t.Run(name, func(t *testing.T) {
			if err := table.Validate(); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".sql")
			got := strings.Join(table.Statements(), ";\n\n") + ";\n"
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s differs (go test -update writes it):\n%s", file, diff)
			}
		})
	}
}

// TestServerParses also covers ON CLUSTER, which no server here can execute.
func TestServerParses(t *testing.T) {
	s := newServer(t)
	for name, table := range goldenTables() {
		statements := table.Statements()
		statements = append(statements, table.RaiseFence(13))
		for _, role := range []chschema.Role{chschema.RoleConsumer, chschema.RoleReader, chschema.RoleSchema, chschema.RoleRemover, chschema.RoleRebuild} {
			statements = append(statements, table.Grants(role, "some one")...)
		}
		for _, change := range chschema.Diff(table, &chschema.State{}) {
			statements = append(statements, change.Statements...)
		}
		for _, statement := range statements {
			var rows []struct {
				Text *string `ch:"text"`
			}
			// The driver replaces {name:Type} only with arguments of its own.
			if err := s.conn.Select(t.Context(), &rows, "SELECT formatQuerySingleLineOrNull("+sqlString(statement)+") AS text"); err != nil {
				t.Fatal(err)
			}
			if rows[0].Text == nil {
				t.Errorf("%s: the server cannot parse:\n%s", name, statement)
			}
		}
	}
}

func sqlString(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
