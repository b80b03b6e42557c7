package chschema

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The right-hand side is what ClickHouse 26.7 shows in system.columns for a
// table created with the left-hand side.
var canonicalTypes = []struct{ text, want string }{
	{"Int8", "Int8"},
	{"Int16", "Int16"},
	{"Int32", "Int32"},
	{"Int64", "Int64"},
	{"Int128", "Int128"},
	{"Int256", "Int256"},
	{"UInt8", "UInt8"},
	{"UInt16", "UInt16"},
	{"UInt32", "UInt32"},
	{"UInt64", "UInt64"},
	{"UInt128", "UInt128"},
	{"UInt256", "UInt256"},
	{"Float32", "Float32"},
	{"Float64", "Float64"},
	{" Bool ", "Bool"},
	{"String", "String"},
	{"FixedString( 16 )", "FixedString(16)"},
	{"UUID", "UUID"},
	{"Date", "Date"},
	{"Date32", "Date32"},
	{"IPv4", "IPv4"},
	{"IPv6", "IPv6"},
	{"DateTime", "DateTime"},
	{"DateTime('')", "DateTime"},
	{"DateTime('Europe/Zurich')", "DateTime('Europe/Zurich')"},
	{"DateTime64", "DateTime64(3)"},
	{"DateTime64(0)", "DateTime64(0)"},
	{"DateTime64( 3 , 'UTC' )", "DateTime64(3, 'UTC')"},
	{"DateTime64(9,'')", "DateTime64(9)"},
	{"Decimal", "Decimal(10, 0)"},
	{"Decimal(5)", "Decimal(5, 0)"},
	{"Decimal(18,3)", "Decimal(18, 3)"},
	{"Decimal(76, 76)", "Decimal(76, 76)"},
	{"Decimal32(2)", "Decimal(9, 2)"},
	{"Decimal64(3)", "Decimal(18, 3)"},
	{"Decimal128(10)", "Decimal(38, 10)"},
	{"Decimal256(0)", "Decimal(76, 0)"},
	{"Enum8('b'=2,'a'=1)", "Enum8('a' = 1, 'b' = 2)"},
	{"Enum('b'=2,'a'=1)", "Enum8('a' = 1, 'b' = 2)"},
	{"Enum('a'=1, 'b'=200)", "Enum16('a' = 1, 'b' = 200)"},
	{"Enum8('x','y')", "Enum8('x' = 1, 'y' = 2)"},
	{"Enum8('x'=-128,'y')", "Enum8('x' = -128, 'y' = -127)"},
	{"Enum8('a'=+1)", "Enum8('a' = 1)"},
	{`Enum8('it\'s\n\t\\ é'=-3, ''=0)`, `Enum8('it\'s\n\t\\ é' = -3, '' = 0)`},
	{`Enum16('it''s' = 300)`, `Enum16('it\'s' = 300)`},
	{`Enum8('a\0b\b\r\f"` + "`'=1)", `Enum8('a\0b\b\r\f"` + "`' = 1)"},
	{"Nullable(String)", "Nullable(String)"},
	{"LowCardinality(String)", "LowCardinality(String)"},
	{"LowCardinality(Nullable(FixedString(4)))", "LowCardinality(Nullable(FixedString(4)))"},
	{"LowCardinality(UUID)", "LowCardinality(UUID)"},
	{"LowCardinality(Date)", "LowCardinality(Date)"},
	{"LowCardinality(UInt256)", "LowCardinality(UInt256)"},
	{"Array(Array(Array(LowCardinality(Nullable(String)))))", "Array(Array(Array(LowCardinality(Nullable(String)))))"},
	{"Map(String,UInt64)", "Map(String, UInt64)"},
	{"Map(LowCardinality(String), Array(Nullable(UUID)))", "Map(LowCardinality(String), Array(Nullable(UUID)))"},
	{"Map(Array(Nullable(UInt8)),UInt8)", "Map(Array(Nullable(UInt8)), UInt8)"},
	{"Tuple(UInt8,String)", "Tuple(UInt8, String)"},
	{"Tuple(Int8 UInt8)", "Tuple(Int8 UInt8)"},
	{"Tuple(a UInt8,b Tuple(c Tuple(d String)))", "Tuple(a UInt8, b Tuple(c Tuple(d String)))"},
	{
		"Tuple(`a b` UInt8, distinct UInt8, `select` UInt8, `table` UInt8, `é` UInt8, `All` UInt8, `a.b` UInt8, `1a` UInt8, `from` UInt8, `values` UInt8, `NULL` UInt8, `b\\`q\\\\\\n` UInt8, `plain` UInt8)",
		"Tuple(`a b` UInt8, `distinct` UInt8, `select` UInt8, `table` UInt8, `é` UInt8, `All` UInt8, `a.b` UInt8, `1a` UInt8, `from` UInt8, `values` UInt8, `NULL` UInt8, `b\\`q\\\\\\n` UInt8, plain UInt8)",
	},
}

