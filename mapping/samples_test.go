package mapping

import (
	"fmt"
	"testing"
)

// sample is a type and JSON values that it takes: together they cover every
// kind, its ends, and the shapes of the native format.
type sample struct {
	typ     string
	options Column
	values  []string
}

func quoted(texts ...string) []string {
	for i, t := range texts {
		texts[i] = `"` + t + `"`
	}
	return texts
}

// manyStrings returns JSON strings of n different values, some repeated.
func manyStrings(n int) (values []string) {
	for i := range n {
		values = append(values, fmt.Sprintf(`"value %d"`, i), fmt.Sprintf(`"value %d"`, i/2))
	}
	return values
}

func samples() []sample {
	return []sample{
		{typ: "Int8", values: []string{"-128", "127", "0", "-1"}},
		{typ: "Int16", values: []string{"-32768", "32767", "-2"}},
		{typ: "Int32", values: []string{"-2147483648", "2147483647", "-3"}},
		{typ: "Int64", values: []string{"-9223372036854775808", "9223372036854775807", "-4", "1e18"}},
		{typ: "Int128", values: []string{"-170141183460469231731687303715884105728", "170141183460469231731687303715884105727", "-5", "7"}},
		{typ: "Int256", values: []string{"-57896044618658097711785492504343953926634992332820282019728792003956564819968", "57896044618658097711785492504343953926634992332820282019728792003956564819967", "-6", "7"}},
		{typ: "UInt8", values: []string{"0", "255"}},
		{typ: "UInt16", values: []string{"0", "65535"}},
		{typ: "UInt32", values: []string{"0", "4294967295"}},
		{typ: "UInt64", values: []string{"0", "9007199254740993", "18446744073709551615", `"18446744073709551615"`}},
		{typ: "UInt128", values: []string{"0", "340282366920938463463374607431768211455", "18446744073709551616"}},
		{typ: "UInt256", values: []string{"0", "115792089237316195423570985008687907853269984665640564039457584007913129639935", "1e77"}},
		{typ: "Float32", values: []string{"0", "-0", "0.1", "16777217", "3.4e38", "1e-7", "1.5e21", "123456.789", "1e20", "0.000001", "-2.5e-30"}},
		{typ: "Float64", values: []string{"0", "-0", "0.1", "1e308", "5e-324", "1e-7", "1e21", "1e20", "123456.789", "0.000001", "9007199254740993", "-1.5", "100", "1.7976931348623157e308", "0.0000012"}},
		{typ: "Bool", values: []string{"true", "false", "0", "1"}},
		{typ: "String", values: []string{`""`, `"m"`, `"schön 🏃‍♀️"`, `"it's"`, manyStrings(100)[199], `"` + longText + `"`}},
		{typ: "FixedString(3)", values: quoted("abc", "é1", "   ")},
		{typ: "UUID", values: quoted("01234567-89ab-cdef-0123-456789abcdef", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff")},
		{typ: "Date", values: quoted("1970-01-01", "2026-09-30", "2149-06-06")},
		{typ: "Date32", values: quoted("1900-01-01", "1969-12-31", "2026-09-30", "2299-12-31")},
		{typ: "DateTime", values: quoted("1970-01-01T00:00:00Z", "2026-09-30T08:15:00Z", "2106-02-07T06:28:15Z")},
		{typ: "DateTime('Asia/Tokyo')", values: quoted("2026-09-30T08:15:00Z", "2026-12-31T20:00:00Z")},
		{typ: "DateTime64(0)", values: quoted("1900-01-01T00:00:00Z", "2026-09-30T08:15:00Z", "2299-12-31T23:59:59Z")},
		{typ: "DateTime64(3)", values: quoted("1900-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "2026-09-30T08:15:00.250Z", "2299-12-31T23:59:59.999Z")},
		{typ: "DateTime64(6, 'Europe/Zurich')", values: quoted("2026-09-30T08:15:00.123456Z", "2026-01-30T08:15:00Z", "1950-01-01T00:00:00Z")},
		{typ: "DateTime64(9)", values: quoted("1900-01-01T00:00:00Z", "2026-09-30T08:15:00.123456789Z", "2262-04-11T23:47:16.854775807Z")},
		{typ: "DateTime64(3)", options: Column{Zone: "Europe/Zurich"}, values: quoted("2026-09-30T10:15:00", "2026-01-30 10:15:00.5")},
		{typ: "DateTime64(6)", options: Column{Unit: "ms", Round: "half_even"}, values: []string{"1759220100123", "1759220100123.4565"}},
		{typ: "Enum8('off' = 0, 'on' = 1, 'it\\'s' = -3)", values: []string{`"on"`, "0", `"it's"`}},
		{typ: "Enum16('a' = -32768, 'b' = 32767)", values: []string{`"a"`, `"b"`, "-32768"}},
		{typ: "IPv4", values: quoted("0.0.0.0", "192.0.2.1", "255.255.255.255")},
		{typ: "IPv6", values: quoted("::", "::1", "2001:db8::1", "::ffff:192.0.2.1", "192.0.2.1", "1:0:0:2::3", "2001:db8:0:1:1:1:1:1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")},
		{typ: "Decimal(9, 2)", values: []string{"-9999999.99", "9999999.99", "0", "2.5", "-0.01"}},
		{typ: "Decimal(18, 3)", values: []string{"-999999999999999.999", "999999999999999.999", "2.31", "2.310", "6E+2", "100", "64.32", "-0.005"}},
		{typ: "Decimal(38, 10)", values: []string{"-9999999999999999999999999999.9999999999", "0.0000000001", "1e27"}},
		{typ: "Decimal(76, 20)", values: []string{"-99999999999999999999999999999999999999999999999999999999.99999999999999999999", "1e55", "-1e-20"}},
		{typ: "Nullable(UInt64)", values: []string{"null", "5", "null", "0"}},
		{typ: "Nullable(String)", values: []string{"null", `""`, `"null"`}},
		{typ: "Nullable(Decimal(18, 3))", values: []string{"null", "-2.31"}},
		{typ: "Nullable(Enum8('x' = 5))", values: []string{"null", `"x"`}},
		{typ: "Nullable(Date32)", values: []string{"null", `"1950-01-01"`}},
		{typ: "LowCardinality(String)", values: []string{`"m"`, `"s"`, `""`, `"m"`, `"m"`, `"kg"`, `"s"`}},
		{typ: "LowCardinality(String)", values: manyStrings(300)},
		{typ: "LowCardinality(Nullable(String))", values: []string{`"m"`, "null", `""`, "null", `"m"`}},
		{typ: "LowCardinality(Nullable(String))", values: []string{"null", "null"}},
		{typ: "LowCardinality(FixedString(2))", values: quoted("aa", "bb", "aa")},
		{typ: "LowCardinality(UInt64)", values: []string{"5", "0", "5", "18446744073709551615"}},
		{typ: "LowCardinality(Nullable(UUID))", values: []string{"null", `"01234567-89ab-cdef-0123-456789abcdef"`}},
		{typ: "LowCardinality(Date)", values: quoted("2026-09-30", "1970-01-01", "2026-09-30")},
		{typ: "Array(UInt32)", values: []string{"[]", "[1,2,3]", "[4294967295]", "[]"}},
		{typ: "Array(String)", values: []string{`["a","it's"]`, "[]", `["\n\t\\"]`, `["\b\f\r\u0000\u0001"]`}},
		{typ: "Array(Nullable(String))", values: []string{`["a",null]`, "[]", "[null]"}},
		{typ: "Array(LowCardinality(String))", values: []string{`["a","b","a"]`, "[]", `["b"]`}},
		{typ: "Array(LowCardinality(String))", values: []string{"[]", "[]", "[]"}},
		{typ: "Array(LowCardinality(Nullable(String)))", values: []string{`["a",null]`, "[]", "[null]"}},
		{typ: "Array(Array(Int16))", values: []string{"[[1],[],[2,3]]", "[]", "[[]]"}},
		{typ: "Array(DateTime64(3))", values: []string{`["2026-09-30T08:15:00.250Z"]`, "[]"}},
		{typ: "Map(String, UInt64)", values: []string{`{"a":1,"b":2}`, "{}", `{"c":18446744073709551615}`}},
		{typ: "Map(LowCardinality(String), Array(Nullable(UUID)))", values: []string{`{"a":[null,"01234567-89ab-cdef-0123-456789abcdef"]}`, "{}", `{"b":[],"a":[]}`}},
		{typ: "Map(Date, LowCardinality(String))", values: []string{`{"2026-09-30":"x","2026-10-01":"y"}`, "{}"}},
		{typ: "Map(Int32, Map(String, Bool))", values: []string{`{"-1":{"x":true},"2":{}}`, "{}"}},
		{typ: "Tuple(UInt8, String)", values: []string{`[1,"a"]`, `[2,"it's"]`}},
		{typ: "Tuple(x Nullable(UInt8), y Array(LowCardinality(String)), z Tuple(w Decimal(9, 2)))", values: []string{`{"x":1,"y":["a"],"z":{"w":2.5}}`, `{"z":{"w":-1},"y":[],"x":null}`}},
		{typ: "Array(Tuple(a IPv4, b Enum8('x' = 1)))", values: []string{`[{"a":"192.0.2.1","b":"x"}]`, "[]", `[["0.0.0.0",1],{"b":"x","a":"1.1.1.1"}]`}},
	}
}

// longText needs two bytes of length.
var longText = func() (s string) {
	for i := range 30 {
		s += fmt.Sprintf("part %02d of it ", i)
	}
	return s
}()

// rowsOf returns the rows of a sample.
func (s sample) rowsOf(t testing.TB) *Rows {
	t.Helper()
	plan := mustCompile(t, single(t, s.typ, s.options))
	rows := plan.NewRows()
	for i, value := range s.values {
		if err := plan.Append(rows, fmt.Appendf(nil, `{"id":%d,"version":1,"v":%s}`, i, value), Lineage{Topic: "t", Offset: int64(i)}); err != nil {
			t.Fatalf("%s: %s: %v", s.typ, value, err)
		}
	}
	return rows
}
