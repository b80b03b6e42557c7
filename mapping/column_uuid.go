package mapping

import (
	"encoding/binary"
	"encoding/hex"
)

// uuidColumn holds UUID: two little-endian halves, the higher one first. It
// reads the form of 36 characters, in either case.
type uuidColumn struct {
	fixed
}

func (c *uuidColumn) appendJSON(s *scanner) bool {
	start := s.pos
	if s.peek() != '"' {
		return s.wrongType("a string with a UUID")
	}
	text, ok := s.str()
	if !ok {
		return false
	}
	high, low, ok := parseUUID(text)
	if !ok {
		return s.fail(ClassFormat, start, "not a UUID like 01234567-89ab-cdef-0123-456789abcdef")
	}
	c.data = binary.LittleEndian.AppendUint64(c.data, high)
	c.data = binary.LittleEndian.AppendUint64(c.data, low)
	return true
}

func parseUUID(text []byte) (high, low uint64, ok bool) {
	if len(text) != 36 {
		return 0, 0, false
	}
	for i, b := range text {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if b != '-' {
				return 0, 0, false
			}
			continue
		}
		var d byte
		switch {
		case b-'0' <= 9:
			d = b - '0'
		case b|0x20 >= 'a' && b|0x20 <= 'f':
			d = b | 0x20 - 'a' + 10
		default:
			return 0, 0, false
		}
		high = high<<4 | low>>60
		low = low<<4 | uint64(d)
	}
	return high, low, true
}

func (c *uuidColumn) appendText(dst []byte, i int, quoted bool) []byte {
	var raw [16]byte
	b := c.at(i)
	binary.BigEndian.PutUint64(raw[:], binary.LittleEndian.Uint64(b))
	binary.BigEndian.PutUint64(raw[8:], binary.LittleEndian.Uint64(b[8:]))
	dst = appendQuote(dst, quoted)
	for k := range raw {
		if k == 4 || k == 6 || k == 8 || k == 10 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, raw[k:k+1])
	}
	return appendQuote(dst, quoted)
}

func appendQuote(dst []byte, quoted bool) []byte {
	if quoted {
		return append(dst, '\'')
	}
	return dst
}
