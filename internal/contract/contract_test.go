package contract

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chprojector/projector/chschema"
)

func columns(t testing.TB, texts ...string) (list []chschema.Column) {
	t.Helper()
	for _, text := range texts {
		name, typ, _ := strings.Cut(text, " ")
		parsed, err := chschema.ParseType(typ)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, chschema.Column{Name: name, Type: parsed})
	}
	return list
}

func spec(t testing.TB) Spec {
	t.Helper()
	return Spec{
		Identity: []string{"id"}, Version: "version", Campaign: "campaign",
		Columns: columns(t, "id UInt64", "campaign UInt32", "version UInt64", "result Decimal(18, 3)", "at DateTime64(3, 'UTC')", "unit String", "ratio Float64"),
		Rows:    "SELECT data_id AS id, t.at, UPPER(unit) unit, 0 AS deleted FROM fact AS t WHERE campaign = ?",
		Fields: []Field{
			{Column: "id", Source: "data_id", Class: Integer},
			{Column: "version", Source: "version", Class: Integer, Event: "meta.version"},
			{Column: "result", Source: "result", Class: Decimal, Scale: 3},
			{Column: "at", Source: "t.at", Class: Instant, Precision: 3},
			{Column: "unit", Source: "UPPER(unit)", Class: String},
		},
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Spec)
		want   string
	}{
		{"a column that the table lacks", func(s *Spec) { s.Fields[4].Column = "unti" }, "fields[4] (unti): the table has no column unti"},
		{"no identity", func(s *Spec) { s.Fields[0].Column = "unit" }, "the identity column id is missing"},
		{"no version", func(s *Spec) { s.Fields[1].Column = "campaign" }, "the version column version is missing"},
		{"a class that does not fit", func(s *Spec) { s.Fields[4].Class = Integer }, "class integer does not fit the column's type String; use string"},
		{"a float", func(s *Spec) { s.Fields[4].Column = "ratio" }, "a float is not equal to itself"},
		{"decimals hidden", func(s *Spec) { s.Fields[2].Scale = 2 }, "scale 2 would hide decimals: the column is Decimal(18, 3); write scale: 3"},
		{"a column twice", func(s *Spec) { s.Fields[4] = s.Fields[2] }, "the column result is listed twice"},
		{"an unknown zone", func(s *Spec) { s.Fields[3].Zone = "Mars/Olympus" }, `zone "Mars/Olympus": unknown`},
		{"two expressions", func(s *Spec) { s.Fields[4].Source = "a, b" }, "a comma outside of parentheses"},
		{"a statement", func(s *Spec) { s.Fields[4].Source = "a; DROP TABLE x" }, "a semicolon"},
		{"two campaigns", func(s *Spec) { s.Rows += " OR x = ?" }, "2 question marks"},
		{"a path without a name", func(s *Spec) { s.Fields[1].Event = "a..b" }, "a name in the path is empty"},
		{"neither query nor path", func(s *Spec) { s.Rows = "" }, "event is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := spec(t)
			c.change(&s)
			if _, err := Compile(s); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestCheckCampaign(t *testing.T) {
	for _, c := range []struct {
		kind      string
		good, bad []string
	}{
		{"UInt32", []string{"0", "4294967295"}, []string{"", "12x", "007", "-1", "4294967296"}},
		{"String", []string{"007", "it's 100%"}, []string{""}},
		{"Date", []string{"2026-01-02"}, []string{"2026-1-2", "20260102", "2026-02-30", "2026-01-02 "}},
		{"Date32", []string{"1965-01-02"}, []string{"1965-1-2"}},
	} {
		s := spec(t)
		s.Columns[1] = columns(t, "campaign "+c.kind)[0]
		rules, err := Compile(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, campaign := range c.good {
			if err := rules.CheckCampaign(campaign); err != nil {
				t.Errorf("%s: %v", c.kind, err)
			}
		}
		for _, campaign := range c.bad {
			if rules.CheckCampaign(campaign) == nil {
				t.Errorf("%s: %q was taken", c.kind, campaign)
			}
		}
	}
}

func TestPathsComeFromTheQuery(t *testing.T) {
	c, err := Compile(spec(t))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"id", "meta/version", "", "at", "unit"} {
		if got := strings.Join(c.fields[i].path, "/"); got != want {
			t.Errorf("%s: path %q, want %q", c.fields[i].Column, got, want)
		}
	}
}

func TestEncode(t *testing.T) {
	f := func(f Field, typ string) field {
		f.Column = "x"
		c := &Contract{spec: Spec{Columns: columns(t, "x "+typ)}, rows: &Query{}}
		f.Source = "x"
		out, err := c.compile(f)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	integer, money := f(Field{Class: Integer}, "Int64"), f(Field{Class: Decimal, Scale: 3}, "Decimal(18, 3)")
	milli := f(Field{Class: Instant, Precision: 3, Unit: "ms"}, "DateTime64(3)")
	berlin := f(Field{Class: Instant, Zone: "Europe/Berlin"}, "DateTime")
	for _, c := range []struct {
		name string
		field
		in, want string
	}{
		{"leading zeros", integer, "007", "7"},
		{"minus zero", integer, "-0", "0"},
		{"exponent", integer, "12e2", "1200"},
		{"a fraction", integer, "1.5", "!"},
		{"a whole number with a point", integer, "2.0", "2"},
		{"an underscore", integer, "1_0", "!"},
		{"words", integer, "x", "!"},
		{"two decimals", money, "2.31", "2310"},
		{"three decimals", money, "2.310", "2310"},
		{"negative", money, "-0.005", "-5"},
		{"too many", money, "0.0001", "!"},
		{"small exponent", money, "231e-2", "2310"},
		{"an absurd exponent", money, "1e99999", "!"},
		{"a number", milli, "1700000000123", "1700000000123000"},
		{"before 1970", milli, "-1", "-1000"},
		{"with a zone", milli, "1970-01-01T01:00:00.5+01:00", "500000"},
		{"cut towards the past", milli, "1969-12-31 23:59:59.9999", "-1000"},
		{"summer", berlin, "2026-07-01 12:00:00", "1782900000000000"},
		{"winter", berlin, "2026-01-01 12:00:00", "1767265200000000"},
		{"not a time", berlin, "0000-00-00 00:00:00", "!"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.canonical(c.in)
			if err != nil {
				got = "!"
			}
			if got != c.want {
				t.Errorf("%q is %q (%v), want %q", c.in, got, err, c.want)
			}
		})
	}
}

// A campaign that is a text is told by its bytes, of which those that fill up a
// FixedString mean nothing.
func TestIsCampaign(t *testing.T) {
	for _, c := range []struct {
		typ, value, campaign string
		want                 bool
	}{
		{"String", "abc", "abc", true},
		{"String", "ABC", "abc", false},
		{"String", "abc ", "abc", false},
		{"LowCardinality(Nullable(String))", "ABC", "abc", false},
		{"FixedString(5)", "abc\x00\x00", "abc", true},
		{"FixedString(5)", "ABC\x00\x00", "abc", false},
		{"Enum16('abc' = 1, 'ABC' = 2)", "ABC", "abc", false},
		{"UInt64", "7", "7", true},
		{"Date", "2026-11-30", "20261130", true},
	} {
		s := spec(t)
		s.Columns[1] = columns(t, "campaign "+c.typ)[0]
		rules, err := Compile(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := rules.IsCampaign(c.value, c.campaign); got != c.want {
			t.Errorf("%s: %q for %q: %t", c.typ, c.value, c.campaign, got)
		}
	}
}

func TestSplitUndoesEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOf(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"N;", "V1:x;", ";", ""}))).Draw(t, "texts")
		var b []byte
		for i, s := range texts {
			if b = appendText(b, s); i%3 == 0 {
				b = append(b, "N;"...)
			}
		}
		parts, err := Split(string(b))
		if err != nil || strings.Join(parts, "") != string(b) {
			t.Fatalf("%q, %v", parts, err)
		}
		for i := range texts {
			j := i + (i+2)/3
			if parts[j] != string(appendText(nil, texts[i])) {
				t.Fatalf("part %d is %q, want %q", j, parts[j], texts[i])
			}
		}
	})
}

