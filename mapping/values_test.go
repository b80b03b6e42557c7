package mapping

import (
	"errors"
	"strings"
	"testing"
)

// single is a plan with one column, v, besides an identity and a version.
func single(t testing.TB, typ string, options Column) Spec {
	t.Helper()
	options.Name, options.From, options.Type = "v", "v", mustType(t, typ)
	return Spec{
		Identity: []string{"id"},
		Version:  "version",
		Columns: []Column{
			{Name: "id", From: "id", Type: mustType(t, "UInt64")},
			{Name: "version", From: "version", Type: mustType(t, "UInt64")},
			options,
		},
	}
}

// values lists JSON values and what they become: a text as ClickHouse prints
// it, or, after an exclamation mark, the class of the error.
type values map[string]string

func (v values) check(t *testing.T, typ string, options Column) {
	t.Helper()
	plan := mustCompile(t, single(t, typ, options))
	rows := plan.NewRows()
	for value, want := range v {
		before := encode(rows)
		n := rows.Len()
		err := plan.Append(rows, []byte(`{"id":1,"version":2,"v":`+value+`}`), Lineage{Topic: "t"})
		class, refused := strings.CutPrefix(want, "!")
		if !refused {
			if err != nil {
				t.Errorf("%s: %s is refused: %v", typ, value, err)
			} else if got := rows.Format(n, "v"); got != want {
				t.Errorf("%s: %s became %q, want %q", typ, value, got, want)
			}
			continue
		}
		var e *Error
		switch {
		case !errors.As(err, &e):
			t.Errorf("%s: %s was accepted as %q (%v), want class %s", typ, value, rows.Format(n, "v"), err, class)
		case string(e.Class) != class:
			t.Errorf("%s: %s: class %s, want %s: %v", typ, value, e.Class, class, err)
		case e.Class != ClassMalformed && e.Column != "v":
			t.Errorf("%s: %s: the error names column %q: %v", typ, value, e.Column, err)
		case e.Class != ClassMalformed && !strings.HasPrefix(e.Path, "v"):
			t.Errorf("%s: %s: the error names path %q: %v", typ, value, e.Path, err)
		case e.Value == "" && e.Class != ClassMissing || e.Reason == "":
			t.Errorf("%s: %s: the error has no value or reason: %+v", typ, value, e)
		}
		if rows.Len() != n || encode(rows) != before {
			t.Errorf("%s: %s: the refused event left a trace", typ, value)
		}
	}
}

// encode returns the state and native bytes of every column.
func encode(rows *Rows) string { return string(appendEncoded(nil, rows)) }

func appendEncoded(dst []byte, rows *Rows) []byte {
	for _, c := range rows.Columns() {
		dst = c.AppendNative(c.AppendState(dst), 0, rows.Len())
	}
	return dst
}

// notNumbers are refused by every type that reads numbers only.
var notNumbers = values{
	`""`: "!format", `" 1"`: "!format", `"1 "`: "!format", `"abc"`: "!format", `"+1"`: "!format", `"01"`: "!format", `"1."`: "!format",
	`".5"`: "!format", `"0x10"`: "!format", `"1e"`: "!format", `"NaN"`: "!format", `"Infinity"`: "!format", `"1_000"`: "!format", `"1,5"`: "!format",
	`"१"`: "!format", `"1\u0000"`: "!format", `null`: "!null", `{}`: "!type", `[1]`: "!type", `{"a":[1,{"b":null}]}`: "!type",
	`NaN`: "!malformed", `Infinity`: "!malformed", `-`: "!malformed", `01`: "!malformed", `1.`: "!malformed", `.5`: "!malformed", `+1`: "!malformed",
	`1e`: "!malformed", `1e+`: "!malformed", `0x10`: "!malformed", `1_0`: "!malformed", `tru`: "!malformed", `nul`: "!malformed", ``: "!malformed",
	`{"a":1,"a":2}`: "!duplicate", `"\ud800"`: "!encoding", "\"\xff\"": "!encoding", `{"a":"\udc00"}`: "!encoding", "'1'": "!malformed",
	"\"1\n\"": "!malformed", `"\x31"`: "!malformed", `"1`: "!malformed", `1 2`: "!malformed", `1}`: "!malformed", "\x00": "!malformed",
}

