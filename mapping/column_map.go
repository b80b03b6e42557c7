package mapping

import (
	"github.com/chprojector/projector/chschema"
)

// mapColumn holds Map(K, V), which the server stores as an array of pairs. It
// reads an object: each name is read by the key's type as a JSON string, so a
// key may be a number or a date as well. Two names that give the same key are
// refused, though they may be written differently: "1" and "1.0".
type mapColumn struct {
	offsets offsets
	key     keyed
	value   column
	scratch []byte
}

func newMapColumn(t chschema.Type, o *options) *mapColumn {
	return &mapColumn{key: newColumn(t.Elem[0], o).(keyed), value: newColumn(t.Elem[1], o)}
}

func (c *mapColumn) appendJSON(s *scanner) bool {
	if s.peek() != '{' {
		return s.wrongType("an object")
	}
	if !s.open() {
		return false
	}
	n := c.offsets.start(len(c.offsets))
	if s.peek() == '}' {
		s.pos++
		s.depth--
	} else {
		object := s.names.open()
		for again := true; again; n++ {
			var ok bool
			if !c.appendPair(s, &object, n) {
				return false
			}
			if again, ok = s.more('}'); !ok {
				return false
			}
		}
		s.names.close(object)
	}
	c.offsets = append(c.offsets, uint64(n))
	return true
}

func (c *mapColumn) appendPair(s *scanner, object *openNames, n int) bool {
	if s.peek() != '"' {
		return s.malformed("a name")
	}
	start := s.pos
	if !c.key.appendJSON(s) {
		return s.within("{key}")
	}
	end := s.pos
	c.scratch = c.key.appendKey(c.scratch[:0], n)
	if !s.names.add(object, c.scratch, -1) {
		return s.fail(ClassDuplicate, start, "the key occurs twice in one Map")
	}
	if !s.colon() {
		return false
	}
	s.peek()
	if !c.value.appendJSON(s) {
		return s.within("{" + string(s.data[start:end]) + "}")
	}
	return true
}

func (c *mapColumn) truncate(n int) {
	c.offsets = c.offsets[:n]
	c.key.truncate(c.offsets.start(n))
	c.value.truncate(c.offsets.start(n))
}

func (c *mapColumn) len() int  { return len(c.offsets) }
func (c *mapColumn) size() int { return 8*len(c.offsets) + c.key.size() + c.value.size() }

func (c *mapColumn) appendState(dst []byte) []byte {
	return c.value.appendState(c.key.appendState(dst))
}

func (c *mapColumn) appendNative(dst []byte, from, to int) []byte {
	dst = c.offsets.appendNative(dst, from, to)
	start, end := c.offsets.start(from), c.offsets.start(to)
	return c.value.appendNative(c.key.appendNative(dst, start, end), start, end)
}

// equal compares the pairs in their order: the server keeps it.
func (c *mapColumn) equal(i, j int) bool {
	a, b := c.offsets.start(i), c.offsets.start(j)
	n := c.offsets.end(i) - a
	if c.offsets.end(j)-b != n {
		return false
	}
	for k := range n {
		if !c.key.equal(a+k, b+k) || !c.value.equal(a+k, b+k) {
			return false
		}
	}
	return true
}

func (c *mapColumn) appendText(dst []byte, i int, _ bool) []byte {
	dst = append(dst, '{')
	for k := c.offsets.start(i); k < c.offsets.end(i); k++ {
		if k > c.offsets.start(i) {
			dst = append(dst, ',')
		}
		dst = append(c.key.appendText(dst, k, true), ':')
		dst = c.value.appendText(dst, k, true)
	}
	return append(dst, '}')
}
