package mapping

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/ClickHouse/ch-go/proto"
)

var update = flag.Bool("update", false, "write the golden files anew")

// decoder returns ch-go's column for a type, nil if ch-go has none.
func decoder(typ string) proto.Column {
	switch typ {
	case "Map(String, UInt64)":
		return proto.NewMap[string, uint64](new(proto.ColStr), new(proto.ColUInt64))
	case "Map(LowCardinality(String), Array(Nullable(UUID)))":
		return proto.NewMap(new(proto.ColStr).LowCardinality(), proto.NewArray(new(proto.ColUUID).Nullable()))
	case "Tuple(UInt8, String)":
		return proto.ColTuple{new(proto.ColUInt8), new(proto.ColStr)}
	case "Array(LowCardinality(String))":
		return proto.NewArray(new(proto.ColStr).LowCardinality())
	}
	auto := new(proto.ColAuto)
	if err := auto.Infer(proto.ColumnType(typ)); err != nil {
		return nil
	}
	return auto.Data
}

// ch-go, which knows the format from elsewhere, reads exactly the bytes that
// are there, and writes the same again.
func TestNativeAgainstAnotherDecoder(t *testing.T) {
	read := 0
	for _, s := range samples() {
		rows := s.rowsOf(t)
		v := rows.Columns()[2]
		n := rows.Len()
		for _, cut := range [][2]int{{0, n}, {0, 1}, {1, n}, {n - 1, n}, {0, n / 2}, {n / 2, n}, {0, 0}, {n, n}} {
			column := decoder(s.typ)
			if column == nil {
				break
			}
			native := v.AppendNative(v.AppendState(nil), cut[0], cut[1])
			source := bytes.NewReader(native)
			reader := proto.NewReader(source)
			if d, ok := column.(proto.StateDecoder); ok {
				if err := d.DecodeState(reader); err != nil {
					t.Fatalf("%s: rows %v: state: %v", s.typ, cut, err)
				}
			}
			if err := column.DecodeColumn(reader, cut[1]-cut[0]); err != nil {
				t.Fatalf("%s: rows %v: %v", s.typ, cut, err)
			}
			if rest, _ := io.ReadAll(reader); len(rest) > 0 || column.Rows() != cut[1]-cut[0] {
				t.Fatalf("%s: rows %v: %d rows read and %d bytes left", s.typ, cut, column.Rows(), len(rest))
			}
			read++
			if strings.Contains(s.typ, "LowCardinality") {
				continue // ch-go would order the dictionary in its own way
			}
			var again proto.Buffer
			column.EncodeColumn(&again)
			if !bytes.Equal(again.Buf, native) {
				t.Fatalf("%s: rows %v: ch-go writes %x, we wrote %x", s.typ, cut, again.Buf, native)
			}
		}
	}
	if read < 300 {
		t.Errorf("ch-go read only %d columns", read)
	}
}

// The width of the keys changes as the dictionary grows.
func TestLowCardinalityAgainstAnotherDecoder(t *testing.T) {
	values := manyStrings(65_600)
	c := newLowCardinality(mustType(t, "String"), &options{})
	var s scanner
	for _, n := range []int{1, 2, 511, 512, 513, 1000, 131_071, 131_072, 131_073, len(values)} {
		for i := c.len(); i < n; i++ {
			if s.begin([]byte(values[i])); !c.appendJSON(&s) {
				t.Fatal(s.reason)
			}
		}
		column := new(proto.ColStr).LowCardinality()
		reader := proto.NewReader(bytes.NewReader(c.appendNative(c.appendState(nil), 0, n)))
		if err := column.DecodeState(reader); err != nil {
			t.Fatal(err)
		}
		if err := column.DecodeColumn(reader, n); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < n; i += 1 + n/1000 {
			if got, want := `"`+column.Row(i)+`"`, values[i]; got != want {
				t.Fatalf("of %d rows, row %d is %s, want %s", n, i, got, want)
			}
		}
	}
}

// The bytes of every type, against those that a server once read: see
// TestServerReadsTheSameValues.
func TestNativeGolden(t *testing.T) {
	var b strings.Builder
	for _, s := range samples() {
		rows := s.rowsOf(t)
		v := rows.Columns()[2]
		n := min(rows.Len(), 8)
		fmt.Fprintf(&b, "%s\n  state %s\n", s.typ, hex.EncodeToString(v.AppendState(nil)))
		if len(s.values) <= 8 {
			fmt.Fprintf(&b, "  all   %s\n", hex.EncodeToString(v.AppendNative(nil, 0, n)))
			fmt.Fprintf(&b, "  last  %s\n", hex.EncodeToString(v.AppendNative(nil, n-1, n)))
		}
	}
	const file = "testdata/native.golden"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the native bytes changed; if a server reads them, run go test ./mapping -run Golden -update")
	}
}
