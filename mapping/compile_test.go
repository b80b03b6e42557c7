package mapping

import (
	"slices"
	"strings"
	"testing"

	"github.com/chprojector/projector/chschema"
)

func TestCompileRefuses(t *testing.T) {
	column := func(name, from, typ string) Column { return Column{Name: name, From: from, Type: mustType(t, typ)} }
	option := func(typ string, c Column) func(*Spec) {
		c.Name, c.From, c.Type = "x", "x", mustType(t, typ)
		return func(s *Spec) { s.Columns = append(s.Columns, c) }
	}
	add := func(c ...Column) func(*Spec) { return func(s *Spec) { s.Columns = append(s.Columns, c...) } }
	for _, c := range []struct {
		name   string
		change func(*Spec)
		want   []string
	}{
		{"no columns", func(s *Spec) { s.Columns = nil }, []string{"columns: a projection has 1 to 10000, not 0", `identity: there is no column "data_id"`, `version: there is no column "version"`, `deleted: there is no column "is_deleted"`}},
		{"no identity", func(s *Spec) { s.Identity = nil }, []string{"identity: name the columns"}},
		{"unknown identity", func(s *Spec) { s.Identity = []string{"id"} }, []string{`identity: there is no column "id"`}},
		{"identity twice", func(s *Spec) { s.Identity = []string{"data_id", "data_id"} }, []string{"identity: column data_id is named twice"}},
		{"nullable identity", func(s *Spec) { s.Columns[0].Type = mustType(t, "Nullable(UInt64)") }, []string{"identity: column data_id is Nullable(UInt64); a record without an identity cannot be replaced, so use UInt64"}},
		{"nullable identity in a dictionary", func(s *Spec) { s.Columns[0].Type = mustType(t, "LowCardinality(Nullable(String))") }, []string{"so use LowCardinality(String)"}},
		{"identity of a float", func(s *Spec) { s.Columns[0].Type = mustType(t, "Float64") }, []string{"identity: column data_id is Float64"}},
		{"identity of an array", func(s *Spec) { s.Columns[0].Type = mustType(t, "Array(UInt8)") }, []string{"identity: column data_id is Array(UInt8)"}},
		{"identity of a low-cardinality float", func(s *Spec) { s.Columns[0].Type = mustType(t, "LowCardinality(Float64)") }, []string{"identity: column data_id is LowCardinality(Float64)"}},
		{"version as identity", func(s *Spec) { s.Identity = []string{"data_id", "version"} }, []string{"identity: column version is the version"}},
		{"no version", func(s *Spec) { s.Version = "" }, []string{"version: name the column"}},
		{"unknown version", func(s *Spec) { s.Version = "v" }, []string{`version: there is no column "v"`}},
		{"signed version", func(s *Spec) { s.Columns[4].Type = mustType(t, "Int64") }, []string{"version: column version is Int64; a version is a UInt64"}},
		{"nullable version", func(s *Spec) { s.Columns[4].Type = mustType(t, "Nullable(UInt64)") }, []string{"version: column version is Nullable(UInt64)"}},
		{"version of a time", func(s *Spec) { s.Columns[4].Type = mustType(t, "DateTime64(3)") }, []string{"version: column version is DateTime64(3)"}},
		{"wide version", func(s *Spec) { s.Columns[4].Type = mustType(t, "UInt128") }, []string{"version: column version is UInt128"}},
		{"unknown deleted", func(s *Spec) { s.Deleted = "gone" }, []string{`deleted: there is no column "gone"`}},
		{"deleted of a string", func(s *Spec) { s.Deleted = "unit" }, []string{"deleted: column unit is LowCardinality(String)"}},
		{"deleted as identity", func(s *Spec) { s.Identity = append(s.Identity, "is_deleted") }, []string{"deleted: column is_deleted is part of the identity"}},
		{"deleted as version", func(s *Spec) { s.Columns[4].Type = mustType(t, "UInt8"); s.Deleted = "version" }, []string{"deleted: column version is the version"}},
		{"schema version without accept", func(s *Spec) { s.SchemaVersion.Accept = nil }, []string{"schema_version: from without accept"}},
		{"accept without schema version", func(s *Spec) { s.SchemaVersion.From = "" }, []string{"schema_version: accept without from"}},
		{"schema version within a leaf", func(s *Spec) { s.SchemaVersion.From = "unit.version" }, []string{`schema_version: from "unit.version" lies within a field that column unit reads as a whole`}},
		{"no name", add(column("", "x", "UInt8")), []string{"column without a name"}},
		{"two of a name", add(column("unit", "x", "UInt8")), []string{"column unit: there are two columns of this name"}},
		{"reserved name", add(column("_topic", "x", "UInt8")), []string{"column _topic: names that begin with _ are kept for the lineage columns"}},
		{"odd name", add(column("a b", "x", "UInt8"), column("1a", "y", "UInt8"), column("a.b", "z", "UInt8")), []string{`column "a b": a name consists of`, `column "1a": a name`, `column "a.b": a name`}},
		{"no type", func(s *Spec) { s.Columns[8].Type.Kind = 0 }, []string{"column event_id: no type"}},
		{"type that no text gives", func(s *Spec) {
			s.Columns[8].Type = chschema.Type{Kind: chschema.KindNullable, Elem: []chschema.Type{mustType(t, "Array(UInt8)")}}
		}, []string{"column event_id: type \"Nullable(Array(UInt8))\": Nullable cannot hold Array(UInt8)"}},
		{"no path", add(column("x", "", "UInt8")), []string{`column x: from "": no field is named`}},
		{"empty step", add(column("x", "a..b", "UInt8"), column("y", ".a", "UInt8"), column("z", "a.", "UInt8")), []string{"column x: from \"a..b\": a step of the path is empty", "column y", "column z"}},
		{"stray backslash", add(column("x", `a\b`, "UInt8"), column("y", `a\`, "UInt8")), []string{"column x: from \"a\\\\b\": a backslash stands only before a dot or a backslash", "column y"}},
		{"path of invalid UTF-8", add(column("x", "\xff", "UInt8")), []string{"not valid UTF-8"}},
		{"path too deep", add(column("x", strings.Repeat("a.", 200)+"a", "UInt8")), []string{"deeper than any event may be"}},
		{"leaf and parent", add(column("x", "unit.name", "UInt8")), []string{`column x: from "unit.name" lies within a field that column unit reads as a whole`}},
		{"parent and leaf", add(column("x", "a.b", "UInt8"), column("y", "a", "String")), []string{`column y: from "a" is an object of which other columns read fields`}},
		{"zone on an integer", option("UInt64", Column{Zone: "UTC"}), []string{"column x: zone is for DateTime and DateTime64, not for UInt64"}},
		{"zone on a date", option("Date", Column{Zone: "UTC"}), []string{"column x: zone is for DateTime"}},
		{"unknown zone", option("DateTime", Column{Zone: "Europe/Zürich"}), []string{"column x: zone: unknown time zone Europe/Zürich"}},
		{"zone of the machine", option("DateTime", Column{Zone: "Local"}), []string{"column x: zone: Local depends on the machine"}},
		{"unknown zone of the type", option("DateTime('Nowhere')", Column{}), []string{"column x: DateTime('Nowhere'): unknown time zone Nowhere"}},
		{"unit on a date", option("Date32", Column{Unit: "s"}), []string{"column x: unit is for DateTime and DateTime64, not for Date32"}},
		{"unknown unit", option("DateTime", Column{Unit: "min"}), []string{`column x: unit "min": it is s, ms, us or ns`}},
		{"rounding an integer", option("UInt64", Column{Round: "half_even"}), []string{"column x: round is for Decimal, DateTime and DateTime64, not for UInt64"}},
		{"unknown rounding", option("Decimal(9, 2)", Column{Round: "up"}), []string{`column x: round "up": the only rounding is half_even`}},
		{"default of another type", option("UInt8", Column{Default: []byte(`"x"`)}), []string{`column x: default "\"x\"": this text is not an integer`}},
		{"default out of range", option("UInt8", Column{Default: []byte("256")}), []string{"column x: default \"256\": out of the range of UInt8"}},
		{"default null", option("String", Column{Default: []byte("null")}), []string{"column x: default \"null\": null where a string was expected"}},
		{"default without quotes", option("String", Column{Default: []byte("m")}), []string{"column x: default \"m\": not JSON", "JSON text is needed"}},
		{"two defaults", option("UInt8", Column{Default: []byte("1 2")}), []string{"bytes after the end"}},
		{"empty default", option("UInt8", Column{Default: []byte{}}), []string{"column x: default \"\": truncated"}},
		{"default with an unknown field", option("Tuple(x UInt8)", Column{Default: []byte(`{"x":1,"y":2}`)}), []string{"has fields that Tuple(x UInt8) has not"}},
		{"map with keys that no name can be", option("Map(Array(UInt8), UInt8)", Column{}), []string{"column x: Map(Array(UInt8), UInt8): the names of a JSON object cannot be keys of type Array(UInt8)"}},
		{"map with keys of floats", option("Array(Map(Float64, UInt8))", Column{}), []string{"cannot be keys of type Float64"}},
		{"several at once", func(s *Spec) {
			s.Version = "v"
			s.Columns[0].Unit = "s"
			s.Columns[1].Name = "_x"
		}, []string{`version: there is no column "v"`, "column data_id: unit is for", "column _x: names that begin with _"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := fitness(t)
			c.change(&spec)
			plan, err := Compile(spec)
			if err == nil || plan != nil {
				t.Fatal("accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
			if lines := strings.Count(err.Error(), "\n") + 1; c.name != "default without quotes" && lines != len(c.want) {
				t.Errorf("%d problems, want %d:\n%v", lines, len(c.want), err)
			}
		})
	}
}

func TestCompileAccepts(t *testing.T) {
	spec := fitness(t)
	for i, typ := range []string{
		"Array(Nullable(DateTime64(3, 'Asia/Tokyo')))", "Map(String, DateTime)", "Tuple(a Decimal(9, 2), b DateTime)", "Nullable(DateTime)",
	} {
		spec.Columns = append(spec.Columns, Column{Name: "x" + string(rune('a'+i)), From: "x" + string(rune('a'+i)), Type: mustType(t, typ), Zone: "Europe/Zurich", Unit: "ms", Round: "half_even"})
	}
	spec.Columns = append(spec.Columns, Column{Name: "again", From: "version", Type: mustType(t, "String")}) // one field for two columns
	plan := mustCompile(t, spec)
	if got := plan.Spec().Columns; !slices.EqualFunc(got, spec.Columns, func(a, b Column) bool { return a.Name == b.Name && a.Type.Equal(b.Type) }) {
		t.Errorf("Spec returns %v", got)
	}
	spec.Columns[0].Name = "changed later"
	if plan.Spec().Columns[0].Name != "data_id" {
		t.Error("a plan changes with the spec that it came from")
	}
}
