package mapping

// boolColumn holds Bool, a byte of 0 or 1. It reads true and false, and a
// number that equals 0 or 1, because SQL has no other way to write a constant.
type boolColumn struct {
	fixed
}

func (c *boolColumn) appendJSON(s *scanner) bool {
	start := s.pos
	switch s.peek() {
	case 't':
		return s.literal("true") && c.append(1)
	case 'f':
		return s.literal("false") && c.append(0)
	}
	want := "true, false, 0 or 1"
	if s.peek() == '"' {
		want = "0 or 1; true and false are written without quotes"
	}
	text, ok := s.numeral(want)
	if !ok {
		return false
	}
	w, negative, out := scaled(text, 0, false)
	if out != exact || !w.less(&wide{2}) || negative && !w.isZero() {
		return s.fail(ClassRange, start, "a Bool is true, false, 0 or 1")
	}
	return c.append(byte(w[0]))
}

func (c *boolColumn) append(v byte) bool {
	c.data = append(c.data, v)
	return true
}

func (c *boolColumn) appendText(dst []byte, i int, _ bool) []byte {
	if c.data[i] != 0 {
		return append(dst, "true"...)
	}
	return append(dst, "false"...)
}