func TestIntegers(t *testing.T) {
	for _, c := range []struct{ typ, min, max, below, above string }{
		{"Int8", "-128", "127", "-129", "128"},
		{"Int16", "-32768", "32767", "-32769", "32768"},
		{"Int32", "-2147483648", "2147483647", "-2147483649", "2147483648"},
		{"Int64", "-9223372036854775808", "9223372036854775807", "-9223372036854775809", "9223372036854775808"},
		{"Int128", "-170141183460469231731687303715884105728", "170141183460469231731687303715884105727", "-170141183460469231731687303715884105729", "170141183460469231731687303715884105728"},
		{"Int256", "-57896044618658097711785492504343953926634992332820282019728792003956564819968", "57896044618658097711785492504343953926634992332820282019728792003956564819967", "-57896044618658097711785492504343953926634992332820282019728792003956564819969", "57896044618658097711785492504343953926634992332820282019728792003956564819968"},
		{"UInt8", "0", "255", "-1", "256"},
		{"UInt16", "0", "65535", "-1", "65536"},
		{"UInt32", "0", "4294967295", "-1", "4294967296"},
		{"UInt64", "0", "18446744073709551615", "-1", "18446744073709551616"},
		{"UInt128", "0", "340282366920938463463374607431768211455", "-1", "340282366920938463463374607431768211456"},
		{"UInt256", "0", "115792089237316195423570985008687907853269984665640564039457584007913129639935", "-1", "115792089237316195423570985008687907853269984665640564039457584007913129639936"},
	} {
		notNumbers.check(t, c.typ, Column{})
		values{
			c.min: c.min, c.max: c.max, `"` + c.max + `"`: c.max, c.below: "!range", c.above: "!range", `"` + c.above + `"`: "!range",
			c.max + ".0": c.max, c.max + "0e-1": c.max, c.max + ".5": "!precision", "0": "0", "-0": "0", "0.0": "0", "0e999999999999999999999": "0",
			"100": "100", "1E+2": "100", "1e2": "100", "1.0e2": "100", "100.0": "100", "10000e-2": "100", `"1e2"`: "100", "\t7 ": "7",
			"12.5": "!precision", "1e-1": "!precision", `"12.5"`: "!precision", "0.0000000000000000000000000000001": "!precision", "1e-999999999999": "!precision",
			"1e999999999999": "!range", "1e78": "!range", "-1e78": "!range", strings.Repeat("9", 100): "!range", strings.Repeat("9", 100000): "!range",
			"true": "!type", "false": "!type",
		}.check(t, c.typ, Column{})
	}
	values{"600.0": "600", "6E+2": "600", "9007199254740993": "9007199254740993", "123456789012345678": "123456789012345678", "1234567890123456789": "1234567890123456789"}.check(t, "UInt64", Column{})
	values{"-1": "-1", "-123456789012345678": "-123456789012345678", "-1.20e1": "-12"}.check(t, "Int64", Column{})
	values{"-128": "-128", "-12": "-12", `"-12"`: "-12"}.check(t, "Int8", Column{})
	// Wrong in a way that the fast path for short integers must leave to the walk.
	values{"12345678x": "!malformed", "00000000": "!malformed", "-": "!malformed", "--1": "!malformed", "1-1": "!malformed"}.check(t, "UInt64", Column{})
}

