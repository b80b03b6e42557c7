package mapping

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// ErrIgnored says that a tombstone (an event without a value) was passed over
// because the configuration says so. No row was appended.
var ErrIgnored = errors.New("tombstone ignored by configuration")

// Class is the kind of reason why an event could not be mapped. The set is
// bounded, so a Class may label a metric.
type Class string

// The classes. They are part of the public face: they appear in the headers
// of dead letters and in metrics.
const (
	ClassMalformed     Class = "malformed"      // not JSON: syntax, truncated, trailing bytes, nested too deep
	ClassEncoding      Class = "encoding"       // invalid UTF-8 or a lone surrogate
	ClassDuplicate     Class = "duplicate"      // a name twice in one object, a key twice in one Map
	ClassTombstone     Class = "tombstone"      // the event has no value
	ClassEmpty         Class = "empty"          // the value has no bytes
	ClassSchemaVersion Class = "schema_version" // the event's schema version is missing or not accepted
	ClassMissing       Class = "missing"        // a column's field is not there and has no default
	ClassNull          Class = "null"           // null for a column that cannot be NULL
	ClassType          Class = "type"           // another JSON type than the column reads
	ClassFormat        Class = "format"         // a text that is not what the column's type reads
	ClassRange         Class = "range"          // a value that the column's type does not have
	ClassPrecision     Class = "precision"      // digits that the column cannot keep
	ClassTime          Class = "time"           // a time that does not exist, or is not one instant
	ClassUnknownField  Class = "unknown_field"  // a field that no column reads, refused by strict
)

// Classes returns every class, in the order of their precedence.
func Classes() []Class {
	return []Class{
		ClassTombstone, ClassEmpty, ClassMalformed, ClassEncoding, ClassDuplicate, ClassSchemaVersion,
		ClassUnknownField, ClassMissing, ClassNull, ClassType, ClassFormat, ClassRange, ClassPrecision, ClassTime,
	}
}

// maxValue bounds the bytes of Error.Value.
const maxValue = 200

// Error is why an event became no row.
type Error struct {
	Class  Class
	Column string // the column's name, "" if the event as a whole is at fault
	Path   string // where in the event, for example items[3].price; "" for the whole
	Value  string // the offending JSON text as valid UTF-8, cut to a bounded length; "" if there is none
	Reason string // what is wrong with it, and what would be right
}

// Error returns one line with everything that is known.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Column != "" {
		b.WriteString("column ")
		b.WriteString(e.Column)
		b.WriteString(": ")
	}
	if e.Path != "" && e.Path != e.Column {
		b.WriteString("field ")
		b.WriteString(e.Path)
		b.WriteString(": ")
	}
	if e.Value != "" {
		b.WriteString(e.Value)
		b.WriteString(": ")
	}
	b.WriteString(e.Reason)
	b.WriteString(" (")
	b.WriteString(string(e.Class))
	b.WriteByte(')')
	return b.String()
}

// excerpt returns text as valid UTF-8 of a bounded length.
func excerpt(text []byte) string {
	cut := len(text) > maxValue
	if cut {
		text = text[:maxValue]
		for len(text) > maxValue-utf8.UTFMax && !utf8.RuneStart(text[len(text)-1]) {
			text = text[:len(text)-1]
		}
		if r, n := utf8.DecodeLastRune(text); r == utf8.RuneError && n == 1 {
			text = text[:len(text)-1]
		}
	}
	s := strings.ToValidUTF8(string(text), "\uFFFD")
	if cut {
		s += "…"
	}
	return s
}
