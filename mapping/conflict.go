package mapping

import (
	"bytes"
	"hash/maphash"
)

// conflictTable finds rows of one identity and version. It is the scratch of
// Rows.Conflicts and keeps its memory.
type conflictTable struct {
	slots []conflictSlot // a power of two, at most half full
	key   []byte
	other []byte
}

// conflictSlot holds a row + 1 (0 = free) and a part of its hash, so that
// most comparisons of keys need not be made.
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
	mask := uint32(len(t.slots) - 1)
	for j := range r.n {
		t.key = r.appendVersionKey(t.key[:0], j)
		h := maphash.Bytes(seed, t.key)
		hash := uint32(h >> 32)
	search:
		for k := uint32(h) & mask; ; k = (k + 1) & mask {
			switch slot := &t.slots[k]; {
			case slot.row == 0:
				*slot = conflictSlot{row: uint32(j + 1), hash: hash}
				break search
			case slot.hash == hash:
				i := int(slot.row - 1)
				t.other = r.appendVersionKey(t.other[:0], i)
				if !bytes.Equal(t.key, t.other) {
					continue
				}
				if !r.sameContent(i, j) && !yield(i, j) {
					return
				}
				break search
			}
		}
	}
}

func (t *conflictTable) reset(rows int) {
	size := 64
	for size < 2*rows {
		size *= 2
	}
	if cap(t.slots) < size {
		t.slots = make([]conflictSlot, size)
		return
	}
	t.slots = t.slots[:size]
	clear(t.slots)
}

func (r *Rows) appendVersionKey(dst []byte, i int) []byte {
	for _, c := range r.plan.identity {
		dst = r.data[c].appendKey(dst, i)
	}
	return r.data[r.plan.version].appendKey(dst, i)
}

func (r *Rows) sameContent(i, j int) bool {
	for _, c := range r.data {
		if !c.equal(i, j) {
			return false
		}
	}
	return true
}
