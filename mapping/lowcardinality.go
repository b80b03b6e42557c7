package mapping

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/chprojector/projector/chschema"
)

// The native format of LowCardinality begins with a version of its keys, and
// each block of it with flags: the width of the keys, and that the dictionary
// follows in the block (SerializationLowCardinality in the server).
const (
	sharedDictionariesWithAdditionalKeys = 1
	hasAdditionalKeys                    = 1 << 9

	keysUInt8  = 0
	keysUInt16 = 1
	keysUInt32 = 2
)

// lowCardinality holds LowCardinality(T): a dictionary of the different
// values, and for each row the number of its value. In the dictionary of a
// nullable column entry 0 stands for NULL.
type lowCardinality struct {
	dict     scalar
	since    []uint32 // by entry: the row that brought it in; rising
	keys     []uint32
	nullable bool
	slots    []uint32 // hash table of entries + 1, 0 = free; at most half full
	scratch  []byte
}

func newLowCardinality(t chschema.Type, o *options) *lowCardinality {
	c := &lowCardinality{slots: make([]uint32, 64)}
	if t.Kind == chschema.KindNullable {
		c.nullable = true
		t = t.Elem[0]
	}
	c.dict = newColumn(t, o).(scalar)
	if c.nullable {
		c.dict.appendZero()
		c.since = append(c.since, 0)
	}
	return c
}

func (c *lowCardinality) appendJSON(s *scanner) bool {
	if c.nullable && s.peek() == 'n' {
		if !s.literal("null") {
			return false
		}
		c.keys = append(c.keys, 0)
		return true
	}
	if !c.dict.appendJSON(s) {
		return false
	}
	c.intern()
	return true
}

// appendString appends text to a column of strings.
func (c *lowCardinality) appendString(text string) {
	c.dict.(*stringColumn).appendString(text)
	c.intern()
}

// repeat appends the last row's value again.
func (c *lowCardinality) repeat() { c.keys = append(c.keys, c.keys[len(c.keys)-1]) }

// intern takes the value that was just appended to the dictionary: if it was
// there before, it goes, and the row gets the earlier number.
func (c *lowCardinality) intern() {
	last := len(c.since)
	if n := len(c.keys); n > 0 {
		if k := int(c.keys[n-1]); k >= c.first() && c.dict.equal(k, last) {
			c.dict.truncate(last)
			c.keys = append(c.keys, uint32(k))
			return
		}
	}
	i := c.slot(last)
	for ; c.slots[i] != 0; i = c.next(i) {
		if k := int(c.slots[i] - 1); c.dict.equal(k, last) {
			c.dict.truncate(last)
			c.keys = append(c.keys, uint32(k))
			return
		}
	}
	c.slots[i] = uint32(last + 1)
	c.since = append(c.since, uint32(len(c.keys)))
	c.keys = append(c.keys, uint32(last))
	if 2*len(c.since) > len(c.slots) {
		c.grow()
	}
}

// first returns the first entry that is a value.
func (c *lowCardinality) first() int {
	if c.nullable {
		return 1
	}
	return 0
}

// slot returns where the search for an entry begins.
func (c *lowCardinality) slot(entry int) int {
	c.scratch = c.dict.appendKey(c.scratch[:0], entry)
	return int(maphash.Bytes(seed, c.scratch) & uint64(len(c.slots)-1))
}

func (c *lowCardinality) next(slot int) int { return (slot + 1) & (len(c.slots) - 1) }

// grow doubles the table. Entries go in by their order, so that the youngest
// can always be taken out again: see truncate.
func (c *lowCardinality) grow() {
	c.slots = make([]uint32, 2*len(c.slots))
	for entry := c.first(); entry < len(c.since); entry++ {
		i := c.slot(entry)
		for c.slots[i] != 0 {
			i = c.next(i)
		}
		c.slots[i] = uint32(entry + 1)
	}
}

// truncate takes entries that only the forgotten rows used out of the
// dictionary, the youngest first: no other entry was placed past their slots,
// so freeing them breaks no search.
func (c *lowCardinality) truncate(n int) {
	c.keys = c.keys[:n]
	entries := len(c.since)
	for entries > c.first() && int(c.since[entries-1]) >= n {
		entries--
		if n > 0 {
			i := c.slot(entries)
			for c.slots[i] != uint32(entries+1) {
				i = c.next(i)
			}
			c.slots[i] = 0
		}
	}
	if n == 0 {
		clear(c.slots)
	}
	c.since = c.since[:entries]
	c.dict.truncate(entries)
}

func (c *lowCardinality) len() int  { return len(c.keys) }
func (c *lowCardinality) size() int { return 4*len(c.keys) + 4*len(c.since) + c.dict.size() }

func (c *lowCardinality) appendState(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(dst, sharedDictionariesWithAdditionalKeys)
}

// appendNative writes the whole dictionary, whatever part of the rows is
// asked for: entries without rows do no harm. For no rows the format has no
// bytes at all.
func (c *lowCardinality) appendNative(dst []byte, from, to int) []byte {
	if from == to {
		return dst
	}
	keys, entries := c.keys[from:to], len(c.since)
	flags := uint64(hasAdditionalKeys)
	switch {
	case entries <= 1<<8:
		flags |= keysUInt8
	case entries <= 1<<16:
		flags |= keysUInt16
	default:
		flags |= keysUInt32
	}
	dst = binary.LittleEndian.AppendUint64(dst, flags)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(entries))
	dst = c.dict.appendNative(dst, 0, entries)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(keys)))
	switch flags {
	case hasAdditionalKeys | keysUInt8:
		for _, k := range keys {
			dst = append(dst, byte(k))
		}
	case hasAdditionalKeys | keysUInt16:
		for _, k := range keys {
			dst = binary.LittleEndian.AppendUint16(dst, uint16(k))
		}
	default:
		for _, k := range keys {
			dst = binary.LittleEndian.AppendUint32(dst, k)
		}
	}
	return dst
}

// appendKey tells NULL from a value by a byte of its own.
func (c *lowCardinality) appendKey(dst []byte, i int) []byte {
	k := int(c.keys[i])
	if c.nullable {
		if k == 0 {
			return append(dst, 1)
		}
		dst = append(dst, 0)
	}
	return c.dict.appendKey(dst, k)
}

func (c *lowCardinality) equal(i, j int) bool { return c.keys[i] == c.keys[j] }

func (c *lowCardinality) appendText(dst []byte, i int, quoted bool) []byte {
	k := int(c.keys[i])
	if c.nullable && k == 0 {
		return append(dst, "NULL"...)
	}
	return c.dict.appendText(dst, k, quoted)
}
