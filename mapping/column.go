package mapping

import (
	"time"

	"github.com/chprojector/projector/chschema"
)

// A column holds the values of one column, or of one part of a nested one, as
// the bytes of ClickHouse's native format, so that encoding is copying. It
// belongs to one Rows.
type column interface {
	// appendJSON appends the value at the scanner's position. After a failure,
	// which the scanner holds, the column may be longer than before by a part
	// of a value: truncate undoes that.
	appendJSON(s *scanner) bool
	truncate(n int) // forget all values from n on
	len() int
	size() int // bytes of data, without spare capacity

	appendState(dst []byte) []byte
	appendNative(dst []byte, from, to int) []byte

	equal(i, j int) bool
	appendText(dst []byte, i int, quoted bool) []byte
}

// A keyed column may be part of an identity or be the key of a Map.
type keyed interface {
	column
	// appendKey appends bytes that differ whenever values differ, whatever
	// follows them.
	appendKey(dst []byte, i int) []byte
}

// A scalar column is no container: it may be Nullable or LowCardinality. After
// a failure of appendJSON it is as before.
type scalar interface {
	keyed
	appendZero() // the type's own zero, which stands beneath a NULL
}

// options are a column's settings, made ready. They are shared by all Rows of
// a plan and by all parts of a nested column.
type options struct {
	zone     *time.Location // of timestamps written without one, nil = refused
	unit     int            // decimal digits below the second of a number, -1 = numbers are refused
	halfEven bool
	strict   bool
}

// newColumn returns an empty column of a type that chschema accepted.
func newColumn(t chschema.Type, o *options) column {
	switch t.Kind {
	case chschema.KindFloat32, chschema.KindFloat64:
		return &floatColumn{fixed: fixed{width: t.Size()}}
	case chschema.KindBool:
		return &boolColumn{fixed: fixed{width: 1}}
	case chschema.KindString:
		return &stringColumn{}
	case chschema.KindFixedString:
		return &fixedStringColumn{fixed: fixed{width: t.Length}}
	case chschema.KindUUID:
		return &uuidColumn{fixed: fixed{width: 16}}
	case chschema.KindIPv4:
		return &ipv4Column{fixed: fixed{width: 4}}
	case chschema.KindIPv6:
		return &ipv6Column{fixed: fixed{width: 16}}
	case chschema.KindEnum8, chschema.KindEnum16:
		return newEnumColumn(t)
	case chschema.KindDate, chschema.KindDate32:
		return &dateColumn{fixed: fixed{width: t.Size()}}
	case chschema.KindDateTime, chschema.KindDateTime64:
		return newInstantColumn(t, o)
	case chschema.KindDecimal:
		return newDecimalColumn(t, o)
	case chschema.KindNullable:
		return &nullableColumn{inner: newColumn(t.Elem[0], o).(scalar)}
	case chschema.KindLowCardinality:
		return newLowCardinality(t.Elem[0], o)
	case chschema.KindArray:
		return &arrayColumn{inner: newColumn(t.Elem[0], o)}
	case chschema.KindMap:
		return newMapColumn(t, o)
	case chschema.KindTuple:
		return newTupleColumn(t, o)
	default:
		return newIntegerColumn(t)
	}
}
