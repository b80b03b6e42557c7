package mapping

import (
	"encoding/binary"
	"math/big"
	"strconv"

	"github.com/chprojector/projector/chschema"
)

// integerColumn holds Int8 to Int256 and UInt8 to UInt256.
type integerColumn struct {
	fixed
	kind   chschema.Kind
	signed bool
	short  uint64 // the largest magnitude that shortInteger may give a positive value
	// The largest magnitudes; a negative one is refused above lowest, which is
	// zero for an unsigned type.
	highest, lowest wide
}

func newIntegerColumn(t chschema.Type) *integerColumn {
	c := &integerColumn{fixed: fixed{width: t.Size()}, kind: t.Kind, signed: t.Kind.IsSigned()}
	bits := c.width * 8
	if c.signed {
		c.lowest[(bits-1)/64] = 1 << ((bits - 1) % 64)
		bits--
	}
	for i := range bits {
		c.highest[i/64] |= 1 << (i % 64)
	}
	c.short = c.highest[0]
	if bits > 64 {
		c.short = 1<<64 - 1
	}
	return c
}

func (c *integerColumn) appendJSON(s *scanner) bool {
	start := s.pos
	if v, negative, ok := s.shortInteger(); ok && !negative && v <= c.short {
		switch c.width {
		case 8:
			c.data = binary.LittleEndian.AppendUint64(c.data, v)
		case 4:
			c.data = binary.LittleEndian.AppendUint32(c.data, uint32(v))
		case 2:
			c.data = binary.LittleEndian.AppendUint16(c.data, uint16(v))
		case 1:
			c.data = append(c.data, byte(v))
		default:
			w := wide{v}
			c.data = w.appendBytes(c.data, c.width)
		}
		return true
	}
	s.pos = start
	text, ok := s.numeral("an integer")
	if !ok {
		return false
	}
	w, negative, out := scaled(text, 0, false)
	limit := &c.highest
	if negative {
		limit = &c.lowest
	}
	switch {
	case out == overflow || limit.less(&w):
		return s.fail(ClassRange, start, "out of the range of "+c.kind.String()+", "+c.bounds())
	case out == lost:
		return s.fail(ClassPrecision, start, "not a whole number, but the column is "+c.kind.String())
	}
	if negative {
		w.negate()
	}
	c.data = w.appendBytes(c.data, c.width)
	return true
}

// bounds names the range for an error.
func (c *integerColumn) bounds() string {
	if bits := c.width * 8; bits > 64 {
		if c.signed {
			return "-2^" + strconv.Itoa(bits-1) + " to 2^" + strconv.Itoa(bits-1) + "-1"
		}
		return "0 to 2^" + strconv.Itoa(bits) + "-1"
	}
	low := "0"
	if c.signed {
		low = "-" + strconv.FormatUint(c.lowest[0], 10)
	}
	return low + " to " + strconv.FormatUint(c.highest[0], 10)
}

func (c *integerColumn) appendText(dst []byte, i int, _ bool) []byte {
	return appendWide(dst, readWide(c.at(i), c.signed), c.signed)
}

// appendWide appends w in decimal.
func appendWide(dst []byte, w wide, signed bool) []byte {
	if signed && w[3]>>63 == 1 {
		dst = append(dst, '-')
		w.negate()
	}
	if w[1]|w[2]|w[3] == 0 {
		return strconv.AppendUint(dst, w[0], 10)
	}
	var b [32]byte
	for i, word := range w {
		binary.BigEndian.PutUint64(b[24-8*i:], word)
	}
	return new(big.Int).SetBytes(b[:]).Append(dst, 10)
}
