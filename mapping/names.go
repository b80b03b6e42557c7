package mapping

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
)

// fewNames is how many names of one object are compared one by one. Beyond it
// a hash table takes over, so that no event makes the check quadratic.
const fewNames = 16

// A nameSet finds names that occur twice in one object of a text. The names of
// all objects that are open at a time form a stack.
type nameSet struct {
	names []seenName
	text  []byte // being scanned
	arena []byte // names that stand in no such form in the text: they had escapes
	table nameTable
}

// seenName is a name of an open object.
type seenName struct {
	print uint64 // differs for most different names
	start int32  // in the text; a negative one is the complement of that in the arena
	size  uint32
}

// openNames is an object whose end has not come: where its names begin, and
// its number in the hash table, 0 while it has few names.
type openNames struct {
	names, arena int
	number       uint32
}

// seed makes the collisions of names unpredictable for whoever writes events.
var seed = maphash.MakeSeed()

// keptNames is how many names of an event keep their memory for the next one:
// one event with a hundred thousand must not cost its memory for ever.
const keptNames = 1 << 12

func (n *nameSet) reset(text []byte) {
	if cap(n.names) > keptNames {
		n.names = nil
	}
	if cap(n.arena) > keptNames*16 {
		n.arena = nil
	}
	n.names, n.text, n.arena = n.names[:0], text, n.arena[:0]
	n.table.reset()
}

func (n *nameSet) open() openNames {
	return openNames{names: len(n.names), arena: len(n.arena)}
}

// close forgets the names of the object that was opened last.
func (n *nameSet) close(o openNames) {
	n.names, n.arena = n.names[:o.names], n.arena[:o.arena]
}

// of returns the bytes of a name.
func (n *nameSet) of(e *seenName) []byte {
	if e.start < 0 {
		return n.arena[^e.start:][:e.size]
	}
	return n.text[e.start:][:e.size]
}

// add reports whether name is new in the object. At is where the name stands
// in the text, -1 if it does not stand there as it is.
func (n *nameSet) add(o *openNames, name []byte, at int) bool {
	e := seenName{print: fingerprint(name), start: int32(at), size: uint32(len(name))}
	if o.number == 0 {
		seen := n.names[o.names:]
		for i := range seen {
			if seen[i].print == e.print && bytes.Equal(n.of(&seen[i]), name) {
				return false
			}
		}
	}
	if at < 0 {
		e.start = ^int32(len(n.arena))
		n.arena = append(n.arena, name...)
	}
	n.names = append(n.names, e)
	if o.number != 0 {
		return n.table.add(n, o.number, &e)
	}
	if len(n.names)-o.names > fewNames {
		o.number = n.table.open()
		for i := o.names; i < len(n.names); i++ {
			n.table.add(n, o.number, &n.names[i])
		}
	}
	return true
}

// fingerprint mixes the length with the first and the last bytes.
func fingerprint(name []byte) uint64 {
	switch n := len(name); {
	case n >= 8:
		return binary.LittleEndian.Uint64(name) ^ binary.LittleEndian.Uint64(name[n-8:])*0x9E3779B97F4A7C15 ^ uint64(n)
	case n >= 4:
		return uint64(binary.LittleEndian.Uint32(name)) | uint64(binary.LittleEndian.Uint32(name[n-4:]))<<32 ^ uint64(n)<<60
	case n >= 1:
		return uint64(name[0]) | uint64(name[n/2])<<8 | uint64(name[n-1])<<16 | uint64(n)<<60
	}
	return 0
}

// A nameTable is one hash table for all objects of a text that have many
// names. Objects have numbers that are never used again within the text, so
// the entries of one that is closed stay without being found. The next text
// forgets all entries at once, by their epoch.
type nameTable struct {
	slots   []nameSlot // a power of two, at most half full
	used    int
	objects uint32
	epoch   uint32
}

type nameSlot struct {
	epoch  uint32
	object uint32
	hash   uint32
	name   seenName
}

func (t *nameTable) reset() {
	if t.used == 0 {
		return
	}
	t.used, t.objects = 0, 0
	if len(t.slots) > 4*keptNames {
		t.slots = nil
	}
	if t.epoch++; t.epoch == 0 {
		clear(t.slots)
		t.epoch = 1
	}
}

func (t *nameTable) open() uint32 {
	t.objects++
	return t.objects
}

func (t *nameTable) add(n *nameSet, object uint32, name *seenName) bool {
	if 2*t.used >= len(t.slots) {
		t.grow()
	}
	text := n.of(name)
	hash := uint32(maphash.Bytes(seed, text)) ^ object*0x9E3779B1
	mask := uint32(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.epoch != t.epoch {
			*s = nameSlot{epoch: t.epoch, object: object, hash: hash, name: *name}
			t.used++
			return true
		}
		if s.hash == hash && s.object == object && bytes.Equal(n.of(&s.name), text) {
			return false
		}
	}
}

func (t *nameTable) grow() {
	old := t.slots
	t.slots = make([]nameSlot, max(64, 2*len(old)))
	t.epoch = max(t.epoch, 1)
	mask := uint32(len(t.slots) - 1)
	for _, e := range old {
		if e.epoch != t.epoch {
			continue
		}
		i := e.hash & mask
		for t.slots[i].epoch == t.epoch {
			i = (i + 1) & mask
		}
		t.slots[i] = e
	}
}
