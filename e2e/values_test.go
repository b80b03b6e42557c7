package e2e

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// value is one value on its way through everything: as it stands in the event, and as the server must print it.
type value struct{ name, column, json, want string }

// plain are columns without options, by their type.
func plain(name, kind, json, want string) value {
	return value{name, fmt.Sprintf("type: %q", kind), json, want}
}

// values has every supported type and every value that somebody's consumer has changed in silence.
var values = []value{
	plain("a decimal with the scale it is written in", "Decimal(18, 3)", `2.31`, "2.31"),
	plain("the same with another zero", "Decimal(18, 3)", `2.310`, "2.31"),
	plain("an exponent", "Decimal(18, 3)", `6E+2`, "600"),
	plain("a whole number for a decimal", "Decimal(18, 3)", `100`, "100"),
	plain("a small negative decimal", "Decimal(18, 4)", `-0.0005`, "-0.0005"),
	plain("a decimal that binary has not", "Decimal(18, 2)", `64.32`, "64.32"),
	plain("4.35, which the server's own cast makes 4.34", "Decimal(18, 2)", `4.35`, "4.35"),
	plain("a decimal in a text", "Decimal(18, 3)", `"64.320"`, "64.32"),
	plain("the largest decimal of 9 digits", "Decimal(9, 9)", `-0.999999999`, "-0.999999999"),
	plain("the largest decimal of 38 digits", "Decimal(38, 10)", `9999999999999999999999999999.9999999999`, "9999999999999999999999999999.9999999999"),
	plain("the largest decimal of 76 digits", "Decimal(76, 0)", strings.Repeat("9", 76), strings.Repeat("9", 76)),

	plain("2^53+1, which a float has not", "UInt64", `9007199254740993`, "9007199254740993"),
	plain("the largest UInt64", "UInt64", `18446744073709551615`, "18446744073709551615"),
	plain("a large number in a text", "UInt64", `"18446744073709551615"`, "18446744073709551615"),
	plain("the least Int8", "Int8", `-128`, "-128"),
	plain("the least Int16", "Int16", `-32768`, "-32768"),
	plain("the least Int32", "Int32", `-2147483648`, "-2147483648"),
	plain("the least Int64", "Int64", `-9223372036854775808`, "-9223372036854775808"),
	plain("the least Int128", "Int128", `-170141183460469231731687303715884105728`, "-170141183460469231731687303715884105728"),
	plain("a negative Int256", "Int256", `-1e76`, "-1"+strings.Repeat("0", 76)),
	plain("the largest UInt8", "UInt8", `255`, "255"),
	plain("the largest UInt16", "UInt16", `65535`, "65535"),
	plain("the largest UInt32", "UInt32", `4294967295`, "4294967295"),
	plain("the largest UInt128", "UInt128", `340282366920938463463374607431768211455`, "340282366920938463463374607431768211455"),
	plain("a large UInt256", "UInt256", `1e77`, "1"+strings.Repeat("0", 77)),
	plain("a float of 64 bits", "Float64", `0.1`, "0.1"),
	plain("a float of 32 bits", "Float32", `-1.5e-7`, "-1.5e-7"),
	plain("negative zero", "Float64", `-0.0`, "-0"),
	plain("a boolean", "Bool", `true`, "true"),

	plain("a time in UTC", "DateTime64(3, 'UTC')", `"2026-09-30T08:15:00.250Z"`, "2026-09-30 08:15:00.250"),
	plain("a time with an offset", "DateTime64(3, 'UTC')", `"2026-09-30T10:15:00.25+02:00"`, "2026-09-30 08:15:00.250"),
	plain("a time shown in another zone", "DateTime64(6, 'Asia/Shanghai')", `"2026-09-30T08:15:00.123456Z"`, "2026-09-30 16:15:00.123456"),
	{"a local time with its zone", `type: "DateTime64(0, 'UTC')", zone: Europe/Zurich`, `"2026-01-31T09:00:00"`, "2026-01-31 08:00:00"},
	{"the first of two equal local times", `type: "DateTime64(3, 'UTC')", zone: Europe/Zurich`, `"2026-10-25T02:30:00+02:00"`, "2026-10-25 00:30:00.000"},
	{"the second of them", `type: "DateTime64(3, 'UTC')", zone: Europe/Zurich`, `"2026-10-25T02:30:00+01:00"`, "2026-10-25 01:30:00.000"},
	{"milliseconds since 1970", `type: "DateTime64(3, 'UTC')", unit: ms`, `1759220100250`, "2025-09-30 08:15:00.250"},
	{"nanoseconds since 1970", `type: "DateTime64(9, 'UTC')", unit: ns`, `1759220100250000001`, "2025-09-30 08:15:00.250000001"},
	plain("a time before 1970", "DateTime64(3, 'UTC')", `"1930-05-01T00:00:00.001Z"`, "1930-05-01 00:00:00.001"),
	plain("the last second of DateTime", "DateTime('UTC')", `"2106-02-07T06:28:15Z"`, "2106-02-07 06:28:15"),
	plain("the last Date", "Date", `"2149-06-06"`, "2149-06-06"),
	plain("the first Date32", "Date32", `"1900-01-01"`, "1900-01-01"),

	plain("an empty text", "String", `""`, ""),
	plain("an empty text beside NULL", "Nullable(String)", `""`, ""),
	plain("NULL", "Nullable(String)", `null`, "NULL"),
	plain("the text NULL", "Nullable(String)", `"NULL "`, "NULL "),
	plain("emoji", "String", `"🏃🏽‍♀️ "`, "🏃🏽‍♀️ "),
	plain("emoji, escaped", "String", `"\ud83c\udfc3"`, "🏃"),
	plain("a composed accent", "String", `"Zo\u00eb"`, "Zo\u00eb"),
	plain("a decomposed accent", "String", `"Zoe\u0308"`, "Zoe\u0308"),
	plain("what separates lines and cells", "String", `"a\tb\nc\\d\"e'f\u0000g\r"`, "a\tb\nc\\d\"e'f\x00g\r"),
	plain("an empty text in a dictionary", "LowCardinality(String)", `""`, ""),
	plain("NULL in a dictionary", "LowCardinality(Nullable(String))", `null`, "NULL"),
	plain("a fixed text", "FixedString(4)", `"ä\u0000b"`, "ä\x00b"),
	plain("a name", "Enum8('run' = -1, 'jump' = 2)", `"jump"`, "jump"),
	plain("a name by its number", "Enum16('run' = -1000, 'jump' = 2)", `-1000`, "run"),
	plain("a UUID", "UUID", `"01234567-89AB-cdef-0123-456789abcdef"`, "01234567-89ab-cdef-0123-456789abcdef"),
	plain("an IPv4", "IPv4", `"192.0.2.1"`, "192.0.2.1"),
	plain("an IPv6", "IPv6", `"2001:DB8::1"`, "2001:db8::1"),

	plain("an empty array", "Array(UInt8)", `[]`, "[]"),
	plain("an array", "Array(Nullable(Decimal(9, 2)))", `[1.5, null, 2.25]`, "[1.5,NULL,2.25]"),
	plain("an array of arrays", "Array(Array(String))", `[["a"], [], ["b", ""]]`, "[['a'],[],['b','']]"),
	plain("a map", "Map(LowCardinality(String), UInt64)", `{"a": 1, "b": 18446744073709551615}`, "{'a':1,'b':18446744073709551615}"),
	plain("a tuple", "Tuple(x Int64, y Nullable(String))", `{"y": null, "x": -1}`, "(-1,NULL)"),
}