func TestDecimals(t *testing.T) {
	for _, typ := range []string{"Decimal(9, 3)", "Decimal(18, 3)", "Decimal(38, 3)", "Decimal(76, 3)"} {
		notNumbers.check(t, typ, Column{})
		values{
			"2.31": "2.31", "2.310": "2.31", "2.3100000000000000000000000000": "2.31", "6E+2": "600", "100": "100", "-0.0005e1": "-0.005", "64.32": "64.32",
			`"2.31"`: "2.31", "0": "0", "-0": "0", "-0.000": "0", "0.001": "0.001", "-0.001": "-0.001", "1e-3": "0.001", "0.0e-99999999999": "0", "999999.999": "999999.999",
			"-999999.999": "-999999.999", "4.35": "4.35", "0.1": "0.1", "1234e-3": "1.234", "0.00012e1": "!precision", "2.3101": "!precision", "1e-4": "!precision",
			"-0.0005": "!precision", `"0.0001"`: "!precision", "1e-999999999999": "!precision", "1e999999999999": "!range", strings.Repeat("9", 1000): "!range",
			"true": "!type", "1e76": "!range", "-1e74": "!range",
		}.check(t, typ, Column{})
		values{
			"0.0005": "0", "0.0015": "0.002", "0.0025": "0.002", "0.00250000000000000000000000000000000001": "0.003", "-0.0005": "0", "-0.0015": "-0.002",
			"-0.0025": "-0.002", "2.3449": "2.345", "0.00049999": "0", "1e-999999999999": "0", "999999.9985": "999999.998", "5e-4": "0", "15e-4": "0.002",
		}.check(t, typ, Column{Round: "half_even"})
	}
	values{"999999.999": "999999.999", "1000000": "!range", "999999.9995": "!precision"}.check(t, "Decimal(9, 3)", Column{})
	values{"999999.9995": "!range", "999999.9994": "999999.999", "-999999.9995": "!range"}.check(t, "Decimal(9, 3)", Column{Round: "half_even"})
	values{"999999999999999.999": "999999999999999.999", "1000000000000000": "!range"}.check(t, "Decimal(18, 3)", Column{})
	values{strings.Repeat("9", 35) + ".999": strings.Repeat("9", 35) + ".999", "1e35": "!range"}.check(t, "Decimal(38, 3)", Column{})
	values{strings.Repeat("9", 76): strings.Repeat("9", 76), "-" + strings.Repeat("9", 76): "-" + strings.Repeat("9", 76), "1e76": "!range", "1e75": "1" + strings.Repeat("0", 75)}.check(t, "Decimal(76, 0)", Column{})
	values{"1": "!range", "0." + strings.Repeat("9", 76): "0." + strings.Repeat("9", 76), "1e-76": "0." + strings.Repeat("0", 75) + "1", "1e-77": "!precision"}.check(t, "Decimal(76, 76)", Column{})
	values{"-0.0005": "-0.0005", "-9e-18": "-0.000000000000000009", "1": "!range"}.check(t, "Decimal(18, 18)", Column{})
	values{"9": "9", "10": "!range", "-9": "-9", "-10": "!range"}.check(t, "Decimal(1, 0)", Column{})
}

func TestFloats(t *testing.T) {
	notNumbers.check(t, "Float64", Column{})
	notNumbers.check(t, "Float32", Column{})
	values{
		"0.1": "0.1", "2.5": "2.5", "-0": "-0", "1e308": "1e308", "1e309": "!range", "-1e309": "!range", "5e-324": "5e-324", "1e-400": "0",
		"9007199254740993": "9007199254740992", `"0.1"`: "0.1", "1e20": "100000000000000000000", "1e21": "1e21", "0.000001": "0.000001", "1e-7": "1e-7", "true": "!type",
	}.check(t, "Float64", Column{})
	values{"0.1": "0.1", "16777217": "16777216", "3.4e38": "3.4e38", "3.5e38": "!range", "1e-46": "0"}.check(t, "Float32", Column{})
}

func TestBools(t *testing.T) {
	notNumbers.check(t, "Bool", Column{})
	values{
		"true": "true", "false": "false", "0": "false", "1": "true", `"0"`: "false", `"1"`: "true", "1.0": "true", "-0": "false",
		"2": "!range", "-1": "!range", "0.5": "!range", "1e99": "!range", `"true"`: "!format", "True": "!malformed", "trueish": "!malformed",
	}.check(t, "Bool", Column{})
}

