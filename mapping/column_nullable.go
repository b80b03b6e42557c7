package mapping

// nullableColumn holds Nullable(T): a mask with 1 for NULL, and values of
// which those beneath a NULL are zero.
type nullableColumn struct {
	mask  []byte
	inner scalar
}

func (c *nullableColumn) appendJSON(s *scanner) bool {
	if s.peek() == 'n' {
		if !s.literal("null") {
			return false
		}
		c.mask = append(c.mask, 1)
		c.inner.appendZero()
		return true
	}
	c.mask = append(c.mask, 0)
	return c.inner.appendJSON(s)
}

func (c *nullableColumn) truncate(n int) {
	c.mask = c.mask[:n]
	c.inner.truncate(n)
}

func (c *nullableColumn) len() int                      { return len(c.mask) }
func (c *nullableColumn) size() int                     { return len(c.mask) + c.inner.size() }
func (c *nullableColumn) appendState(dst []byte) []byte { return c.inner.appendState(dst) }

func (c *nullableColumn) appendNative(dst []byte, from, to int) []byte {
	return c.inner.appendNative(append(dst, c.mask[from:to]...), from, to)
}

func (c *nullableColumn) equal(i, j int) bool {
	return c.mask[i] == c.mask[j] && c.inner.equal(i, j)
}

func (c *nullableColumn) appendText(dst []byte, i int, quoted bool) []byte {
	if c.mask[i] != 0 {
		return append(dst, "NULL"...)
	}
	return c.inner.appendText(dst, i, quoted)
}
