package chschema

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ParseType reads a type as it is written in DDL. The aliases Decimal32(S) to
// Decimal256(S), Decimal(P), Decimal, DateTime64, Enum(…) and enum names
// without values become what the server makes of them. An unknown type, and a
// nesting that the server refuses, are errors that say what is possible.
func ParseType(s string) (Type, error) {
	p := &typeParser{text: s}
	t, err := p.parse(0)
	if p.space(); err == nil && p.pos < len(p.text) {
		err = p.errorf("unexpected %q after the type", p.text[p.pos:])
	}
	if err == nil {
		err = t.check()
	}
	if err != nil {
		return Type{}, fmt.Errorf("type %q: %w", s, err)
	}
	return t, nil
}

// supportedTypes is what the error about an unknown type offers.
const supportedTypes = "Int8 to Int256, UInt8 to UInt256, Float32, Float64, Bool, String, FixedString(N), UUID, " +
	"Date, Date32, DateTime, DateTime64(P), Enum8(…), Enum16(…), IPv4, IPv6, Decimal(P, S), " +
	"Nullable(T), LowCardinality(T), Array(T), Map(K, V), Tuple(…)"

type typeParser struct {
	text string
	pos  int
}

func (p *typeParser) errorf(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %w", p.pos, fmt.Errorf(format, args...))
}

// space skips white space and returns the next byte, 0 at the end.
func (p *typeParser) space() byte {
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; c {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return c
		}
	}
	return 0
}

// accept consumes c if it comes next.
func (p *typeParser) accept(c byte) bool {
	if p.space() != c || p.pos == len(p.text) {
		return false
	}
	p.pos++
	return true
}

func (p *typeParser) expect(c byte) error {
	if !p.accept(c) {
		if p.pos == len(p.text) {
			return p.errorf("ends where %q was expected", c)
		}
		return p.errorf("%q where %q was expected", p.text[p.pos], c)
	}
	return nil
}

// word reads an identifier, "" if none comes next.
func (p *typeParser) word() string {
	p.space()
	start := p.pos
	for p.pos < len(p.text) && (isLetter(p.text[p.pos]) || p.pos > start && isDigit(p.text[p.pos])) {
		p.pos++
	}
	return p.text[start:p.pos]
}

// number reads a decimal integer with an optional sign.
func (p *typeParser) number() (int, error) {
	p.space()
	start := p.pos
	if p.pos < len(p.text) && (p.text[p.pos] == '-' || p.text[p.pos] == '+') {
		p.pos++
	}
	for p.pos < len(p.text) && isDigit(p.text[p.pos]) {
		p.pos++
	}
	n, err := strconv.Atoi(p.text[start:p.pos])
	if errors.Is(err, strconv.ErrSyntax) {
		p.pos = start
		return 0, p.errorf("a number was expected")
	}
	return n, err
}