// TestExactValues sends all of it in one event and reads it back as bytes.
func TestExactValues(t *testing.T) {
	t.Parallel()
	var config, event strings.Builder
	config.WriteString(`
projections:
  - name: fitness_results
    topics: [fitness-results]
    table: fitness_results
    identity: [id]
    order_by: [id]
    version: version
    columns:
      - {name: id, from: id, type: UInt64}
      - {name: version, from: version, type: UInt64}
`)
	for i, v := range values {
		fmt.Fprintf(&config, "      - {name: c%d, from: deep.c%d, %s}\n", i, i, v.column)
		fmt.Fprintf(&event, `,"c%d":%s`, i, v.json)
	}
	w := newWorld(t, setup{config: config.String()})
	w.apply()
	p := w.start("projector")
	// Ids that a float would make one, and that a signed number has not.
	ids := []string{"9007199254740992", "9007199254740993", "18446744073709551614", "18446744073709551615"}
	for _, id := range ids {
		w.produce(&kgo.Record{Value: fmt.Appendf(nil, `{"id":%s,"version":18446744073709551615,"deep":{%s}}`, id, event.String()[1:])})
	}
	w.settle()
	w.intact()
	if got := w.ask("SELECT arrayStringConcat(groupArray(toString(id)), ' ') FROM (SELECT id FROM fitness_results_current ORDER BY id)"); got != strings.Join(ids, " ") {
		t.Errorf("ids %s, want %s", got, ids)
	}
	for i, v := range values {
		read := fmt.Sprintf("SELECT hex(ifNull(toString(c%d), 'NULL')) FROM fitness_results_current GROUP BY ALL", i)
		if got, want := w.ask(read), strings.ToUpper(hex.EncodeToString([]byte(v.want))); got != want {
			text, _ := hex.DecodeString(got)
			t.Errorf("%s: %s in the event became %q, want %q", v.name, v.json, text, v.want)
		}
	}
	p.drain()
}
