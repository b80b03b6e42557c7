package chschema

import (
	"fmt"
	"slices"
)

// Kind is a ClickHouse type without its parameters.
type Kind uint8

// The supported kinds. The zero Kind is no type.
const (
	KindInvalid Kind = iota
	KindInt8
	KindInt16
	KindInt32
	KindInt64
	KindInt128
	KindInt256
	KindUInt8
	KindUInt16
	KindUInt32
	KindUInt64
	KindUInt128
	KindUInt256
	KindFloat32
	KindFloat64
	KindBool
	KindString
	KindFixedString
	KindUUID
	KindDate
	KindDate32
	KindDateTime
	KindDateTime64
	KindEnum8
	KindEnum16
	KindIPv4
	KindIPv6
	KindDecimal
	KindNullable
	KindLowCardinality
	KindArray
	KindMap
	KindTuple
)

// Limits of ClickHouse's own types.
const (
	MaxDecimalPrecision  = 76
	MaxDateTimePrecision = 9
	MaxFixedString       = 0xFFFFFF
)

// maxTypeDepth bounds the nesting of a type: no report needs more, and
// everything that walks a type may then recurse.
const maxTypeDepth = 16

var kindNames = [...]string{
	KindInvalid:        "invalid",
	KindInt8:           "Int8",
	KindInt16:          "Int16",
	KindInt32:          "Int32",
	KindInt64:          "Int64",
	KindInt128:         "Int128",
	KindInt256:         "Int256",
	KindUInt8:          "UInt8",
	KindUInt16:         "UInt16",
	KindUInt32:         "UInt32",
	KindUInt64:         "UInt64",
	KindUInt128:        "UInt128",
	KindUInt256:        "UInt256",
	KindFloat32:        "Float32",
	KindFloat64:        "Float64",
	KindBool:           "Bool",
	KindString:         "String",
	KindFixedString:    "FixedString",
	KindUUID:           "UUID",
	KindDate:           "Date",
	KindDate32:         "Date32",
	KindDateTime:       "DateTime",
	KindDateTime64:     "DateTime64",
	KindEnum8:          "Enum8",
	KindEnum16:         "Enum16",
	KindIPv4:           "IPv4",
	KindIPv6:           "IPv6",
	KindDecimal:        "Decimal",
	KindNullable:       "Nullable",
	KindLowCardinality: "LowCardinality",
	KindArray:          "Array",
	KindMap:            "Map",
	KindTuple:          "Tuple",
}

var kindSizes = [len(kindNames)]int{
	KindInt8: 1, KindInt16: 2, KindInt32: 4, KindInt64: 8, KindInt128: 16, KindInt256: 32,
	KindUInt8: 1, KindUInt16: 2, KindUInt32: 4, KindUInt64: 8, KindUInt128: 16, KindUInt256: 32,
	KindFloat32: 4, KindFloat64: 8, KindBool: 1, KindUUID: 16,
	KindDate: 2, KindDate32: 4, KindDateTime: 4, KindDateTime64: 8,
	KindEnum8: 1, KindEnum16: 2, KindIPv4: 4, KindIPv6: 16,
}

// String returns the name of the kind as ClickHouse spells it.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// IsSigned reports whether k is Int8 to Int256.
func (k Kind) IsSigned() bool { return k >= KindInt8 && k <= KindInt256 }

// IsUnsigned reports whether k is UInt8 to UInt256.
func (k Kind) IsUnsigned() bool { return k >= KindUInt8 && k <= KindUInt256 }

// IsInteger reports whether k is an integer of any size.
func (k Kind) IsInteger() bool { return k.IsSigned() || k.IsUnsigned() }

// EnumValue is one name of an Enum8 or Enum16.
type EnumValue struct {
	Name  string
	Value int16
}

// Type is a ClickHouse type. A Type obtained from [ParseType] is legal: the
// server accepts a column of it (small LowCardinality types need the server's
// allow_suspicious_low_cardinality_types).
type Type struct {
	Kind      Kind
	Precision int         // decimal digits: of a Decimal in all, of a DateTime64 below the second
	Scale     int         // Decimal: digits after the point
	Length    int         // FixedString: bytes
	Zone      string      // DateTime and DateTime64; "" names none
	Enum      []EnumValue // Enum8 and Enum16, by rising value
	Elem      []Type      // Nullable, LowCardinality, Array: one; Map: key and value; Tuple: its elements
	Names     []string    // of a named Tuple's elements, else nil
}

// Equal reports whether t and u are the same type, names and zones included.
func (t Type) Equal(u Type) bool {
	return t.Kind == u.Kind && t.Precision == u.Precision && t.Scale == u.Scale &&
		t.Length == u.Length && t.Zone == u.Zone &&
		slices.Equal(t.Enum, u.Enum) && slices.Equal(t.Names, u.Names) &&
		slices.EqualFunc(t.Elem, u.Elem, Type.Equal)
}

// Size returns the bytes that one value occupies in the native format, or 0
// for a type whose values differ in length or that is made of several columns.
func (t Type) Size() int {
	switch t.Kind {
	case KindFixedString:
		return t.Length
	case KindDecimal:
		switch {
		case t.Precision <= 9:
			return 4
		case t.Precision <= 18:
			return 8
		case t.Precision <= 38:
			return 16
		default:
			return 32
		}
	}
	if int(t.Kind) < len(kindSizes) {
		return kindSizes[t.Kind]
	}
	return 0
}

// IsNullable reports whether a column of type t can hold NULL itself:
// Nullable(T) or LowCardinality(Nullable(T)).
func (t Type) IsNullable() bool {
	switch t.Kind {
	case KindNullable:
		return true
	case KindLowCardinality:
		return len(t.Elem) == 1 && t.Elem[0].Kind == KindNullable
	}
	return false
}