// quoted reads a literal between the given quotes, undoing the escapes.
func (p *typeParser) quoted(quote byte) (string, error) {
	if err := p.expect(quote); err != nil {
		return "", err
	}
	var b strings.Builder
	for p.pos < len(p.text) {
		c := p.text[p.pos]
		p.pos++
		switch {
		case c == quote && p.pos < len(p.text) && p.text[p.pos] == quote:
			p.pos++ // a doubled quote stands for one
			b.WriteByte(quote)
		case c == quote:
			return b.String(), nil
		case c == '\\' && p.pos < len(p.text):
			e := p.text[p.pos]
			p.pos++
			i := strings.IndexByte(`bfnrt0\'`+"`\"", e)
			if i < 0 {
				return "", p.errorf("unknown escape \\%c", e)
			}
			b.WriteByte("\b\f\n\r\t\x00\\'`\""[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", p.errorf("the quote %c is never closed", quote)
}

func (p *typeParser) parse(depth int) (Type, error) {
	if depth > maxTypeDepth {
		return Type{}, p.errorf("nested deeper than %d types", maxTypeDepth)
	}
	start := p.pos
	name := p.word()
	if name == "" {
		return Type{}, p.errorf("a type name was expected")
	}
	kind, precision := KindInvalid, 0
	switch name {
	case "Decimal32":
		kind, precision = KindDecimal, 9
	case "Decimal64":
		kind, precision = KindDecimal, 18
	case "Decimal128":
		kind, precision = KindDecimal, 38
	case "Decimal256":
		kind, precision = KindDecimal, 76
	case "Enum":
		kind = KindEnum8 // Enum16 if the values need it
	default:
		if i := slices.Index(kindNames[1:], name); i >= 0 {
			kind = Kind(i + 1)
		}
	}
	t := Type{Kind: kind, Precision: precision}
	switch kind {
	case KindInvalid:
		p.pos = start
		return t, p.unknown(name)
	case KindDecimal:
		return t, p.decimal(&t)
	case KindFixedString:
		return t, p.inBrackets(func() (err error) { t.Length, err = p.number(); return err })
	case KindDateTime, KindDateTime64:
		return t, p.dateTime(&t)
	case KindEnum8, KindEnum16:
		return t, p.enum(&t, name == "Enum")
	case KindNullable, KindLowCardinality, KindArray:
		return t, p.inBrackets(func() error { return p.elements(&t, 1, depth) })
	case KindMap:
		return t, p.inBrackets(func() error { return p.elements(&t, 2, depth) })
	case KindTuple:
		return t, p.inBrackets(func() error { return p.tuple(&t, depth) })
	}
	return t, nil
}

func (p *typeParser) unknown(name string) error {
	for _, known := range kindNames[1:] {
		if strings.EqualFold(known, name) {
			return p.errorf("unknown type %s; type names are case-sensitive: %s", name, known)
		}
	}
	return p.errorf("unknown type %s; supported are %s", name, supportedTypes)
}

func (p *typeParser) inBrackets(read func() error) error {
	if err := p.expect('('); err != nil {
		return err
	}
	if err := read(); err != nil {
		return err
	}
	return p.expect(')')
}

func (p *typeParser) decimal(t *Type) (err error) {
	if t.Precision > 0 { // Decimal32(S) and its siblings
		return p.inBrackets(func() error { t.Scale, err = p.number(); return err })
	}
	t.Precision = 10 // the server's default
	if p.space() != '(' {
		return nil
	}
	return p.inBrackets(func() error {
		if t.Precision, err = p.number(); err != nil || !p.accept(',') {
			return err
		}
		t.Scale, err = p.number()
		return err
	})
}

func (p *typeParser) dateTime(t *Type) (err error) {
	if t.Kind == KindDateTime64 {
		t.Precision = 3 // the server's default
	}
	if p.space() != '(' {
		return nil
	}
	return p.inBrackets(func() error {
		if t.Kind == KindDateTime64 {
			if t.Precision, err = p.number(); err != nil || !p.accept(',') {
				return err
			}
		}
		p.space()
		t.Zone, err = p.quoted('\'')
		return err
	})
}

func (p *typeParser) enum(t *Type, widen bool) error {
	next := 1
	err := p.inBrackets(func() error {
		for {
			p.space()
			name, err := p.quoted('\'')
			if err != nil {
				return err
			}
			if p.accept('=') {
				if next, err = p.number(); err != nil {
					return err
				}
			}
			if next < -128 || next > 127 {
				if widen {
					t.Kind = KindEnum16
				}
				if t.Kind == KindEnum8 || next < -32768 || next > 32767 {
					return p.errorf("the value %d of %q does not fit %s", next, name, t.Kind)
				}
			}
			t.Enum = append(t.Enum, EnumValue{Name: name, Value: int16(next)})
			next++
			if !p.accept(',') {
				return nil
			}
		}
	})
	slices.SortStableFunc(t.Enum, func(a, b EnumValue) int { return cmp.Compare(a.Value, b.Value) })
	return err
}

func (p *typeParser) elements(t *Type, n, depth int) error {
	for i := range n {
		if i > 0 {
			if err := p.expect(','); err != nil {
				return err
			}
		}
		e, err := p.parse(depth + 1)
		if err != nil {
			return err
		}
		t.Elem = append(t.Elem, e)
	}
	return nil
}

func (p *typeParser) tuple(t *Type, depth int) error {
	for {
		name, named, err := p.tupleName()
		if err != nil {
			return err
		}
		if len(t.Elem) > 0 && named != (t.Names != nil) {
			return p.errorf("a Tuple names all of its elements or none")
		}
		if named {
			t.Names = append(t.Names, name)
		}
		e, err := p.parse(depth + 1)
		if err != nil {
			return err
		}
		t.Elem = append(t.Elem, e)
		if !p.accept(',') {
			return nil
		}
	}
}

// tupleName reads an element's name. A word is a name if another word follows
// it, and a type if not.
func (p *typeParser) tupleName() (name string, named bool, err error) {
	if p.space() == '`' {
		name, err = p.quoted('`')
		return name, true, err
	}
	start := p.pos
	if name = p.word(); name == "" {
		return "", false, p.errorf("a Tuple needs at least one element")
	}
	if isLetter(p.space()) {
		return name, true, nil
	}
	p.pos = start
	return "", false, nil
}
