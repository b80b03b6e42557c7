package mapping_test

import (
	"strings"
	"testing"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/mapping"
)

// TestZero holds each type's zero against what ClickHouse itself puts where an insert names no value.
func TestZero(t *testing.T) {
	if testing.Short() {
		t.Skip("needs ClickHouse")
	}
	db := testenv.SharedClickHouse(t)
	for _, text := range []string{
		"UInt8", "Int64", "UInt256", "Float64", "Bool", "String", "FixedString(3)", "UUID", "IPv4", "IPv6", "Date", "Date32",
		"DateTime", "DateTime('Asia/Tokyo')", "DateTime64(3, 'UTC')", "DateTime64(9)", "Decimal(18, 3)", "Decimal(76, 0)",
		`Enum8('b\'c"\\' = -5, 'a' = 1)`, "Enum16('x' = 300)", "Nullable(UInt8)", "LowCardinality(String)", "LowCardinality(Nullable(String))",
		"Array(String)", "Map(String, UInt8)", "Tuple(a UInt8, b String)", "Tuple(UInt8, Nullable(Date))",
	} {
		typ, err := chschema.ParseType(text)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := mapping.Compile(mapping.Spec{
			Columns: []mapping.Column{
				{Name: "id", From: "id", Type: chschema.Type{Kind: chschema.KindUInt8}},
				{Name: "ver", From: "ver", Type: chschema.Type{Kind: chschema.KindUInt8}},
				{Name: "c", From: "c", Type: typ, Default: mapping.Zero(typ)},
			},
			Identity: []string{"id"}, Version: "ver",
		})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		rows := plan.NewRows()
		if err := plan.Append(rows, []byte(`{"id":1,"ver":1}`), mapping.Lineage{}); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		want, err := db.Query(t.Context(), "SELECT defaultValueOfTypeName("+quoted(text)+") FORMAT TSVRaw SETTINGS session_timezone = 'UTC'")
		if err != nil {
			t.Fatal(err)
		}
		if got := rows.Format(0, "c"); got != strings.TrimSuffix(want, "\n") && !(got == "NULL" && want == "\\N\n") {
			t.Errorf("%s: %q, ClickHouse says %q", text, got, want)
		}
	}
}

func quoted(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'" }