func TestParseTypeIsCanonical(t *testing.T) {
	for _, c := range canonicalTypes {
		typ, err := ParseType(c.text)
		if err != nil {
			t.Errorf("ParseType(%q): %v", c.text, err)
			continue
		}
		if got := typ.String(); got != c.want {
			t.Errorf("ParseType(%q) prints %q, the server prints %q", c.text, got, c.want)
		}
		again, err := ParseType(c.want)
		if err != nil {
			t.Errorf("ParseType(%q): %v", c.want, err)
		} else if !again.Equal(typ) {
			t.Errorf("ParseType(%q) = %+v, want %+v", c.want, again, typ)
		}
	}
}

func TestParseTypeFields(t *testing.T) {
	got, err := ParseType("Tuple(price Decimal(18, 3), at DateTime64(6, 'Asia/Tokyo'), state Enum8('on' = 1, 'off' = 0), tags Map(FixedString(2), Nullable(Bool)))")
	if err != nil {
		t.Fatal(err)
	}
	want := Type{
		Kind:  KindTuple,
		Names: []string{"price", "at", "state", "tags"},
		Elem: []Type{
			{Kind: KindDecimal, Precision: 18, Scale: 3},
			{Kind: KindDateTime64, Precision: 6, Zone: "Asia/Tokyo"},
			{Kind: KindEnum8, Enum: []EnumValue{{"off", 0}, {"on", 1}}},
			{Kind: KindMap, Elem: []Type{
				{Kind: KindFixedString, Length: 2},
				{Kind: KindNullable, Elem: []Type{{Kind: KindBool}}},
			}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseTypeRefuses(t *testing.T) {
	for _, c := range []struct{ text, reason string }{
		{"", "a type name was expected"},
		{"uint64", "case-sensitive: UInt64"},
		{"invalid", "unknown type invalid; supported are Int8 to Int256"},
		{"Variant(String)", "unknown type Variant"},
		{"String x", `unexpected "x"`},
		{"UInt8(3)", `unexpected "(3)"`},
		{"String\x00", "unexpected"},
		{"Nullable(Array(UInt8))", "Nullable cannot hold Array(UInt8)"},
		{"Nullable(Map(String, UInt8))", "Nullable cannot hold Map"},
		{"Nullable(Tuple(UInt8))", "Nullable cannot hold Tuple"},
		{"Nullable(Nullable(UInt8))", "Nullable twice"},
		{"Nullable(LowCardinality(String))", "write LowCardinality(Nullable(String))"},
		{"LowCardinality(Decimal(9, 2))", "LowCardinality cannot hold Decimal(9, 2)"},
		{"LowCardinality(DateTime64(3))", "LowCardinality cannot hold DateTime64(3)"},
		{"LowCardinality(Enum8('a' = 1))", "LowCardinality cannot hold Enum8"},
		{"LowCardinality(LowCardinality(String))", "LowCardinality cannot hold"},
		{"LowCardinality(Array(String))", "LowCardinality cannot hold"},
		{"Array(Nullable(Array(UInt8)))", "Nullable cannot hold Array(UInt8)"},
		{"Map(Nullable(String), UInt8)", "a key is never NULL"},
		{"Map(LowCardinality(Nullable(String)), UInt8)", "a key is never NULL"},
		{"Map(String)", "',' was expected"},
		{"Array()", "a type name was expected"},
		{"Array", "ends where '(' was expected"},
		{"Tuple()", "at least one element"},
		{"Tuple(a UInt8, UInt8)", "names all of its elements or none"},
		{"Tuple(UInt8, a UInt8)", "names all of its elements or none"},
		{"Tuple(a UInt8, a UInt8)", `two elements named "a"`},
		{"Tuple(`` UInt8)", "empty name"},
		{"Tuple(`null` UInt8)", "reserves"},
		{"Tuple(`a UInt8)", "never closed"},
		{"Enum8()", "'\\'' was expected"},
		{"Enum8('a' = 1, 'a' = 2)", "twice"},
		{"Enum8('a' = 1, 'b' = 1)", "the value 1"},
		{"Enum8('a' = 128)", "does not fit Enum8"},
		{"Enum16('a' = 32768)", "does not fit Enum16"},
		{"Enum('a' = 40000)", "does not fit Enum16"},
		{"Enum8('a' = x)", "a number was expected"},
		{`Enum8('\q' = 1)`, "unknown escape"},
		{"FixedString(0)", "1 to 16777215 bytes"},
		{"FixedString(16777216)", "1 to 16777215 bytes"},
		{"FixedString", "ends where '(' was expected"},
		{"DateTime64(10)", "0 to 9"},
		{"DateTime64(-1)", "0 to 9"},
		{"DateTime(UTC)", "was expected"},
		{"Decimal(77, 1)", "1 to 76 digits"},
		{"Decimal(0)", "1 to 76 digits"},
		{"Decimal(9, 10)", "0 to 9"},
		{"Decimal(9, -1)", "0 to 9"},
		{"Decimal32", "ends where '(' was expected"},
		{"Decimal(99999999999999999999)", "out of range"},
		{strings.Repeat("Array(", 100) + "UInt8" + strings.Repeat(")", 100), "nested deeper"},
	} {
		_, err := ParseType(c.text)
		if err == nil {
			t.Errorf("ParseType(%q) was accepted", c.text)
		} else if !strings.Contains(err.Error(), c.reason) {
			t.Errorf("ParseType(%q): %v; want it to say %q", c.text, err, c.reason)
		}
	}
}

func TestTypesDiffer(t *testing.T) {
	texts := []string{
		"UInt64", "Int64", "Decimal(18, 3)", "Decimal(18, 2)", "Decimal(17, 3)", "FixedString(2)", "FixedString(3)",
		"DateTime", "DateTime('UTC')", "DateTime64(3)", "DateTime64(3, 'UTC')", "DateTime64(4)",
		"Enum8('a' = 1)", "Enum8('a' = 2)", "Enum8('b' = 1)", "Enum16('a' = 1)",
		"Array(UInt8)", "Array(UInt16)", "Nullable(UInt8)", "Tuple(UInt8)", "Tuple(a UInt8)", "Tuple(b UInt8)", "Tuple(UInt8, UInt8)",
	}
	for i, a := range texts {
		for j, b := range texts {
			x, errX := ParseType(a)
			y, errY := ParseType(b)
			if errX != nil || errY != nil {
				t.Fatal(errX, errY)
			}
			if x.Equal(y) != (i == j) {
				t.Errorf("%s equal to %s: %t", a, b, x.Equal(y))
			}
		}
	}
}

func TestTypeSize(t *testing.T) {
	for text, want := range map[string]int{
		"Int8": 1, "UInt16": 2, "Float32": 4, "Int64": 8, "UInt128": 16, "Int256": 32, "Bool": 1, "UUID": 16, "Date": 2, "Date32": 4,
		"DateTime": 4, "DateTime64(9)": 8, "Enum8('a' = 1)": 1, "Enum16('a' = 1)": 2, "IPv4": 4, "IPv6": 16, "FixedString(7)": 7,
		"Decimal(9, 0)": 4, "Decimal(10, 0)": 8, "Decimal(18, 0)": 8, "Decimal(19, 0)": 16, "Decimal(38, 0)": 16, "Decimal(39, 0)": 32, "Decimal(76, 0)": 32,
		"String": 0, "Nullable(UInt8)": 0, "LowCardinality(String)": 0, "Array(UInt8)": 0, "Map(UInt8, UInt8)": 0, "Tuple(UInt8)": 0,
	} {
		typ, err := ParseType(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := typ.Size(); got != want {
			t.Errorf("%s occupies %d bytes, want %d", text, got, want)
		}
	}
}

func TestTypeIsNullable(t *testing.T) {
	for text, want := range map[string]bool{
		"Nullable(UInt8)": true, "LowCardinality(Nullable(String))": true,
		"LowCardinality(String)": false, "String": false, "Array(Nullable(String))": false, "Tuple(Nullable(String))": false,
	} {
		typ, err := ParseType(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := typ.IsNullable(); got != want {
			t.Errorf("%s is nullable: %t", text, got)
		}
	}
}

func FuzzParseType(f *testing.F) {
	for _, c := range canonicalTypes {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		typ, err := ParseType(text)
		if err != nil {
			return
		}
		printed := typ.String()
		again, err := ParseType(printed)
		if err != nil {
			t.Fatalf("%q prints as %q: %v", text, printed, err)
		}
		if !again.Equal(typ) {
			t.Fatalf("%q prints as %q and reads as %+v, not %+v", text, printed, again, typ)
		}
		if again.String() != printed {
			t.Fatalf("%q prints as %q, then as %q", text, printed, again.String())
		}
	})
}
