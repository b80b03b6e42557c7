//go:build synctests

package projector

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// place is a record's place in the test's topic.
type place struct {
	partition int32
	offset    int64
}

// store stands for ClickHouse and the dead-letter topic together: it knows which records were acknowledged, and by
// which of the two.
type store struct {
	mu      sync.Mutex
	rows    map[place]int
	letters map[place]Letter
	prefix  map[int32]int64 // every record of the partition below it is acknowledged
	changed chan struct{}   // closed and replaced at every acknowledgment
}

func newStore() *store {
	return &store{
		rows: map[place]int{}, letters: map[place]Letter{}, prefix: map[int32]int64{},
		changed: make(chan struct{}),
	}
}

// insert acknowledges the rows of b.
func (s *store) insert(b Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := b.From; i < b.To; i++ {
		at := b.Rows.Lineage(i)
		s.rows[place{at.Partition, at.Offset}]++
	}
	s.advance()
}

// Park acknowledges letters.
func (s *store) Park(_ context.Context, letters []Letter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range letters {
		s.letters[place{l.Partition, l.Offset}] = l
	}
	s.advance()
	return nil
}

func (s *store) advance() {
	for p := range maps.Keys(s.prefix) {
		s.prefix[p] = s.reach(p, s.prefix[p])
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *store) reach(partition int32, from int64) int64 {
	for {
		at := place{partition, from}
		if _, parked := s.letters[at]; !parked && s.rows[at] == 0 {
			return from
		}
		from++
	}
}

// nothing notes that there is no event at an offset, so that nobody need acknowledge it.
func (s *store) nothing(partition int32, offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letters[place{partition, offset}] = Letter{}
}

// acknowledged returns the offset below which every record of the partition is acknowledged.
func (s *store) acknowledged(partition int32) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prefix[partition] = s.reach(partition, s.prefix[partition])
	return s.prefix[partition]
}

// acknowledgedFrom returns the offset up to which every record from the given one on is acknowledged.
func (s *store) acknowledgedFrom(partition int32, from int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reach(partition, from)
}

// has reports whether a record was inserted or parked.
func (s *store) has(partition int32, offset int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reach(partition, offset) > offset
}

// patience is how long, by the bubble's clock, a test waits for what must happen.
const patience = time.Hour

// await blocks until ok holds, which is asked again after every acknowledgment.
func (s *store) await(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// counts returns how many different records were inserted and parked, and how often a record was inserted again.
func (s *store) counts() (inserted, parked, repeated int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.rows {
		repeated += n - 1
	}
	return len(s.rows), len(s.letters), repeated
}

// ledgerCheck watches every offset commit at the broker.
type ledgerCheck struct {
	mu       sync.Mutex
	commits  int
	early    []string // commits ahead of what was acknowledged
	backward []string // commits of one member that went back
	seen     []commitSeen
	last     map[string]int64
}

// commitSeen is one partition of one commit request.
type commitSeen struct {
	member    string // begins with the client ID
	partition int32
	offset    int64
}

func (c *ledgerCheck) request(s *store, req *kmsg.OffsetCommitRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			c.commits++
			c.seen = append(c.seen, commitSeen{req.MemberID, p.Partition, p.Offset})
			if have := s.acknowledged(p.Partition); p.Offset > have {
				c.early = append(c.early, fmt.Sprintf("partition %d: offset %d committed, acknowledged up to %d", p.Partition, p.Offset, have))
			}
			owner := fmt.Sprintf("%s/%d/%d", req.MemberID, req.Generation, p.Partition)
			if p.Offset < c.last[owner] {
				c.backward = append(c.backward, fmt.Sprintf("partition %d: offset %d committed after %d", p.Partition, p.Offset, c.last[owner]))
			}
			c.last[owner] = p.Offset
		}
	}
}

// found returns how many commits were early.
func (c *ledgerCheck) found() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.early)
}
