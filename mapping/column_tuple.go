package mapping

import (
	"slices"
	"strconv"

	"github.com/chprojector/projector/chschema"
)

// tupleColumn holds Tuple(…): one column for each element. It reads an array
// with exactly as many elements, or, if the elements have names, an object
// that has every name.
type tupleColumn struct {
	elements []column
	names    []string
	index    map[string]int
	seen     []uint64 // by element: the object in which it was last met
	objects  uint64
	strict   bool
}

func newTupleColumn(t chschema.Type, o *options) *tupleColumn {
	c := &tupleColumn{names: t.Names, strict: o.strict}
	for _, e := range t.Elem {
		c.elements = append(c.elements, newColumn(e, o))
	}
	if t.Names != nil {
		c.index = make(map[string]int, len(t.Names))
		c.seen = make([]uint64, len(t.Names))
		for i, n := range t.Names {
			c.index[n] = i
		}
	}
	return c
}

func (c *tupleColumn) appendJSON(s *scanner) bool {
	switch b := s.peek(); {
	case b == '[':
		return c.appendArray(s)
	case b == '{' && c.names != nil:
		return c.appendObject(s)
	case c.names != nil:
		return s.wrongType("an object or an array")
	}
	return s.wrongType("an array")
}

func (c *tupleColumn) appendArray(s *scanner) bool {
	start := s.pos
	if !s.open() {
		return false
	}
	if s.peek() == ']' {
		return s.fail(ClassType, start, "an empty array where "+strconv.Itoa(len(c.elements))+" elements were expected")
	}
	for i, e := range c.elements {
		s.peek()
		if !e.appendJSON(s) {
			return s.within("[" + strconv.Itoa(i) + "]")
		}
		again, ok := s.more(']')
		if !ok {
			return false
		}
		if again != (i+1 < len(c.elements)) {
			return s.fail(ClassType, start, "an array of another length where "+strconv.Itoa(len(c.elements))+" elements were expected")
		}
	}
	return true
}

func (c *tupleColumn) appendObject(s *scanner) bool {
	start := s.pos
	if !s.open() {
		return false
	}
	c.objects++
	object := c.objects // nested tuples have columns, and so counters, of their own
	filled := 0
	if s.peek() == '}' {
		s.pos++
		s.depth--
		return c.complete(s, start, filled, object)
	}
	unknown := s.names.open()
	for {
		if s.peek() != '"' {
			return s.malformed("a name")
		}
		at := s.pos
		name, ok := s.str()
		if !ok {
			return false
		}
		if i, known := c.index[string(name)]; known {
			if c.seen[i] == object {
				return s.fail(ClassDuplicate, at, "the name occurs twice in one object")
			}
			c.seen[i] = object
			filled++
			if !s.colon() {
				return false
			}
			s.peek()
			if !c.elements[i].appendJSON(s) {
				return s.within("." + c.names[i])
			}
		} else if !s.unknown(&unknown, name, at, c.strict) {
			return false
		}
		again, ok := s.more('}')
		if !ok {
			return false
		}
		if !again {
			s.names.close(unknown)
			return c.complete(s, start, filled, object)
		}
	}
}

func (c *tupleColumn) complete(s *scanner, start, filled int, object uint64) bool {
	if filled == len(c.elements) {
		return true
	}
	i := slices.IndexFunc(c.seen, func(seen uint64) bool { return seen != object })
	s.fail(ClassMissing, start, "no field "+strconv.Quote(c.names[i])+" for the Tuple's element")
	return s.within("." + c.names[i])
}

func (c *tupleColumn) truncate(n int) {
	for _, e := range c.elements {
		e.truncate(n)
	}
}

func (c *tupleColumn) len() int { return c.elements[0].len() }

func (c *tupleColumn) size() (n int) {
	for _, e := range c.elements {
		n += e.size()
	}
	return n
}

func (c *tupleColumn) appendState(dst []byte) []byte {
	for _, e := range c.elements {
		dst = e.appendState(dst)
	}
	return dst
}

func (c *tupleColumn) appendNative(dst []byte, from, to int) []byte {
	for _, e := range c.elements {
		dst = e.appendNative(dst, from, to)
	}
	return dst
}

func (c *tupleColumn) equal(i, j int) bool {
	for _, e := range c.elements {
		if !e.equal(i, j) {
			return false
		}
	}
	return true
}

func (c *tupleColumn) appendText(dst []byte, i int, _ bool) []byte {
	dst = append(dst, '(')
	for k, e := range c.elements {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = e.appendText(dst, i, true)
	}
	return append(dst, ')')
}
