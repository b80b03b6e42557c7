package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ledger knows which offsets are on their way to a commit: those in sealed cuts, and those acknowledged but not yet
// committed. It is the only thing that poll loop, sender and rebalance callbacks share.
//
// Offsets of a partition only ever grow: cuts are settled in the order in which they were filled, a later
// acknowledgment replaces an earlier one, and one commit is in flight at a time. A commit that Kafka refuses stays
// due and goes out with the next one, so that the lag of a partition that falls silent after a refused commit does
// not stay up for ever.
type ledger struct {
	commit func(context.Context, offsets, onCommit) // the client's CommitOffsetsSync, as the member that may commit
	count  func(outcome string, partitions int)     // counts the outcome of commits

	gate chan struct{} // holds a token while a commit is in flight

	mu     sync.Mutex
	flying []*cut  // sealed and not settled, oldest first
	due    offsets // acknowledged and not committed
}

type (
	offsets  = map[string]map[int32]kgo.EpochOffset
	onCommit = func(*kgo.Client, *kmsg.OffsetCommitRequest, *kmsg.OffsetCommitResponse, error)
)

func newLedger(commit func(context.Context, offsets, onCommit), count func(string, int)) *ledger {
	return &ledger{commit: commit, count: count, gate: make(chan struct{}, 1), due: offsets{}}
}

// take notes that c was sealed.
func (l *ledger) take(c *cut) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying = append(l.flying, c)
}

// acknowledge makes the offsets of c due, except those that were forgotten, and shows their slots to visible.
func (l *ledger) acknowledge(c *cut, visible func(*slot)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range c.slots {
		s := &c.slots[i]
		if s.forgotten {
			continue
		}
		if l.due[s.topic] == nil {
			l.due[s.topic] = map[int32]kgo.EpochOffset{}
		}
		l.due[s.topic][s.partition] = kgo.EpochOffset{Epoch: s.epoch, Offset: s.next}
		visible(s)
	}
}

// settle ends the flight of c, whose offsets are committed or due.
func (l *ledger) settle(c *cut) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying = slices.DeleteFunc(l.flying, func(o *cut) bool { return o == c })
	close(c.done)
}

// holding returns the ends of the sealed cuts that would commit an offset of one of the partitions.
func (l *ledger) holding(partitions map[string][]int32) []<-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ends []<-chan struct{}
	for _, c := range l.flying {
		if c.holds(partitions) {
			ends = append(ends, c.done)
		}
	}
	return ends
}

// forget sees to it that no offset of the partitions is committed from now on: neither from open, which the caller
// owns, nor from a sealed cut, nor by a commit still in flight when forget returns. It returns how many offsets were
// given up.
func (l *ledger) forget(open *cut, partitions map[string][]int32) int {
	l.mu.Lock()
	n := 0
	cuts := l.flying
	if open != nil {
		cuts = append(slices.Clip(cuts), open)
	}
	for _, c := range cuts {
		for i := range c.slots {
			if s := &c.slots[i]; !s.forgotten && contains(partitions, s.topic, s.partition) {
				s.forgotten = true
				n++
			}
		}
	}
	for topic, ps := range partitions {
		for _, p := range ps {
			if _, ok := l.due[topic][p]; ok {
				delete(l.due[topic], p)
				n++
			}
		}
	}
	l.mu.Unlock()
	// A commit in flight has its own deadline, so this wait has one too.
	l.gate <- struct{}{}
	<-l.gate
	return n
}

// unacknowledged describes the sealed cuts that were not settled, and why; nil if there are none.
func (l *ledger) unacknowledged(why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flying) == 0 {
		return nil
	}
	records := 0
	var places []string
	for _, c := range l.flying {
		records += c.records
		for i := range c.slots {
			s := &c.slots[i]
			places = append(places, fmt.Sprintf("%s/%d offsets %d to %d", s.topic, s.partition, s.first, s.next-1))
		}
	}
	return fmt.Errorf("%d records are not acknowledged and will be read again (%s): %w", records, strings.Join(places, ", "), why)
}

// dueOf reports whether an offset of one of the partitions is due; with nil, whether any is.
func (l *ledger) dueOf(partitions map[string][]int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for topic, ps := range l.due {
		for p := range ps {
			if partitions == nil || contains(partitions, topic, p) {
				return true
			}
		}
	}
	return false
}

// flush commits what is due. What Kafka does not accept stays due; the error says why. The caller gives ctx a
// deadline.
func (l *ledger) flush(ctx context.Context) error {
	select {
	case l.gate <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.gate }()
	sent, n := l.snapshot()
	if n == 0 {
		return nil
	}
	var result error
	l.commit(ctx, sent, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		result = l.committed(sent, resp, err)
	})
	return result
}

// snapshot copies what is due, because kgo reads the map while others may forget.
func (l *ledger) snapshot() (offsets, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sent, n := offsets{}, 0
	for topic, ps := range l.due {
		if len(ps) == 0 {
			continue
		}
		sent[topic] = make(map[int32]kgo.EpochOffset, len(ps))
		for p, at := range ps {
			sent[topic][p] = at
			n++
		}
	}
	return sent, n
}

// committed takes what Kafka accepted off the list.
func (l *ledger) committed(sent offsets, resp *kmsg.OffsetCommitResponse, err error) error {
	if err != nil {
		n := 0
		for _, ps := range sent {
			n += len(ps)
		}
		l.count("failed", n)
		return fmt.Errorf("commit %d offsets: %w", n, err)
	}
	accepted, refused := 0, 0
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				refused++
				continue
			}
			accepted++
			if l.due[t.Topic][p.Partition] == sent[t.Topic][p.Partition] {
				delete(l.due[t.Topic], p.Partition)
			}
		}
	}
	l.count("accepted", accepted)
	l.count("refused", refused)
	return refusals(sent, resp)
}

// refusals returns what Kafka did not accept of a commit.
func refusals(sent offsets, resp *kmsg.OffsetCommitResponse) error {
	var errs []error
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				errs = append(errs, fmt.Errorf("commit offset %d of %s/%d: %w", sent[t.Topic][p.Partition].Offset, t.Topic, p.Partition, err))
			}
		}
	}
	return errors.Join(errs...)
}

// contains reports whether partitions names the partition.
func contains(partitions map[string][]int32, topic string, partition int32) bool {
	return slices.Contains(partitions[topic], partition)
}
