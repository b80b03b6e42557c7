package e2e

import (
	"encoding/binary"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// frames cuts what passes into Kafka's frames: a length of four bytes, then so many bytes.
type frames struct{ buf []byte }

// add yields the frames that are complete with chunk, each with its length. They are valid until the next add.
func (f *frames) add(chunk []byte) iter.Seq[[]byte] {
	f.buf = append(f.buf, chunk...)
	return func(yield func([]byte) bool) {
		at := 0
		for {
			rest := f.buf[at:]
			if len(rest) < 4 {
				break
			}
			n := 4 + int(binary.BigEndian.Uint32(rest))
			if len(rest) < n || !yield(rest[:n:n]) {
				break
			}
			at += n
		}
		f.buf = f.buf[:copy(f.buf, f.buf[at:])]
	}
}

// delay is what befalls the broker's answer to a commit: it comes late, or it never comes and the connection is cut.
// Either way the broker has done what it was asked.
type delay struct {
	late time.Duration
	lost bool
}

// commitWatch reads along between a projector and its broker. Every commit is shown to check before the broker sees it;
// an error keeps it from the broker.
type commitWatch struct {
	check func(*kmsg.OffsetCommitRequest) error

	mu         sync.Mutex
	delays     []delay // of the answers to the next commits
	late, lost int     // answers that were
}

// next delays the answer to the next commit that has none yet.
func (c *commitWatch) next(d delay) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delays = append(c.delays, d)
}

// forget gives up the delays that have not happened and returns how many have.
func (c *commitWatch) forget() (late, lost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	late, lost = c.late, c.lost
	c.delays, c.late, c.lost = nil, 0, 0
	return late, lost
}

func (c *commitWatch) take() (delay, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.delays) == 0 {
		return delay{}, false
	}
	d := c.delays[0]
	c.delays = c.delays[1:]
	if d.lost {
		c.lost++
	} else {
		c.late++
	}
	return d, true
}

// watch is one connection. A broker answers the requests of a connection in their order, so what comes behind a late
// answer is late too.
func (c *commitWatch) watch() (requests, answers filter) {
	var (
		in, out frames
		mu      sync.Mutex
		waiting = map[int32]delay{} // by correlation id
	)
	requests = func(chunk []byte) (pass []byte, err error) {
		for frame := range in.add(chunk) {
			const key, version, correlation, client = 4, 6, 8, 12 // offsets in the header of a request
			if len(frame) > client && binary.BigEndian.Uint16(frame[key:]) == uint16(kmsg.OffsetCommit) {
				commit, err := readCommit(int16(binary.BigEndian.Uint16(frame[version:])), frame[client:])
				if err == nil {
					err = c.check(commit)
				}
				if err != nil {
					return nil, err
				}
				if d, ok := c.take(); ok {
					mu.Lock()
					waiting[int32(binary.BigEndian.Uint32(frame[correlation:]))] = d
					mu.Unlock()
				}
			}
			pass = append(pass, frame...)
		}
		return pass, nil
	}
	answers = func(chunk []byte) (pass []byte, err error) {
		for frame := range out.add(chunk) {
			if len(frame) >= 8 {
				id := int32(binary.BigEndian.Uint32(frame[4:]))
				mu.Lock()
				d, ok := waiting[id]
				delete(waiting, id)
				mu.Unlock()
				switch {
				case ok && d.lost:
					return nil, errCut
				case ok:
					<-time.After(d.late)
				}
			}
			pass = append(pass, frame...)
		}
		return pass, nil
	}
	return requests, answers
}

// readCommit decodes a commit from the client's name in its header on.
func readCommit(version int16, from []byte) (*kmsg.OffsetCommitRequest, error) {
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.SetVersion(version)
	b := kbin.Reader{Src: from}
	b.NullableString()
	if commit.IsFlexible() {
		kmsg.SkipTags(&b)
	}
	if err := b.Complete(); err != nil {
		return nil, fmt.Errorf("read the header of a commit: %w", err)
	}
	if err := commit.ReadFrom(b.Src); err != nil {
		return nil, fmt.Errorf("read a commit: %w", err)
	}
	return commit, nil
}
