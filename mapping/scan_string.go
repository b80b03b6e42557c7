package mapping

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	everyByte = 0x0101010101010101
	highBits  = 0x80 * everyByte
)

// plain returns how many bytes from i on are neither a quote, a backslash, a
// control character nor part of a longer UTF-8 sequence. Eight bytes are
// looked at together: a borrow can only mark a byte above a true mark, so the
// lowest mark is always right.
func plain(data []byte, i int) int {
	start := i
	for ; i+8 <= len(data); i += 8 {
		w := binary.LittleEndian.Uint64(data[i:])
		quote := w ^ '"'*everyByte
		slash := w ^ '\\'*everyByte
		marks := (w | (w - 0x20*everyByte) | (quote - everyByte) | (slash - everyByte)) & highBits
		if marks != 0 {
			return i + bits.TrailingZeros64(marks)/8 - start
		}
	}
	for ; i < len(data); i++ {
		if c := data[i]; c < 0x20 || c == '"' || c == '\\' || c >= 0x80 {
			break
		}
	}
	return i - start
}

// str reads the string at the present position, which is a quote, and returns
// its decoded bytes. They are valid until the next call and must not be changed.
func (s *scanner) str() ([]byte, bool) {
	start := s.pos + 1
	i := start + plain(s.data, start)
	if i < len(s.data) && s.data[i] == '"' {
		s.pos = i + 1
		return s.data[start:i:i], true
	}
	return s.strSlow(start, i)
}

// strSlow goes on at i, the first byte of the string that needs a closer look.
func (s *scanner) strSlow(start, i int) ([]byte, bool) {
	data := s.data
	copied := start // bytes below are already in text
	decoded := false
	text := s.text[:0]
	for i < len(data) {
		switch c := data[i]; {
		case c == '"':
			s.pos = i + 1
			if !decoded {
				return data[start:i:i], true
			}
			s.text = append(text, data[copied:i]...)
			return s.text, true
		case c == '\\':
			text = append(text, data[copied:i]...)
			decoded = true
			var n int
			if text, n = s.escape(text, i); n == 0 {
				s.text = text
				if s.class == ClassEncoding {
					s.start = start - 1
				}
				return nil, false
			}
			i += n
			copied = i
		case c < 0x20:
			s.pos = i
			return nil, s.malformed("an escape instead of a control character")
		case c < 0x80:
			i += max(plain(data, i), 1)
		default:
			r, n := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && n == 1 {
				if !utf8.FullRune(data[i:]) { // the text ends within a character
					s.pos = len(data)
					return nil, s.malformed("the end of a string")
				}
				return nil, s.fail(ClassEncoding, start-1, "invalid UTF-8 at byte "+strconv.Itoa(i))
			}
			i += n
		}
	}
	s.pos = len(data)
	return nil, s.malformed("the end of a string")
}

// escape decodes the escape at data[i], a backslash, and returns the number of
// bytes that it occupies, 0 after a failure.
func (s *scanner) escape(dst []byte, i int) ([]byte, int) {
	if i+1 >= len(s.data) {
		s.pos = len(s.data)
		s.malformed("an escape")
		return dst, 0
	}
	switch c := s.data[i+1]; c {
	case '"', '\\', '/':
		return append(dst, c), 2
	case 'b':
		return append(dst, '\b'), 2
	case 'f':
		return append(dst, '\f'), 2
	case 'n':
		return append(dst, '\n'), 2
	case 'r':
		return append(dst, '\r'), 2
	case 't':
		return append(dst, '\t'), 2
	case 'u':
	default:
		s.pos = i
		s.malformed("a known escape")
		return dst, 0
	}
	r, ok := s.hex4(i + 2)
	if !ok {
		return dst, 0
	}
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(dst, r), 6
	}
	if i+7 < len(s.data) && s.data[i+6] == '\\' && s.data[i+7] == 'u' {
		low, ok := s.hex4(i + 8)
		if !ok {
			return dst, 0
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return utf8.AppendRune(dst, pair), 12
		}
	}
	s.fail(ClassEncoding, i, "a lone surrogate at byte "+strconv.Itoa(i)+": half of a UTF-16 pair is no character")
	return dst, 0
}

// hex4 reads the four digits of a \u escape.
func (s *scanner) hex4(i int) (rune, bool) {
	var r rune
	for end := i + 4; i < end; i++ {
		if i >= len(s.data) {
			s.pos = len(s.data)
			return 0, s.malformed("four hexadecimal digits")
		}
		switch c := s.data[i]; {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			s.pos = i
			return 0, s.malformed("four hexadecimal digits")
		}
	}
	return r, true
}

const hexDigits = "0123456789abcdef"

// AppendText appends a text as a JSON string, for whoever writes what [Plan.Append] reads. Bytes that are no UTF-8 stay
// as they are, to be refused with the column's name.
func AppendText(dst, text []byte) []byte {
	dst = append(dst, '"')
	start := 0
	for i, c := range text {
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[start:i]...)
		start = i + 1
		if c < 0x20 {
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		} else {
			dst = append(dst, '\\', c)
		}
	}
	return append(append(dst, text[start:]...), '"')
}
