package mapping

import (
	"bytes"
	"encoding/binary"
	"strconv"
)

// stringColumn holds String: values one after another, each with its length
// before it as the native format has it.
type stringColumn struct {
	data []byte
	ends []int // where in data each value ends
}

// aString is what these columns read, for errors. A number is not taken for
// text: 1.50 and 1.5 would become different strings.
const aString = "a string"

func (c *stringColumn) appendJSON(s *scanner) bool {
	if s.peek() != '"' {
		return s.wrongType(aString)
	}
	text, ok := s.str()
	if !ok {
		return false
	}
	if n := len(text); n < 0x80 {
		c.data = append(c.data, byte(n))
	} else {
		c.data = binary.AppendUvarint(c.data, uint64(n))
	}
	c.data = append(c.data, text...)
	c.ends = append(c.ends, len(c.data))
	return true
}

func (c *stringColumn) appendString(text string) {
	c.data = binary.AppendUvarint(c.data, uint64(len(text)))
	c.data = append(c.data, text...)
	c.ends = append(c.ends, len(c.data))
}

func (c *stringColumn) appendZero() { c.appendString("") }

func (c *stringColumn) len() int                      { return len(c.ends) }
func (c *stringColumn) size() int                     { return len(c.data) + 8*len(c.ends) }
func (c *stringColumn) truncate(n int)                { c.data, c.ends = c.data[:c.start(n)], c.ends[:n] }
func (c *stringColumn) appendState(dst []byte) []byte { return dst }

func (c *stringColumn) appendNative(dst []byte, from, to int) []byte {
	return append(dst, c.data[c.start(from):c.start(to)]...)
}

// start returns where value i begins.
func (c *stringColumn) start(i int) int {
	if i == 0 {
		return 0
	}
	return c.ends[i-1]
}

// encoded returns value i with its length before it.
func (c *stringColumn) encoded(i int) []byte { return c.data[c.start(i):c.ends[i]] }

// at returns value i.
func (c *stringColumn) at(i int) []byte {
	b := c.encoded(i)
	_, n := binary.Uvarint(b)
	return b[n:]
}

func (c *stringColumn) equal(i, j int) bool { return bytes.Equal(c.encoded(i), c.encoded(j)) }

func (c *stringColumn) appendKey(dst []byte, i int) []byte { return append(dst, c.encoded(i)...) }

func (c *stringColumn) appendText(dst []byte, i int, quoted bool) []byte {
	return appendString(dst, c.at(i), quoted)
}

// appendString appends text as the server prints it: as it is, or within
// another value between quotes and escaped.
func appendString(dst, text []byte, quoted bool) []byte {
	if !quoted {
		return append(dst, text...)
	}
	dst = append(dst, '\'')
	for _, b := range text {
		switch b {
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case 0:
			dst = append(dst, `\0`...)
		case '\\', '\'':
			dst = append(dst, '\\', b)
		default:
			dst = append(dst, b)
		}
	}
	return append(dst, '\'')
}

// fixedStringColumn holds FixedString(N). Only a text of exactly N bytes
// fills it: the server would pad a shorter one with NUL bytes, and what is
// read would no longer be what was sent.
type fixedStringColumn struct {
	fixed
}

func (c *fixedStringColumn) appendJSON(s *scanner) bool {
	start := s.pos
	if s.peek() != '"' {
		return s.wrongType(aString)
	}
	text, ok := s.str()
	if !ok {
		return false
	}
	if len(text) != c.width {
		return s.fail(ClassRange, start, "a text of "+strconv.Itoa(len(text))+" bytes, but the column is FixedString("+strconv.Itoa(c.width)+")")
	}
	c.data = append(c.data, text...)
	return true
}

func (c *fixedStringColumn) appendText(dst []byte, i int, quoted bool) []byte {
	return appendString(dst, c.at(i), quoted)
}
