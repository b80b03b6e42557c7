package mapping

import (
	"encoding/binary"
	"strconv"

	"github.com/chprojector/projector/chschema"
)

// decimalColumn holds Decimal(P, S): integers that count units of 10^-S.
type decimalColumn struct {
	fixed
	typ      chschema.Type
	halfEven bool
	limit    wide // the first magnitude that needs more than P digits
	short    uint64
}

func newDecimalColumn(t chschema.Type, o *options) *decimalColumn {
	c := &decimalColumn{fixed: fixed{width: t.Size()}, typ: t, halfEven: o.halfEven, limit: pow10(t.Precision)}
	if t.Precision <= 18 {
		c.short = c.limit[0] - 1
	}
	return c
}

func (c *decimalColumn) appendJSON(s *scanner) bool {
	if c.short > 0 && c.appendShort(s) {
		return true
	}
	start := s.pos
	text, ok := s.numeral("a decimal number")
	if !ok {
		return false
	}
	w, negative, out := scaled(text, c.typ.Scale, c.halfEven)
	switch {
	case out == overflow || !w.less(&c.limit):
		return s.fail(ClassRange, start, "more than "+strconv.Itoa(c.typ.Precision-c.typ.Scale)+" digits before the point, but the column is "+c.typ.String())
	case out == lost:
		return s.fail(ClassPrecision, start, "more than "+strconv.Itoa(c.typ.Scale)+" decimals, but the column is "+c.typ.String()+"; round: half_even would allow it")
	}
	if negative {
		w.negate()
	}
	c.data = w.appendBytes(c.data, c.width)
	return true
}

// appendShort takes the usual case: at most 18 digits, no exponent, no digit
// below the scale. It reads nothing and returns false if it is another.
func (c *decimalColumn) appendShort(s *scanner) bool {
	data, i := s.data, s.pos
	negative := i < len(data) && data[i] == '-'
	if negative {
		i++
	}
	first := i
	var v uint64
	for i < len(data) && data[i]-'0' <= 9 {
		v = v*10 + uint64(data[i]-'0')
		i++
	}
	whole := i - first
	if whole == 0 || whole > 18 || whole > 1 && data[first] == '0' || i == len(data) {
		return false
	}
	decimals := 0
	if data[i] == '.' {
		i++
		for i < len(data) && data[i]-'0' <= 9 {
			v = v*10 + uint64(data[i]-'0')
			i++
			decimals++
		}
		if decimals == 0 || i == len(data) {
			return false
		}
	}
	missing := c.typ.Scale - decimals
	if data[i]|0x20 == 'e' || missing < 0 || whole+decimals+missing > 19 {
		return false
	}
	if v *= pow10s[missing]; v > c.short {
		return false
	}
	if negative {
		v = -v
	}
	if c.width == 8 {
		c.data = binary.LittleEndian.AppendUint64(c.data, v)
	} else {
		c.data = binary.LittleEndian.AppendUint32(c.data, uint32(v))
	}
	s.pos = i
	return true
}

func (c *decimalColumn) appendText(dst []byte, i int, _ bool) []byte {
	return appendDecimal(dst, readWide(c.at(i), true), c.typ.Scale)
}

// appendDecimal appends w as a decimal number without trailing zeros.
func appendDecimal(dst []byte, w wide, scale int) []byte {
	if w[3]>>63 == 1 {
		dst = append(dst, '-')
		w.negate()
	}
	var buf [80]byte
	text := appendWide(buf[:0], w, false)
	for len(text) <= scale {
		text = append(text, 0)
		copy(text[1:], text)
		text[0] = '0'
	}
	whole, decimals := text[:len(text)-scale], text[len(text)-scale:]
	for len(decimals) > 0 && decimals[len(decimals)-1] == '0' {
		decimals = decimals[:len(decimals)-1]
	}
	dst = append(dst, whole...)
	if len(decimals) > 0 {
		dst = append(append(dst, '.'), decimals...)
	}
	return dst
}
