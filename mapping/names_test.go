package mapping

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// Names are told apart in objects of any size, with objects of any size
// between them, as jsontext tells them apart.
func TestDuplicateNames(t *testing.T) {
	var s scanner // one for all texts, as in Rows
	rapid.Check(t, func(t *rapid.T) {
		var object func(depth int) string
		object = func(depth int) string {
			var b strings.Builder
			n := rapid.SampledFrom([]int{0, 1, 2, fewNames - 1, fewNames, fewNames + 1, 100}).Draw(t, "names")
			duplicate := rapid.IntRange(-20, n).Draw(t, "duplicate")
			for i := range n {
				if i > 0 {
					b.WriteByte(',')
				}
				number := i
				if i == duplicate {
					number = rapid.IntRange(0, i).Draw(t, "again")
				}
				form := rapid.SampledFrom([]string{"%d", "n%d", "name %d of the object", "%d is a number"}).Draw(t, "form")
				fmt.Fprintf(&b, "%q:", fmt.Sprintf(form, number))
				if depth < 3 && i%7 == 3 {
					b.WriteString(object(depth + 1))
				} else {
					b.WriteByte('1')
				}
			}
			return "{" + b.String() + "}"
		}
		text := []byte(object(0))
		s.begin(text)
		ok := s.skip() && s.end()
		if want := jsontext.Value(text).IsValid(); ok != want {
			t.Fatalf("%s: accepted %t (%s), jsontext says %t", text, ok, s.reason, want)
		}
		if ok && (len(s.names.names) > 0 || len(s.names.arena) > 0) {
			t.Fatalf("%s: %d names left", text, len(s.names.names))
		}
	})
}

// Names of earlier texts stay forgotten when their epochs come round again.
func TestNameTableEpochs(t *testing.T) {
	var s scanner
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, `%q:1,`, fmt.Sprint("name ", i))
	}
	text := []byte("{" + strings.TrimSuffix(b.String(), ",") + "}")
	s.begin(text)
	if !s.skip() {
		t.Fatal(s.reason)
	}
	s.names.table.epoch = math.MaxUint32 - 1 // as after four billion texts
	for i := range 4 {
		if s.begin(text); !s.skip() {
			t.Fatalf("text %d: %s", i, s.reason)
		}
	}
}

// An event with very many names does not cost its memory for ever: three
// batches of each lane would keep it, and no limit counts it.
func TestNamesKeepLittleMemory(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"id":1,"version":1,"x":"x"`)
	for i := range 50_000 {
		fmt.Fprintf(&b, `,"\u0061%x":1`, i)
	}
	b.WriteByte('}')
	rows, err := one(t, Column{Name: "x", From: "x", Type: mustType(t, "String")}, b.String())
	if err != nil {
		t.Fatal(err)
	}
	rows.Reset()
	n := &rows.scan.names
	if kept := 32*len(n.table.slots) + 16*cap(n.names) + cap(n.arena); kept > 1<<20 {
		t.Errorf("%d bytes are kept", kept)
	}
}