func TestStrings(t *testing.T) {
	long := strings.Repeat("long ", 100)
	for _, typ := range []string{"String", "LowCardinality(String)", "Nullable(String)", "LowCardinality(Nullable(String))"} {
		values{
			`""`: "", `"m"`: "m", `"schön 🏃‍♀️"`: "schön 🏃‍♀️", `"\u00e9\ud83c\udfc3\n\t\"\\\/\b\f\r"`: "é🏃\n\t\"\\/\b\f\r", `"\u0000"`: "\x00",
			`"` + long + `"`: long, `"` + long + `\n"`: long + "\n", `"null"`: "null", `"12345678"`: "12345678", "\"1234567é\"": "1234567é", "\"\u007f\u0080\uffff\"": "\u007f\u0080\uffff",
			`"\uD83C\uDFC3"`: "🏃", "1": "!type", "true": "!type", "[]": "!type", "{}": "!type", "1.50": "!type",
			`"\ud800"`: "!encoding", `"\udc00"`: "!encoding", `"\ud800\ud800"`: "!encoding", `"\ud800x"`: "!encoding", `"\ud800\n"`: "!encoding", `"\udfc3\ud83c"`: "!encoding",
			"\"\xff\"": "!encoding", "\"a\xc3\"": "!encoding", "\"\xed\xa0\x80\"": "!encoding", "\"\xc0\x80\"": "!encoding", "\"\xf4\x90\x80\x80\"": "!encoding", "\"12345678\x80\"": "!encoding",
			"\"\n\"": "!malformed", "\"\x00\"": "!malformed", "\"12345678\x1f\"": "!malformed", `"\u12"`: "!malformed", `"\u12g4"`: "!malformed", `"\U0041"`: "!malformed", `"\a"`: "!malformed", `"\`: "!malformed", `"`: "!malformed", `'x'`: "!malformed",
		}.check(t, typ, Column{})
	}
	values{"null": "!null", "nul": "!malformed"}.check(t, "String", Column{})
	values{"null": "!null"}.check(t, "LowCardinality(String)", Column{})
	values{"null": "NULL", "nulL": "!malformed"}.check(t, "Nullable(String)", Column{})
	values{"null": "NULL", `"NULL"`: "NULL"}.check(t, "LowCardinality(Nullable(String))", Column{})
	values{`"abc"`: "abc", `"ab"`: "!range", `"abcd"`: "!range", `""`: "!range", `"é1"`: "é1", "null": "!null", "123": "!type", `"a\u0000c"`: "a\x00c"}.check(t, "FixedString(3)", Column{})
	values{`"abc"`: "abc", `"ab"`: "!range", "null": "!null"}.check(t, "LowCardinality(FixedString(3))", Column{})
}

func TestUUIDs(t *testing.T) {
	values{
		`"01234567-89ab-cdef-0123-456789abcdef"`: "01234567-89ab-cdef-0123-456789abcdef", `"01234567-89AB-CDEF-0123-456789ABCDEF"`: "01234567-89ab-cdef-0123-456789abcdef",
		`"00000000-0000-0000-0000-000000000000"`: "00000000-0000-0000-0000-000000000000", `"ffffffff-ffff-ffff-ffff-ffffffffffff"`: "ffffffff-ffff-ffff-ffff-ffffffffffff",
		`"0123456789abcdef0123456789abcdef"`: "!format", `"{01234567-89ab-cdef-0123-456789abcdef}"`: "!format", `"01234567-89ab-cdef-0123-456789abcdeg"`: "!format",
		`"01234567_89ab-cdef-0123-456789abcdef"`: "!format", `""`: "!format", "null": "!null", "1": "!type", `"0123456789abcdef0123456789abcdef----"`: "!format",
	}.check(t, "UUID", Column{})
}

