package mapping

import "encoding/binary"

// scanNumber returns where the JSON number that begins at text[i] ends, and
// whether one is there.
func scanNumber(text []byte, i int) (end int, ok bool) {
	if i < len(text) && text[i] == '-' {
		i++
	}
	switch {
	case i < len(text) && text[i] == '0':
		i++
	case i < len(text) && text[i] >= '1' && text[i] <= '9':
		i = digits(text, i)
	default:
		return i, false
	}
	if i < len(text) && text[i] == '.' {
		start := i + 1
		if i = digits(text, start); i == start {
			return i, false
		}
	}
	if i < len(text) && text[i]|0x20 == 'e' {
		i++
		if i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		start := i
		if i = digits(text, start); i == start {
			return i, false
		}
	}
	return i, true
}

func digits(text []byte, i int) int {
	for i < len(text) && text[i]-'0' <= 9 {
		i++
	}
	return i
}

// number reads the JSON number at the present position.
func (s *scanner) number() ([]byte, bool) {
	start := s.pos
	end, ok := scanNumber(s.data, start)
	s.pos = end
	if !ok {
		if end == start {
			return nil, s.malformed("a value")
		}
		return nil, s.malformed("a digit")
	}
	return s.data[start:end], true
}

// numeral reads a number, or a string that holds nothing but a number: many
// producers write large integers and decimals as strings, to keep them from
// readers that make every number a float64.
func (s *scanner) numeral(want string) ([]byte, bool) {
	start := s.pos
	switch c := s.peek(); {
	case c == '-' || c-'0' <= 9:
		return s.number()
	case c != '"':
		return nil, s.wrongType(want)
	}
	text, ok := s.str()
	if !ok {
		return nil, false
	}
	if len(text) == 0 {
		return nil, s.fail(ClassFormat, start, "an empty string is not "+want)
	}
	if end, ok := scanNumber(text, 0); !ok || end != len(text) {
		return nil, s.fail(ClassFormat, start, "this text is not "+want)
	}
	return text, true
}

// shortInteger reads an integer that is written with at most 18 digits and
// nothing else. If another text is there it reads nothing and returns false.
func (s *scanner) shortInteger() (magnitude uint64, negative, ok bool) {
	data, i := s.data, s.pos
	if i < len(data) && data[i] == '-' {
		negative = true
		i++
	}
	first := i
	for i+8 <= len(data) {
		eight, ok := eightDigits(binary.LittleEndian.Uint64(data[i:]))
		if !ok || i-first > 10 {
			break
		}
		magnitude = magnitude*1e8 + eight
		i += 8
	}
	for i < len(data) {
		c := data[i] - '0'
		if c > 9 {
			break
		}
		magnitude = magnitude*10 + uint64(c)
		i++
	}
	n := i - first
	if n == 0 || n > 18 || i == len(data) || n > 1 && data[first] == '0' {
		return 0, false, false
	}
	if c := data[i]; c == '.' || c|0x20 == 'e' {
		return 0, false, false
	}
	s.pos = i
	return magnitude, negative, true
}

// eightDigits returns the number that eight ASCII digits stand for, the first
// one in the lowest byte of w, and whether all eight are digits.
func eightDigits(w uint64) (uint64, bool) {
	const zeros = '0' * everyByte
	if (w&(w+0x06*everyByte))&(0xF0*everyByte) != zeros {
		return 0, false
	}
	w -= zeros
	w = w*10 + w>>8 // pairs, in every second byte
	const pairs = 0x000000FF000000FF
	return ((w&pairs)*(100+1000000<<32) + (w>>16&pairs)*(1+10000<<32)) >> 32, true
}