func FuzzSplit(f *testing.F) {
	f.Add("V1:x;N;")
	f.Add("V99999999999999999999:x;")
	f.Fuzz(func(t *testing.T, s string) {
		if parts, err := Split(s); err == nil && strings.Join(parts, "") != s {
			t.Errorf("%q became %q", s, parts)
		}
	})
}

// The zone's table against Go's own zones: of every instant's wall time the
// offset must lead back to an instant with that wall time.
func TestZones(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Asia/Shanghai", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu", "+05:45"} {
		t.Run(name, func(t *testing.T) {
			z, err := parseZone(name)
			if err != nil {
				t.Fatal(err)
			}
			location := time.FixedZone("", 5*3600+45*60)
			if name[0] != '+' {
				if location, err = time.LoadLocation(name); err != nil {
					t.Fatal(err)
				}
			}
			const layout = "2006-01-02 15:04:05"
			rapid.Check(t, func(t *rapid.T) {
				at := time.Unix(rapid.Int64Range(-2e9, 4e9).Draw(t, "at"), 0)
				wall := at.In(location).Format(layout)
				w, _ := time.Parse(layout, wall)
				if back := time.Unix(w.Unix()-z.offset(w.Unix()), 0); back.In(location).Format(layout) != wall || back.After(at) {
					t.Fatalf("%s became %s", wall, back.In(location))
				}
			})
		})
	}
}

