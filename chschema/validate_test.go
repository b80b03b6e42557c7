package chschema_test

import (
	"strings"
	"testing"

	"github.com/chprojector/projector/chschema"
)

func TestValidateRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(*chschema.Table)
		want   string
	}{
		{"no database", func(t *chschema.Table) { t.Database = "" }, "database: a name is missing"},
		{"database to quote", func(t *chschema.Table) { t.Database = "a-b" }, `database "a-b": use letters`},
		{"table with a quote", func(t *chschema.Table) { t.Name = "x`y" }, "table \"x`y\": use letters"},
		{"table too long", func(t *chschema.Table) { t.Name = strings.Repeat("x", 129) }, "129 bytes are too long"},
		{"cluster to quote", func(t *chschema.Table) { t.Cluster = "a b" }, `cluster "a b"`},
		{"generation 0", func(t *chschema.Table) { t.Generation = 0 }, "generations start at 1"},
		{"no columns", func(t *chschema.Table) { t.Columns = nil }, "columns: the table has none"},
		{"reserved column", func(t *chschema.Table) { t.Columns[0].Name = "_topic" }, `column "_topic": names with a leading underscore are reserved`},
		{"column twice", func(t *chschema.Table) { t.Columns = append(t.Columns, t.Columns[0]) }, "column data_id: it is there twice"},
		{"column that the server would misread", func(t *chschema.Table) { t.Columns[5].Name = "Not" }, "column Not: the server takes the name"},
		{"column of no type", func(t *chschema.Table) { t.Columns[5].Type = chschema.Type{} }, "column result: it has no type"},
		{"suspicious LowCardinality", func(t *chschema.Table) { t.Columns[5] = column("result LowCardinality(UInt64)") }, "column result: LowCardinality(UInt64) is larger"},
		{"suspicious inside an Array", func(t *chschema.Table) { t.Columns[5] = column("result Array(LowCardinality(Nullable(Date)))") }, "write Nullable(Date)"},
		{"no identity", func(t *chschema.Table) { t.Identity = nil }, "identity: name the columns"},
		{"identity outside the key", func(t *chschema.Table) { t.Identity = []string{"user_id"} }, "identity: user_id is not in order_by"},
		{"identity twice", func(t *chschema.Table) { t.Identity = []string{"data_id", "data_id"} }, "identity: data_id is there twice"},
		{"no order", func(t *chschema.Table) { t.OrderBy = nil }, "order_by: name at least"},
		{"order by nothing known", func(t *chschema.Table) { t.OrderBy = append(t.OrderBy, "x") }, "order_by: there is no column x"},
		{"order twice", func(t *chschema.Table) { t.OrderBy = append(t.OrderBy, "data_id") }, "order_by: data_id is there twice"},
		{"order by lineage", func(t *chschema.Table) { t.OrderBy = append(t.OrderBy, "_offset") }, "order_by: there is no column _offset"},
		{"order by the version", func(t *chschema.Table) { t.OrderBy = append(t.OrderBy, "version") }, "order_by: version differs between versions"},
		{"order by the deletion", func(t *chschema.Table) { t.OrderBy = append(t.OrderBy, "is_deleted") }, "order_by: is_deleted differs"},
		{"nullable key", func(t *chschema.Table) { t.Columns[0] = column("data_id Nullable(UInt64)") }, "make the column UInt64"},
		{"nullable key in a dictionary", func(t *chschema.Table) { t.Columns[0] = column("data_id LowCardinality(Nullable(String))") }, "make the column LowCardinality(String)"},
		{"floating key", func(t *chschema.Table) { t.Columns[0] = column("data_id Float64") }, "NaN and -0.0"},
		{"key of an Array", func(t *chschema.Table) { t.Columns[0] = column("data_id Array(UInt8)") }, "a key column holds one plain value"},
		{"no version", func(t *chschema.Table) { t.Version = "" }, "version: name the column"},
		{"version unknown", func(t *chschema.Table) { t.Version = "x" }, `version "x": there is no such column`},
		{"signed version", func(t *chschema.Table) { t.Columns[4] = column("version Int64") }, "version version: it is Int64; use an unsigned integer"},
		{"time as version", func(t *chschema.Table) { t.Columns[4] = column("version DateTime64(3)") }, "use an unsigned integer"},
		{"nullable version", func(t *chschema.Table) { t.Columns[4] = column("version Nullable(UInt64)") }, "use an unsigned integer"},
		{"deleted unknown", func(t *chschema.Table) { t.Deleted = "x" }, `deleted "x": there is no such column`},
		{"deleted of text", func(t *chschema.Table) { t.Deleted = "event_id" }, "deleted event_id: it is String; use Bool or UInt8"},
		{"nullable deleted", func(t *chschema.Table) { t.Columns[7] = column("is_deleted Nullable(Bool)") }, "use Bool or UInt8"},
		{"campaign unknown", func(t *chschema.Table) { t.Campaign = "x" }, `campaign "x": there is no such column`},
		{"nullable campaign", func(t *chschema.Table) { t.Columns[1] = column("detect_id Nullable(UInt64)") }, "campaign detect_id: it is Nullable(UInt64), but rows of no campaign are backfilled and compared by nobody; make the column UInt64"},
		{"view name taken", func(t *chschema.Table) { t.Views[0].Name = "fitness_results_current" }, "view fitness_results_current: the name is taken"},
		{"view named as the table", func(t *chschema.Table) { t.Views[0].Name = "fitness_results_g1" }, "the name is taken"},
		{"view twice", func(t *chschema.Table) { t.Views = append(t.Views, t.Views[0]) }, "the name is taken"},
		{"view reads a table", func(t *chschema.Table) { t.Views[0].Query = "SELECT 1 FROM x" }, "its query does not read {current}"},
		{"view with a slip", func(t *chschema.Table) { t.Views[0].Query = "SELECT 1 FROM {curr}, {current}" }, "{curr} is unknown"},
		{"view with a semicolon", func(t *chschema.Table) { t.Views[0].Query += " ; \n" }, "ends with a semicolon"},
		{"setting to quote", func(t *chschema.Table) { t.Settings = map[string]string{"a = 1, b": "2"} }, `settings "a = 1, b"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table := fitness("d")
			tt.change(&table)
			err := table.Validate()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestValidateAcceptsItsOwnExample(t *testing.T) {
	if err := fitness("d").Validate(); err != nil {
		t.Error(err)
	}
	parameterized := fitness("d")
	parameterized.Views[0].Query = "SELECT map('a', 1) AS m, * FROM {current} WHERE detect_id = {campaign:UInt64}"
	if err := parameterized.Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateReportsEverythingAtOnce(t *testing.T) {
	err := chschema.Table{PartitionBy: "now()", Views: []chschema.View{{}}, Deleted: "d", Campaign: "c"}.Validate()
	want := []string{
		"database", "table", "generation", "columns", "identity", "order_by", "version", "deleted", "campaign", "partition_by", "view",
	}
	lines := strings.Split(err.Error(), "\n")
	for i, w := range want {
		if i >= len(lines) || !strings.HasPrefix(lines[i], w) {
			t.Fatalf("line %d is not about %s:\n%v", i+1, w, err)
		}
	}
}
