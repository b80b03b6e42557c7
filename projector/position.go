package projector

import (
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
}

// slotIn returns the partition's slot in c, adding one that begins with r if there is none, and reports whether it did.
func (p *position) slotIn(c *cut, r *kgo.Record) (s *slot, begun bool) {
	begun = p.cut != c.id
	if begun {
		p.cut, p.slot = c.id, len(c.slots)
		c.slots = append(c.slots, slot{topic: p.topic, partition: p.partition, first: r.Offset})
	}
	return &c.slots[p.slot], begun
}

// positions are the partitions that a lane reads.
type positions struct {
	known   map[string]map[int32]*position
	counter func(topic string) prometheus.Counter

	mu     sync.Mutex
	starts map[string]map[int32]int64 // committed offsets of partitions not read from yet
}

func newPositions(counter func(topic string) prometheus.Counter) positions {
	return positions{known: map[string]map[int32]*position{}, counter: counter, starts: map[string]map[int32]int64{}}
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
	p := &position{topic: topic, partition: partition, next: -1, records: ps.counter(topic)}
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