// A field that an event lacks is what the contract says, as the mapping's default
// is, and so are those of an object that is null; one that is null is null.
func TestMissingFieldOfAnEvent(t *testing.T) {
	spec := func(fallback string) Spec {
		unit := Field{Column: "unit", Event: "of.unit", Class: String}
		if fallback != "" {
			unit.Default = []byte(fallback)
		}
		return Spec{
			Identity: []string{"id"}, Version: "version", Campaign: "campaign", OrderBy: []string{"id"},
			Columns: columns(t, "id UInt64", "campaign UInt64", "version UInt64", "unit Nullable(String)", "n UInt64"),
			Fields: []Field{
				{Column: "id", Event: "id", Class: Integer},
				{Column: "campaign", Event: "c", Class: Integer},
				{Column: "version", Event: "v", Class: Integer},
				unit,
				{Column: "n", Event: "n", Class: Integer, Default: []byte("7")},
			},
		}
	}
	for _, c := range []struct{ fallback, event, unit, n string }{
		{`"km"`, `{}`, "V2:km;", "V1:7;"},
		{`"km"`, `{"of":{}}`, "V2:km;", "V1:7;"},
		{`"km"`, `{"of":null}`, "V2:km;", "V1:7;"},
		{`"km"`, `{"of":{"unit":null},"n":null}`, "N;", "N;"},
		{`"km"`, `{"of":{"unit":"m"},"n":8}`, "V1:m;", "V1:8;"},
		{`null`, `{}`, "N;", "V1:7;"},
		{``, `{}`, "N;", "V1:7;"},
	} {
		rules, err := Compile(spec(c.fallback))
		if err != nil {
			t.Fatal(err)
		}
		e, err := rules.ReadEvent([]byte(strings.Replace(strings.Replace(c.event, "{", `{"id":1,"c":2,"v":3,`, 1), ",}", "}", 1)))
		if want := "V1:1;V1:2;V1:3;" + c.unit + c.n; err != nil || e.Content != want {
			t.Errorf("%s, default %s: %s, %v; want %s", c.event, c.fallback, e.Content, err, want)
		}
	}
	wrong := spec(`[1]`)
	wrong.Fields[4].Default = []byte(`"seven"`)
	_, err := Compile(wrong)
	for _, want := range []string{"fields[3] (unit): default: an object or a list", `fields[4] (n): default: "seven" is no number`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