func TestAddresses(t *testing.T) {
	values{
		`"192.0.2.1"`: "192.0.2.1", `"0.0.0.0"`: "0.0.0.0", `"255.255.255.255"`: "255.255.255.255", `"192.0.2.01"`: "!format", `"192.0.2"`: "!format", `"192.0.2.256"`: "!format",
		`"::ffff:192.0.2.1"`: "!format", `"::1"`: "!format", `""`: "!format", `"192.0.2.1/24"`: "!format", "3221225985": "!type", "null": "!null",
	}.check(t, "IPv4", Column{})
	values{
		`"2001:db8::1"`: "2001:db8::1", `"::"`: "::", `"::ffff:192.0.2.1"`: "::ffff:192.0.2.1", `"192.0.2.1"`: "::ffff:192.0.2.1", `"2001:0DB8:0:0:1:0:0:1"`: "2001:db8::1:0:0:1",
		`"fe80::1%eth0"`: "!format", `"2001:db8::1::2"`: "!format", `""`: "!format", `"[::1]"`: "!format", "1": "!type", "null": "!null",
	}.check(t, "IPv6", Column{})
}

func TestEnums(t *testing.T) {
	for _, typ := range []string{"Enum8('off' = 0, 'on' = 1, '7' = -3)", "Enum16('off' = 0, 'on' = 1, '7' = -3)"} {
		values{
			`"on"`: "on", `"off"`: "off", "1": "on", "0": "off", "-3": "7", `"7"`: "7", "1.0": "on", "-0": "off",
			`"1"`: "!range", "2": "!range", "-1": "!range", "7": "!range", "65537": "!range", "1.5": "!range", "1e99": "!range", `"ON"`: "!range", `""`: "!range", "null": "!null", "true": "!type",
			`"on "`: "!range", `"\u006fn"`: "on", `"\ud800"`: "!encoding",
		}.check(t, typ, Column{})
	}
	values{`"a"`: "a", "-32768": "a", "32767": "b"}.check(t, "Enum16('a' = -32768, 'b' = 32767)", Column{})
	values{"null": "NULL", `"x"`: "x"}.check(t, "Nullable(Enum8('x' = 5))", Column{})
}

func TestNullables(t *testing.T) {
	for typ, want := range map[string]string{
		"Nullable(UInt64)": "5", "Nullable(Decimal(18, 3))": "5", "Nullable(Int256)": "5", "Nullable(Float64)": "5", "LowCardinality(Nullable(UInt64))": "5",
	} {
		values{"5": want, "null": "NULL", `""`: "!format", "nulls": "!malformed", "[null]": "!type"}.check(t, typ, Column{})
	}
}

