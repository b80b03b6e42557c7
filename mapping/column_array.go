package mapping

import (
	"encoding/binary"
	"strconv"
)

// offsets count the elements of all values up to and with each one.
type offsets []uint64

func (o offsets) start(i int) int {
	if i == 0 {
		return 0
	}
	return int(o[i-1])
}

func (o offsets) end(i int) int { return int(o[i]) }

// appendNative appends the offsets of rows [from,to), counted from the first
// element of row from.
func (o offsets) appendNative(dst []byte, from, to int) []byte {
	base := uint64(o.start(from))
	for _, end := range o[from:to] {
		dst = binary.LittleEndian.AppendUint64(dst, end-base)
	}
	return dst
}

// arrayColumn holds Array(T): offsets, and the elements of all rows together.
type arrayColumn struct {
	offsets offsets
	inner   column
}

func (c *arrayColumn) appendJSON(s *scanner) bool {
	if s.peek() != '[' {
		return s.wrongType("an array")
	}
	if !s.open() {
		return false
	}
	n := c.offsets.start(len(c.offsets))
	first := n
	if s.peek() == ']' {
		s.pos++
		s.depth--
	} else {
		for again := true; again; n++ {
			var ok bool
			s.peek()
			if !c.inner.appendJSON(s) {
				return s.within("[" + strconv.Itoa(n-first) + "]")
			}
			if again, ok = s.more(']'); !ok {
				return false
			}
		}
	}
	c.offsets = append(c.offsets, uint64(n))
	return true
}

func (c *arrayColumn) truncate(n int) {
	c.offsets = c.offsets[:n]
	c.inner.truncate(c.offsets.start(n))
}

func (c *arrayColumn) len() int                      { return len(c.offsets) }
func (c *arrayColumn) size() int                     { return 8*len(c.offsets) + c.inner.size() }
func (c *arrayColumn) appendState(dst []byte) []byte { return c.inner.appendState(dst) }

func (c *arrayColumn) appendNative(dst []byte, from, to int) []byte {
	dst = c.offsets.appendNative(dst, from, to)
	return c.inner.appendNative(dst, c.offsets.start(from), c.offsets.start(to))
}

func (c *arrayColumn) equal(i, j int) bool {
	a, b := c.offsets.start(i), c.offsets.start(j)
	n := c.offsets.end(i) - a
	if c.offsets.end(j)-b != n {
		return false
	}
	for k := range n {
		if !c.inner.equal(a+k, b+k) {
			return false
		}
	}
	return true
}

func (c *arrayColumn) appendText(dst []byte, i int, _ bool) []byte {
	dst = append(dst, '[')
	for k := c.offsets.start(i); k < c.offsets.end(i); k++ {
		if k > c.offsets.start(i) {
			dst = append(dst, ',')
		}
		dst = c.inner.appendText(dst, k, true)
	}
	return append(dst, ']')
}
