package mapping

import (
	"strconv"

	"github.com/chprojector/projector/chschema"
)

// enumColumn holds Enum8 or Enum16. It reads a string as a name, never as a
// number, and a number as a value; both must be among those of the type.
type enumColumn struct {
	fixed
	typ    chschema.Type
	byName map[string]int16
	names  map[int16]string
}

func newEnumColumn(t chschema.Type) *enumColumn {
	c := &enumColumn{
		fixed:  fixed{width: t.Size()},
		typ:    t,
		byName: make(map[string]int16, len(t.Enum)),
		names:  make(map[int16]string, len(t.Enum)),
	}
	for _, v := range t.Enum {
		c.byName[v.Name] = v.Value
		c.names[v.Value] = v.Name
	}
	return c
}

func (c *enumColumn) appendJSON(s *scanner) bool {
	start := s.pos
	if s.peek() == '"' {
		text, ok := s.str()
		if !ok {
			return false
		}
		v, ok := c.byName[string(text)]
		if !ok {
			return s.fail(ClassRange, start, "no name of "+c.brief())
		}
		c.append(v)
		return true
	}
	text, ok := s.numeral("a name or a value of an Enum")
	if !ok {
		return false
	}
	w, negative, out := scaled(text, 0, false)
	if out == exact && w.less(&wide{1 << 16}) {
		v := int(w[0])
		if negative {
			v = -v
		}
		if _, ok := c.names[int16(v)]; ok && int(int16(v)) == v {
			c.append(int16(v))
			return true
		}
	}
	return s.fail(ClassRange, start, "no value of "+c.brief())
}

func (c *enumColumn) append(v int16) {
	c.data = append(c.data, byte(v))
	if c.width == 2 {
		c.data = append(c.data, byte(v>>8))
	}
}

// appendZero appends the least value, since 0 need not be one; it only ever
// stands beneath a NULL, and the server takes the same.
func (c *enumColumn) appendZero() { c.append(c.typ.Enum[0].Value) }

func (c *enumColumn) brief() string {
	const enough = 200
	text := c.typ.String()
	if len(text) > enough {
		return c.typ.Kind.String() + " with " + strconv.Itoa(len(c.typ.Enum)) + " names"
	}
	return text
}

func (c *enumColumn) appendText(dst []byte, i int, quoted bool) []byte {
	b := c.at(i)
	v := int16(int8(b[0]))
	if c.width == 2 {
		v = int16(b[0]) | int16(b[1])<<8
	}
	return appendString(dst, []byte(c.names[v]), quoted)
}