func TestNested(t *testing.T) {
	values{
		"[]": "[]", "[1,2,3]": "[1,2,3]", " [ 1 , 2 ] ": "[1,2]", `["7"]`: "[7]", "null": "!null", "1": "!type", "{}": "!type", "[1,null]": "!null", "[1,2": "!malformed", "[1,]": "!malformed", "[,1]": "!malformed", "[1 2]": "!malformed",
		"[256]": "!range", "[[1]]": "!type", "[1,1.5]": "!precision", "[1,2}": "!malformed", "[": "!malformed",
	}.check(t, "Array(UInt8)", Column{})
	values{"[[1],[],[2,3]]": "[[1],[],[2,3]]", "[[1],2]": "!type", "[]": "[]"}.check(t, "Array(Array(UInt8))", Column{})
	values{`["a",null,"it's"]`: `['a',NULL,'it\'s']`, "[null]": "[NULL]", "null": "!null"}.check(t, "Array(Nullable(String))", Column{})
	values{`["a","b","a"]`: "['a','b','a']", "[null]": "!null"}.check(t, "Array(LowCardinality(String))", Column{})
	values{`["a",null,"b"]`: "['a',NULL,'b']"}.check(t, "Array(LowCardinality(Nullable(String)))", Column{})
	values{
		"{}": "{}", `{"a":1,"b":2}`: "{'a':1,'b':2}", ` { "b" : 2 , "a" : 1 } `: "{'b':2,'a':1}", `{"a":1,"a":2}`: "!duplicate", `{"a":1,"\u0061":2}`: "!duplicate", "[]": "!type", "null": "!null",
		`{"a":null}`: "!null", `{"a":"x"}`: "!format", `{a:1}`: "!malformed", `{"a"}`: "!malformed", `{"a":1,}`: "!malformed", `{"a" 1}`: "!malformed", `{`: "!malformed", `{"a":1`: "!malformed", `{1:1}`: "!malformed", `{"":0}`: "{'':0}",
	}.check(t, "Map(String, UInt8)", Column{})
	values{`{"1":1,"2":2}`: "{1:1,2:2}", `{"1":1,"1.0":2}`: "!duplicate", `{"x":1}`: "!format", `{"256":1}`: "!range", `{"":1}`: "!format"}.check(t, "Map(UInt8, UInt8)", Column{})
	values{`{"2026-09-30":[1]}`: "{'2026-09-30':[1]}", `{"2026-09-31":[1]}`: "!time"}.check(t, "Map(Date, Array(UInt8))", Column{})
	values{`{"a":{"x":1,"y":"s"}}`: "{'a':(1,'s')}", `{"a":{"x":1,"y":"s"},"b":{"x":2,"y":"t"}}`: "{'a':(1,'s'),'b':(2,'t')}"}.check(t, "Map(LowCardinality(String), Tuple(x UInt8, y String))", Column{})
	values{
		`[1,"a"]`: "(1,'a')", `[1]`: "!type", `[]`: "!type", `[1,"a",2]`: "!type", `{"1":1}`: "!type", "null": "!null", `[null,"a"]`: "!null", `[1,"a"`: "!malformed", `[1,"a",]`: "!malformed",
	}.check(t, "Tuple(UInt8, String)", Column{})
	values{
		`[1,"a"]`: "(1,'a')", `{"x":1,"y":"a"}`: "(1,'a')", `{"y":"a","x":1}`: "(1,'a')", `{"y":"a","x":1,"z":[1]}`: "(1,'a')", `{"x":1}`: "!missing", `{}`: "!missing", `{"x":1,"x":1,"y":"a"}`: "!duplicate",
		`{"x":1,"\u0078":1,"y":"a"}`: "!duplicate", `{"x":1,"y":"a","z":0,"z":0}`: "!duplicate", `{"x":1,"y":"a"`: "!malformed", `{"x":1,"y":2}`: "!type", `{"x":1,"y":"a","z":"\ud800"}`: "!encoding", "1": "!type", "null": "!null",
	}.check(t, "Tuple(x UInt8, y String)", Column{})
	values{`[{"x":1},{"x":2}]`: "[(1),(2)]", `[{"x":1},{"y":2}]`: "!missing", `[{"x":{}}]`: "!type"}.check(t, "Array(Tuple(x UInt8))", Column{})
	values{`{"a":{"a":{"b":1}}}`: "(((1)))", `{"a":{"a":{}}}`: "!missing"}.check(t, "Tuple(a Tuple(a Tuple(b UInt8)))", Column{})
}

func TestNestedErrorsNameThePlace(t *testing.T) {
	for _, c := range []struct{ typ, value, path, text string }{
		{"Array(Array(UInt8))", "[[1],[2,300]]", "v[1][1]", "300"},
		{"Map(String, Array(UInt8))", `{"a b":[1,-1]}`, `v{"a b"}[1]`, "-1"},
		{"Map(UInt8, UInt8)", `{"300":1}`, "v{key}", `"300"`},
		{"Tuple(x UInt8, y Tuple(z Decimal(9, 2)))", `{"x":1,"y":{"z":0.001}}`, "v.y.z", "0.001"},
		{"Tuple(UInt8, String)", `[1,2]`, "v[1]", "2"},
		{"Array(Tuple(x UInt8, y UInt8))", `[{"x":1,"y":2},{"x":1}]`, "v[1].y", `{"x":1}`},
		{"LowCardinality(FixedString(2))", `"abc"`, "v", `"abc"`},
	} {
		plan := mustCompile(t, single(t, c.typ, Column{}))
		err := plan.Append(plan.NewRows(), []byte(`{"id":1,"version":2,"v":`+c.value+`}`), Lineage{})
		if e, ok := errors.AsType[*Error](err); !ok {
			t.Errorf("%s: %s: %v", c.typ, c.value, err)
		} else if e.Path != c.path || e.Value != c.text || e.Column != "v" {
			t.Errorf("%s: %s: path %q, value %q, want %q, %q", c.typ, c.value, e.Path, e.Value, c.path, c.text)
		}
	}
}
