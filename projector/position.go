package projector

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// position is what a lane remembers of a partition while it owns it.
type position struct {
	topic     string
	partition int32
	next      int64  // the offset expected next, -1 before it is known
	cut       uint64 // the cut that slot belongs to
	slot      int
	records   prometheus.Counter
	until     int64 // no record at or beyond it is read
	past      bool  // such a record was seen, or the log begins there by now
}

// below returns the records before until.
func (p *position) below(records []*kgo.Record) []*kgo.Record {
	if len(records) == 0 || records[len(records)-1].Offset < p.until {
		return records
	}
	p.past = true
	n, _ := slices.BinarySearchFunc(records, p.until, func(r *kgo.Record, until int64) int { return cmp.Compare(r.Offset, until) })
	for _, r := range records[n:] {
		r.Recycle()
	}
	return records[:n]
}

// slotIn returns the partition's slot in c, adding one that begins at first if there is none, and reports whether it did.
func (p *position) slotIn(c *cut, first int64) (s *slot, begun bool) {
	begun = p.cut != c.id
	if begun {
		p.cut, p.slot = c.id, len(c.slots)
		c.slots = append(c.slots, slot{topic: p.topic, partition: p.partition, first: first})
	}
	return &c.slots[p.slot], begun
}

// positions are the partitions that a lane reads.
type positions struct {
	known   map[string]map[int32]*position
	counter func(topic string) prometheus.Counter
	until   func(topic string, partition int32) int64

	mu     sync.Mutex
	starts map[string]map[int32]int64 // committed offsets of partitions not read from yet
}

func newPositions(counter func(topic string) prometheus.Counter, until func(topic string, partition int32) int64) positions {
	return positions{known: map[string]map[int32]*position{}, counter: counter, until: until, starts: map[string]map[int32]int64{}}
}

// begin notes where the group's committed offsets let newly assigned partitions start. kgo calls it from a goroutine
// of its own.
func (ps *positions) begin(fetched map[string]map[int32]kgo.Offset) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for topic, partitions := range fetched {
		if ps.starts[topic] == nil {
			ps.starts[topic] = map[int32]int64{}
		}
		for p, offset := range partitions {
			ps.starts[topic][p] = offset.EpochOffset().Offset // negative without a commit
		}
	}
}

// at returns the position of a partition. Bracket.
func (ps *positions) at(topic string, partition int32) *position {
	if p := ps.known[topic][partition]; p != nil {
		return p
	}
	p := &position{topic: topic, partition: partition, next: -1, records: ps.counter(topic), until: ps.until(topic, partition)}
	ps.mu.Lock()
	if start, ok := ps.starts[topic][partition]; ok {
		p.next = max(start, -1)
	}
	ps.mu.Unlock()
	if ps.known[topic] == nil {
		ps.known[topic] = map[int32]*position{}
	}
	ps.known[topic][partition] = p
	return p
}

// next returns the offset expected next of a partition, -1 if nothing of it was read. Bracket.
func (ps *positions) next(topic string, partition int32) int64 {
	if p := ps.known[topic][partition]; p != nil {
		return p.next
	}
	return -1
}

// reached reports whether everything of a partition that is to be read was read, in this life or, by the group's
// commits, before it. Bracket.
func (ps *positions) reached(topic string, partition int32) bool {
	if p := ps.known[topic][partition]; p != nil {
		return p.past || p.next >= p.until
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	start, ok := ps.starts[topic][partition]
	return ok && max(start, 0) >= ps.until(topic, partition) // negative without a commit
}

// drop forgets partitions that now belong to another member. Rebalance callbacks only.
func (ps *positions) drop(partitions map[string][]int32) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for topic, numbers := range partitions {
		for _, p := range numbers {
			delete(ps.known[topic], p)
			delete(ps.starts[topic], p)
		}
	}
}
