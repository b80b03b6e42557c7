package mapping

import (
	"bytes"
	"hash/maphash"
)

// A nameSet finds names that occur twice in one object of the text being
// scanned. All objects of a text share one hash table: an entry belongs to the
// object whose number it carries. Starting the next text forgets all entries
// at once, by their epoch.
type nameSet struct {
	slots   []nameSlot // a power of two, at most half full
	arena   []byte
	used    int
	objects uint32
	epoch   uint32
}

type nameSlot struct {
	epoch      uint32
	object     uint32
	hash       uint32
	start, end uint32 // in arena
}

// seed makes the collisions of names unpredictable for whoever writes events.
var seed = maphash.MakeSeed()

func (n *nameSet) reset() {
	if n.objects == 0 {
		return
	}
	n.arena, n.used, n.objects = n.arena[:0], 0, 0
	if n.epoch++; n.epoch == 0 {
		clear(n.slots)
		n.epoch = 1
	}
}

// open returns the number of a new object.
func (n *nameSet) open() uint32 {
	n.objects++
	return n.objects
}

// add reports whether name is new in the object.
func (n *nameSet) add(object uint32, name []byte) bool {
	if 2*n.used >= len(n.slots) {
		n.grow()
	}
	hash := uint32(maphash.Bytes(seed, name)) ^ object*0x9E3779B1
	mask := uint32(len(n.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		e := &n.slots[i]
		if e.epoch != n.epoch {
			start := uint32(len(n.arena))
			n.arena = append(n.arena, name...)
			*e = nameSlot{epoch: n.epoch, object: object, hash: hash, start: start, end: uint32(len(n.arena))}
			n.used++
			return true
		}
		if e.hash == hash && e.object == object && bytes.Equal(n.arena[e.start:e.end], name) {
			return false
		}
	}
}

func (n *nameSet) grow() {
	old := n.slots
	n.slots = make([]nameSlot, max(64, 2*len(old)))
	if n.epoch == 0 {
		n.epoch = 1
	}
	mask := uint32(len(n.slots) - 1)
	for _, e := range old {
		if e.epoch != n.epoch {
			continue
		}
		i := e.hash & mask
		for n.slots[i].epoch == n.epoch {
			i = (i + 1) & mask
		}
		n.slots[i] = e
	}
}
