package mapping

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/chprojector/projector/chschema"
)

func mustType(t testing.TB, text string) chschema.Type {
	t.Helper()
	typ, err := chschema.ParseType(text)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// fitness is the projection of the sample configuration.
func fitness(t testing.TB) Spec {
	t.Helper()
	spec := Spec{
		Identity:      []string{"data_id"},
		Version:       "version",
		Deleted:       "is_deleted",
		SchemaVersion: SchemaVersion{From: "schemaVersion", Accept: []int64{1}},
		Generation:    1,
	}
	for _, c := range [][3]string{
		{"data_id", "dataId", "UInt64"},
		{"detect_id", "detectId", "UInt64"},
		{"user_id", "userId", "UInt64"},
		{"project_id", "projectId", "UInt32"},
		{"version", "version", "UInt64"},
		{"result", "result", "Decimal(18, 3)"},
		{"unit", "unit", "LowCardinality(String)"},
		{"is_deleted", "isDeleted", "Bool"},
		{"event_id", "eventId", "String"},
	} {
		spec.Columns = append(spec.Columns, Column{Name: c[0], From: c[1], Type: mustType(t, c[2])})
	}
	return spec
}

func mustCompile(t testing.TB, spec Spec) *Plan {
	t.Helper()
	plan, err := Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

const fitnessEvent = `{"schemaVersion":1,"dataId":9007199254740993,"detectId":418,"userId":120034,"projectId":12,"version":1759223412123,"result":2.31,"unit":"m","isDeleted":false,"eventId":"0198c1a2-7b0e"}`

func TestAppendFitness(t *testing.T) {
	plan := mustCompile(t, fitness(t))
	rows := plan.NewRows()
	at := Lineage{Topic: "fitness-results", Partition: 3, Offset: 17, Timestamp: time.UnixMilli(1_780_000_000_123).UTC(), Origin: "stream"}
	if err := plan.Append(rows, []byte(fitnessEvent), at); err != nil {
		t.Fatal(err)
	}
	if rows.Len() != 1 {
		t.Fatalf("%d rows", rows.Len())
	}
	for column, want := range map[string]string{
		"data_id": "9007199254740993", "detect_id": "418", "user_id": "120034", "project_id": "12", "version": "1759223412123",
		"result": "2.31", "unit": "m", "is_deleted": "false", "event_id": "0198c1a2-7b0e",
		"_topic": "fitness-results", "_partition": "3", "_offset": "17", "_origin": "stream", "_generation": "1",
	} {
		if got := rows.Format(0, column); got != want {
			t.Errorf("%s = %q, want %q", column, got, want)
		}
	}
	if got := rows.Lineage(0); got != at {
		t.Errorf("lineage %+v, want %+v", got, at)
	}
	if got := rows.Identity(0); got != "data_id=9007199254740993" {
		t.Errorf("identity %q", got)
	}
}

// event is the fitness event with one field's text replaced; an empty text
// leaves the field out.
func event(field, text string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(strings.Trim(fitnessEvent, "{}"), ",") {
		if name, _, _ := strings.Cut(part, ":"); name == `"`+field+`"` {
			if part = name + ":" + text; text == "" {
				continue
			}
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(part)
	}
	return "{" + b.String() + "}"
}

func TestAppendRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		value string
		want  Error
	}{
		{"out of range", event("projectId", "4294967296"), Error{Class: ClassRange, Column: "project_id", Path: "projectId", Value: "4294967296", Reason: "out of the range of UInt32, 0 to 4294967295"}},
		{"negative identity", event("dataId", "-1"), Error{Class: ClassRange, Column: "data_id", Path: "dataId", Value: "-1", Reason: "out of the range of UInt64, 0 to 18446744073709551615"}},
		{"decimals in an integer", event("userId", "12.5"), Error{Class: ClassPrecision, Column: "user_id", Path: "userId", Value: "12.5", Reason: "not a whole number, but the column is UInt64"}},
		{"lost decimals", event("result", "2.3105"), Error{Class: ClassPrecision, Column: "result", Path: "result", Value: "2.3105", Reason: "more than 3 decimals, but the column is Decimal(18, 3); round: half_even would allow it"}},
		{"decimal out of range", event("result", "1e15"), Error{Class: ClassRange, Column: "result", Path: "result", Value: "1e15", Reason: "more than 15 digits before the point, but the column is Decimal(18, 3)"}},
		{"NaN as a text", event("result", `"NaN"`), Error{Class: ClassFormat, Column: "result", Path: "result", Value: `"NaN"`, Reason: "this text is not a decimal number"}},
		{"NaN", event("result", "NaN"), Error{Class: ClassMalformed, Value: `rId":120034,"projectId":12,"version":1759223412123,"result":NaN,"unit":"m","isDe`, Reason: "not JSON: at byte 124 where a value was expected"}},
		{"null", event("unit", "null"), Error{Class: ClassNull, Column: "unit", Path: "unit", Value: "null", Reason: "null where a string was expected; only a Nullable takes it, but the column is LowCardinality(String)"}},
		{"wrong type", event("unit", "{}"), Error{Class: ClassType, Column: "unit", Path: "unit", Value: "{}", Reason: "an object where a string was expected, because the column is LowCardinality(String)"}},
		{"empty string for a number", event("result", `""`), Error{Class: ClassFormat, Column: "result", Path: "result", Value: `""`, Reason: "an empty string is not a decimal number"}},
		{"missing field", event("result", ""), Error{Class: ClassMissing, Column: "result", Path: "result", Reason: "the field is missing and the column has no default"}},
		{"missing last field", event("eventId", ""), Error{Class: ClassMissing, Column: "event_id", Path: "eventId", Reason: "the field is missing and the column has no default"}},
		{"duplicate field", `{"result":1,` + fitnessEvent[1:], Error{Class: ClassDuplicate, Column: "result", Path: "result", Value: `"result"`, Reason: "the name occurs twice in one object"}},
		{"duplicate field in another spelling", `{"\u0072esult":1,` + fitnessEvent[1:], Error{Class: ClassDuplicate, Column: "result", Path: "result", Value: `"result"`, Reason: "the name occurs twice in one object"}},
		{"duplicate unknown field", `{"x":1,"x":1,` + fitnessEvent[1:], Error{Class: ClassDuplicate, Path: "x", Value: `"x"`, Reason: "the name occurs twice in one object"}},
		{"duplicate field within an unknown one", `{"x":[{"y":1,"y":1}],` + fitnessEvent[1:], Error{Class: ClassDuplicate, Path: "x", Value: `"y"`, Reason: "the name occurs twice in one object"}},
		{"lone surrogate", event("unit", `"\ud83c"`), Error{Class: ClassEncoding, Column: "unit", Path: "unit", Value: `"\ud83c"`, Reason: "a lone surrogate at byte 137: half of a UTF-16 pair is no character"}},
		{"invalid UTF-8", event("unit", "\"a\xff\""), Error{Class: ClassEncoding, Column: "unit", Path: "unit", Value: "\"a\uFFFD\"", Reason: "invalid UTF-8 at byte 138"}},
		{"invalid UTF-8 in an unknown field", "{\"x\":\"\xff\"," + fitnessEvent[1:], Error{Class: ClassEncoding, Path: "x", Value: "\"\uFFFD\"", Reason: "invalid UTF-8 at byte 6"}},
		{"truncated", fitnessEvent[:120], Error{Class: ClassMalformed, Value: fitnessEvent[60:120], Reason: "truncated: the text ends after byte 120 where the end of a string was expected"}},
		{"truncated within a text", fitnessEvent[:len(fitnessEvent)-3], Error{Class: ClassMalformed, Value: fitnessEvent[len(fitnessEvent)-63 : len(fitnessEvent)-3], Reason: "truncated: the text ends after byte 181 where the end of a string was expected"}},
		{"trailing garbage", fitnessEvent + " x", Error{Class: ClassMalformed, Value: fitnessEvent[len(fitnessEvent)-59:] + " x", Reason: "not JSON: bytes after the end of the value at byte 185"}},
		{"two events", fitnessEvent + fitnessEvent, Error{Class: ClassMalformed, Value: fitnessEvent[len(fitnessEvent)-60:] + fitnessEvent[:20], Reason: "not JSON: bytes after the end of the value at byte 184"}},
		{"empty value", "", Error{Class: ClassEmpty, Reason: "the value has no bytes; a tombstone would have no value at all"}},
		{"white space", " \n", Error{Class: ClassMalformed, Value: " \n", Reason: "truncated: the text ends after byte 2 where a value was expected"}},
		{"the text null", "null", Error{Class: ClassType, Value: "null", Reason: "null where a JSON object was expected"}},
		{"an array", "[" + fitnessEvent + "]", Error{Class: ClassType, Value: "[" + fitnessEvent + "]", Reason: "an array where a JSON object was expected"}},
		{"a byte order mark", "\uFEFF" + fitnessEvent, Error{Class: ClassMalformed, Value: "\uFEFF" + fitnessEvent[:17], Reason: "not JSON: at byte 0 where a value was expected"}},
		{"unknown schema version", event("schemaVersion", "2"), Error{Class: ClassSchemaVersion, Path: "schemaVersion", Value: "2", Reason: "unknown schema version; accepted is 1"}},
		{"schema version of another type", event("schemaVersion", "null"), Error{Class: ClassSchemaVersion, Path: "schemaVersion", Value: "null", Reason: "null where an integer was expected"}},
		{"schema version with decimals", event("schemaVersion", "1.5"), Error{Class: ClassSchemaVersion, Path: "schemaVersion", Value: "1.5", Reason: "unknown schema version; accepted is 1"}},
		{"no schema version", event("schemaVersion", ""), Error{Class: ClassSchemaVersion, Path: "schemaVersion", Reason: "the event does not say its schema version; accepted is 1"}},
		{"empty object", "{}", Error{Class: ClassSchemaVersion, Path: "schemaVersion", Reason: "the event does not say its schema version; accepted is 1"}},
		{
			"an unknown schema version explains a wrong value before it",
			`{"dataId":{},"schemaVersion":2}`,
			Error{Class: ClassSchemaVersion, Path: "schemaVersion", Value: "2", Reason: "unknown schema version; accepted is 1"},
		},
		{
			"broken JSON explains a wrong value before it",
			`{"dataId":{},"schemaVersion":2`,
			Error{Class: ClassMalformed, Value: `{"dataId":{},"schemaVersion":2`, Reason: "truncated: the text ends after byte 30 where ',' or '}' was expected"},
		},
		{"nested too deep", `{"x":` + strings.Repeat("[", 128) + strings.Repeat("]", 128) + "}", Error{Class: ClassMalformed, Value: strings.Repeat("[", 61) + strings.Repeat("]", 19), Reason: "nested deeper than 128 objects and arrays"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := mustCompile(t, fitness(t))
			rows := plan.NewRows()
			good := func(offset int64) {
				if err := plan.Append(rows, []byte(fitnessEvent), Lineage{Topic: "t", Offset: offset, Timestamp: time.UnixMilli(offset)}); err != nil {
					t.Fatal(err)
				}
			}
			good(1)
			before := encode(rows)
			err := plan.Append(rows, []byte(c.value), Lineage{Topic: "other", Offset: 2, Timestamp: time.UnixMilli(2)})
			var got *Error
			if !errors.As(err, &got) {
				t.Fatalf("got %v, want class %s", err, c.want.Class)
			}
			want := c.want
			want.Value = excerpt([]byte(want.Value))
			if diff := cmp.Diff(want, *got); diff != "" {
				t.Error(diff)
			}
			if rows.Len() != 1 || encode(rows) != before {
				t.Error("the refused event left a trace")
			}
			good(3)
			if rows.Len() != 2 || rows.Lineage(1) != (Lineage{Topic: "t", Offset: 3, Timestamp: time.UnixMilli(3).UTC()}) {
				t.Error("the next event did not become the next row")
			}
			if rows.UnknownFields() != 0 {
				t.Errorf("%d unknown fields counted, want those of rows only", rows.UnknownFields())
			}
		})
	}
}

func TestTombstones(t *testing.T) {
	spec := fitness(t)
	plan := mustCompile(t, spec)
	rows := plan.NewRows()
	var e *Error
	if err := plan.Append(rows, nil, Lineage{}); !errors.As(err, &e) || e.Class != ClassTombstone {
		t.Errorf("a tombstone: %v", err)
	}
	if err := plan.Append(rows, []byte{}, Lineage{}); !errors.As(err, &e) || e.Class != ClassEmpty {
		t.Errorf("no bytes: %v", err)
	}
	spec.IgnoreNull = true
	plan = mustCompile(t, spec)
	rows = plan.NewRows()
	if err := plan.Append(rows, nil, Lineage{}); !errors.Is(err, ErrIgnored) {
		t.Errorf("an ignored tombstone: %v", err)
	}
	if err := plan.Append(rows, []byte{}, Lineage{}); !errors.As(err, &e) || e.Class != ClassEmpty {
		t.Errorf("no bytes are no tombstone: %v", err)
	}
	if err := plan.Append(rows, []byte("null"), Lineage{}); !errors.As(err, &e) || e.Class != ClassType {
		t.Errorf("the text null is no tombstone: %v", err)
	}
	if rows.Len() != 0 {
		t.Errorf("%d rows", rows.Len())
	}
}

func TestFieldsInAnyOrder(t *testing.T) {
	plan := mustCompile(t, fitness(t))
	rows := plan.NewRows()
	parts := strings.Split(strings.Trim(fitnessEvent, "{}"), ",")
	rapid.Check(t, func(t *rapid.T) {
		n := rows.Len()
		order := rapid.Permutation(parts).Draw(t, "order")
		space := rapid.SampledFrom([]string{"", " ", "\n\t", "\r\n  "})
		var b strings.Builder
		b.WriteString(space.Draw(t, "space") + "{")
		unknown := rows.UnknownFields()
		for i, part := range order {
			if i > 0 {
				b.WriteString(space.Draw(t, "space") + ",")
			}
			if rapid.IntRange(0, 9).Draw(t, "extra") == 0 {
				fmt.Fprintf(&b, `"extra %d":{"dataId":[%d]},`, i, i)
				unknown++
			}
			name, value, _ := strings.Cut(part, ":")
			if rapid.Bool().Draw(t, "escaped") {
				name = fmt.Sprintf(`"\u%04x%s`, name[1], name[2:])
			}
			b.WriteString(space.Draw(t, "space") + name + space.Draw(t, "space") + ":" + space.Draw(t, "space") + value)
		}
		b.WriteString("}" + space.Draw(t, "space"))
		if err := plan.Append(rows, []byte(b.String()), Lineage{}); err != nil {
			t.Fatalf("%s: %v", b.String(), err)
		}
		for _, c := range rows.data {
			if n > 0 && !c.equal(0, n) {
				t.Fatalf("%s became another row", b.String())
			}
		}
		if rows.UnknownFields() != unknown {
			t.Fatalf("%s: %d unknown fields, want %d", b.String(), rows.UnknownFields(), unknown)
		}
	})
}
