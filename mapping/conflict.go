package mapping

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
)

// conflictTable finds rows of one identity and version. It is the scratch of
// Rows.Conflicts and keeps its memory.
type conflictTable struct {
	hashes []uint64       // by row, of its identity and version
	slots  []conflictSlot // a power of two, at most half full
	key    []byte
}

// conflictSlot holds a row + 1 (0 = free) and a part of its hash, so that most
// rows need not be looked at to know that they are others.
type conflictSlot struct {
	row  uint32
	hash uint32
}

// Conflicts yields pairs of rows that have the same identity and version but
// differ in another business column, which the server could not keep apart:
// whichever is inserted last would win. Each row is compared with the first
// one of its identity and version, i, and yielded as j. Lineage does not count.
// Rows must not change meanwhile.
func (r *Rows) Conflicts(yield func(i, j int) bool) {
	t := &r.conflicts
	t.reset(r.n)
	for _, c := range r.key {
		t.mix(c)
	}
	mask := uint64(len(t.slots) - 1)
	for j, h := range t.hashes {
		hash := uint32(h >> 32)
	search:
		for k := h & mask; ; k = (k + 1) & mask {
			switch slot := &t.slots[k]; {
			case slot.row == 0:
				*slot = conflictSlot{row: uint32(j + 1), hash: hash}
				break search
			case slot.hash == hash && same(r.key, int(slot.row-1), j):
				if i := int(slot.row - 1); !same(r.data, i, j) && !yield(i, j) {
					return
				}
				break search
			}
		}
	}
}

func same[C column](columns []C, i, j int) bool {
	for _, c := range columns {
		if !c.equal(i, j) {
			return false
		}
	}
	return true
}

// secret makes the collisions of rows unpredictable for whoever writes events.
var secret = maphash.Bytes(seed, []byte("conflicts"))

func (t *conflictTable) reset(rows int) {
	size := 64
	for size < 2*rows {
		size *= 2
	}
	if cap(t.slots) < size {
		t.slots = make([]conflictSlot, size)
		t.hashes = make([]uint64, size/2)
	}
	t.slots, t.hashes = t.slots[:size], t.hashes[:rows]
	clear(t.slots)
	for i := range t.hashes {
		t.hashes[i] = secret
	}
}

// mix takes the values of a column into the hashes. The usual keys are
// integers of one word and are read without going through the column.
func (t *conflictTable) mix(c keyed) {
	if f, ok := c.(interface{ words() []byte }); ok {
		if words := f.words(); words != nil {
			for i := range t.hashes {
				t.hashes[i] = fold(t.hashes[i], binary.LittleEndian.Uint64(words[8*i:]))
			}
			return
		}
	}
	for i := range t.hashes {
		t.key = c.appendKey(t.key[:0], i)
		t.hashes[i] = fold(t.hashes[i], maphash.Bytes(seed, t.key))
	}
}

// fold mixes two words by the halves of a product, as wyhash does.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0xA0761D6478BD642F, b^secret^0xE7037ED1A0B428DB)
	return hi ^ lo
}
