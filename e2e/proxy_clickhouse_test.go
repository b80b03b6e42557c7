package e2e

import (
	"bytes"
	"sync"
)

// Where an insert is cut. In ClickHouse's native protocol the client sends the statement, the server answers with the
// columns, the client sends the rows, and the server answers when they are stored.
type trapPlace string

const (
	beforeRows  trapPlace = "before the rows"                           // the server knows the statement and gets no row
	withinRows  trapPlace = "within the rows"                           // the server gets the beginning of the block
	afterStored trapPlace = "after they were stored, before the answer" // the server says so; the client never hears it
)

// insertWatch reads along between a projector and ClickHouse, and cuts the next insert where it is told to.
type insertWatch struct {
	mu    sync.Mutex
	traps []trap
	cuts  map[trapPlace]int // traps that a client has run into
}

// trap waits for an insert. then is called at its place, before the connection is cut; nil is nothing.
type trap struct {
	place trapPlace
	then  func()
}

// set adds a trap for an insert to come.
func (w *insertWatch) set(t trap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traps = append(w.traps, t)
}

// forget gives up the traps that nobody has run into, and returns how many inserts were cut where.
func (w *insertWatch) forget() map[trapPlace]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	cuts := w.cuts
	w.traps, w.cuts = nil, nil
	return cuts
}

// take returns the oldest trap.
func (w *insertWatch) take() (t trap, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.traps) == 0 {
		return t, false
	}
	t, w.traps = w.traps[0], w.traps[1:]
	return t, true
}

func (w *insertWatch) cut(t trap) error {
	w.mu.Lock()
	if w.cuts == nil {
		w.cuts = map[trapPlace]int{}
	}
	w.cuts[t.place]++
	w.mu.Unlock()
	if t.then != nil {
		t.then()
	}
	return errCut
}

// watch is one connection.
func (w *insertWatch) watch() (requests, answers filter) {
	const (
		endOfStream = 5 // the packet that ends a query that succeeded is this byte alone
		exception   = 2 // the packet that ends one that failed begins with this byte
	)
	var (
		mu      sync.Mutex
		asked   bool  // an insert's statement has passed
		rows    int   // bytes of its block that have passed
		caught  *trap // the answer to this insert is swallowed
		carried []byte
	)
	requests = func(chunk []byte) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if statement(&carried, chunk) {
			asked, rows = true, 0
			return chunk, nil
		}
		if !asked {
			return chunk, nil
		}
		if rows == 0 {
			if t, ok := w.take(); ok {
				switch t.place {
				case beforeRows:
					return nil, w.cut(t)
				case withinRows:
					return chunk[:len(chunk)/2], w.cut(t)
				case afterStored:
					caught = &t
				}
			}
		}
		rows += len(chunk)
		return chunk, nil
	}
	answers = func(chunk []byte) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if !asked || rows == 0 {
			return chunk, nil
		}
		switch last := chunk[len(chunk)-1]; {
		case chunk[0] == exception: // it was not stored, and the client must know: the trap is for another one
			if caught != nil {
				w.set(*caught)
			}
			asked, caught = false, nil
		case caught != nil && last == endOfStream:
			return nil, w.cut(*caught)
		case caught != nil:
			return nil, nil
		case last == endOfStream:
			asked = false
		}
		return chunk, nil
	}
	return requests, answers
}

// statement reports whether an insert's statement begins in the stream with this chunk. carried keeps the end of the
// stream, in case it lies across two chunks.
func statement(carried *[]byte, chunk []byte) bool {
	needle := []byte("INSERT INTO ")
	all := append(*carried, chunk...)
	found := bytes.Contains(all, needle)
	*carried = append((*carried)[:0:0], all[max(0, len(all)-len(needle)+1):]...)
	return found
}
