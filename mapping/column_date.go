package mapping

import (
	"encoding/binary"
	"math"
)

// dateColumn holds Date, days from 1970-01-01 to 2149-06-06, or Date32, days
// from 1900-01-01 to 2299-12-31. It reads YYYY-MM-DD and nothing else: a time
// of day would be lost.
type dateColumn struct {
	fixed
}

var (
	firstDate32 = daysFromCivil(1900, 1, 1)
	lastDate32  = daysFromCivil(2299, 12, 31)
)

func (c *dateColumn) appendJSON(s *scanner) bool {
	start := s.pos
	if s.peek() != '"' {
		return s.wrongType("a string with a date")
	}
	text, ok := s.str()
	if !ok {
		return false
	}
	days, form, exists := parseDate(text)
	switch {
	case !form:
		return s.fail(ClassFormat, start, "not a date like 2026-09-30")
	case !exists:
		return s.fail(ClassTime, start, "there is no such day")
	case c.width == 2:
		if days < 0 || days > math.MaxUint16 {
			return s.fail(ClassRange, start, "out of the range of Date, 1970-01-01 to 2149-06-06")
		}
		c.data = binary.LittleEndian.AppendUint16(c.data, uint16(days))
	default:
		if days < firstDate32 || days > lastDate32 {
			return s.fail(ClassRange, start, "out of the range of Date32, 1900-01-01 to 2299-12-31")
		}
		c.data = binary.LittleEndian.AppendUint32(c.data, uint32(days))
	}
	return true
}

func (c *dateColumn) appendText(dst []byte, i int, quoted bool) []byte {
	b := c.at(i)
	days := int64(0)
	if c.width == 2 {
		days = int64(binary.LittleEndian.Uint16(b))
	} else {
		days = int64(int32(binary.LittleEndian.Uint32(b)))
	}
	return appendQuote(appendDate(appendQuote(dst, quoted), days), quoted)
}
