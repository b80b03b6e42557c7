package chschema

import (
	"fmt"
	"slices"
)

// check refuses what the server refuses (26.7), and types that are legal only
// under an experimental setting.
func (t Type) check() error {
	for _, e := range t.Elem {
		if err := e.check(); err != nil {
			return err
		}
	}
	switch t.Kind {
	case KindDecimal:
		if t.Precision < 1 || t.Precision > MaxDecimalPrecision {
			return fmt.Errorf("a Decimal has 1 to %d digits, not %d", MaxDecimalPrecision, t.Precision)
		}
		if t.Scale < 0 || t.Scale > t.Precision {
			return fmt.Errorf("the scale of a Decimal with %d digits is 0 to %d, not %d", t.Precision, t.Precision, t.Scale)
		}
	case KindDateTime64:
		if t.Precision < 0 || t.Precision > MaxDateTimePrecision {
			return fmt.Errorf("DateTime64 keeps 0 to %d digits below the second, not %d", MaxDateTimePrecision, t.Precision)
		}
	case KindFixedString:
		if t.Length < 1 || t.Length > MaxFixedString {
			return fmt.Errorf("a FixedString has 1 to %d bytes, not %d", MaxFixedString, t.Length)
		}
	case KindEnum8, KindEnum16:
		return t.checkEnum()
	case KindNullable:
		return t.checkNullable()
	case KindLowCardinality:
		return t.checkLowCardinality()
	case KindMap:
		if t.Elem[0].IsNullable() {
			return fmt.Errorf("the key of a Map cannot be %s: a key is never NULL", t.Elem[0])
		}
	case KindTuple:
		return t.checkTuple()
	}
	return nil
}

func (t Type) checkEnum() error {
	names := make(map[string]bool, len(t.Enum))
	for i, v := range t.Enum {
		if names[v.Name] {
			return fmt.Errorf("%s names %q twice", t.Kind, v.Name)
		}
		names[v.Name] = true
		if i > 0 && t.Enum[i-1].Value == v.Value {
			return fmt.Errorf("%s gives the value %d to %q and to %q", t.Kind, v.Value, t.Enum[i-1].Name, v.Name)
		}
	}
	return nil
}

func (t Type) checkNullable() error {
	switch e := t.Elem[0]; e.Kind {
	case KindNullable:
		return fmt.Errorf("%s is Nullable twice", t)
	case KindLowCardinality:
		return fmt.Errorf("Nullable cannot hold LowCardinality; write LowCardinality(Nullable(%s))", e.Elem[0])
	case KindArray, KindMap:
		return fmt.Errorf("Nullable cannot hold %s; an empty %s stands for no value, or make its elements Nullable", e, e.Kind)
	case KindTuple:
		return fmt.Errorf("Nullable cannot hold %s (the server calls it experimental); make its elements Nullable", e)
	}
	return nil
}

func (t Type) checkLowCardinality() error {
	e := t.Elem[0]
	if e.Kind == KindNullable {
		e = e.Elem[0]
	}
	switch e.Kind {
	case KindDecimal, KindDateTime64, KindEnum8, KindEnum16, KindNullable, KindLowCardinality, KindArray, KindMap, KindTuple:
		return fmt.Errorf("LowCardinality cannot hold %s: the server allows strings, numbers, dates, UUID and IP addresses; write %s", t.Elem[0], t.Elem[0])
	}
	return nil
}

func (t Type) checkTuple() error {
	for i, n := range t.Names {
		switch {
		case n == "":
			return fmt.Errorf("element %d of the Tuple has an empty name", i+1)
		case n == "null":
			return fmt.Errorf("the server reserves the element name null in a Tuple; use another name")
		case slices.Contains(t.Names[:i], n):
			return fmt.Errorf("the Tuple has two elements named %q", n)
		}
	}
	return nil
}
