package projector

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// group is a model of one consumer group seen by one member, with the ledger under test inside. Partitions come and
// go at any moment; while they are away, another member advances them.
type group struct {
	t            *rapid.T
	ledger       *ledger
	acknowledged map[int32]map[int64]bool
	committed    map[int32]int64
	owned        map[int32]bool
	position     map[int32]int64 // next offset to read of an owned partition
	open         *cut
	sealed       []*cut
	answer       func(p int32) int16 // the broker's answer to a commit; -1: no answer at all
}

const modelTopic = "t"

// commit is the broker. Every check of the invariant is here.
func (g *group) commit(_ context.Context, sent offsets, done onCommit) {
	resp := kmsg.NewPtrOffsetCommitResponse()
	topic := kmsg.NewOffsetCommitResponseTopic()
	topic.Topic = modelTopic
	var lost error
	for p, at := range sent[modelTopic] {
		if !g.owned[p] {
			g.t.Fatalf("offset %d of partition %d is committed, which belongs to another member", at.Offset, p)
		}
		for o := range at.Offset {
			if !g.acknowledged[p][o] {
				g.t.Fatalf("offset %d of partition %d is committed, %d is not acknowledged", at.Offset, p, o)
			}
		}
		if at.Offset < g.committed[p] {
			g.t.Fatalf("partition %d is committed back from %d to %d", p, g.committed[p], at.Offset)
		}
		part := kmsg.NewOffsetCommitResponseTopicPartition()
		part.Partition = p
		switch code := g.answer(p); code {
		case -1: // the commit may or may not have happened; here it has
			lost = errors.New("request timed out")
			g.committed[p] = at.Offset
		case 0:
			g.committed[p] = at.Offset
		default:
			part.ErrorCode = code
		}
		topic.Partitions = append(topic.Partitions, part)
	}
	resp.Topics = append(resp.Topics, topic)
	if lost != nil {
		resp = nil
	}
	done(nil, nil, resp, lost)
}

// TestCommittedIsAPrefix drives the ledger through every order of reading, sealing, settling, committing, revoking,
// losing and reading again.
func TestCommittedIsAPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &group{
			t: t, acknowledged: map[int32]map[int64]bool{}, committed: map[int32]int64{}, owned: map[int32]bool{}, position: map[int32]int64{},
		}
		g.ledger = newLedger(g.commit, func(string, int) {})
		for p := range int32(3) {
			g.acknowledged[p] = map[int64]bool{}
		}
		partition := rapid.Int32Range(0, 2)
		away := func(t *rapid.T, open *cut) {
			p := partition.Draw(t, "partition")
			if g.owned[p] {
				g.ledger.forget(open, map[string][]int32{modelTopic: {p}})
				delete(g.owned, p)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"assign": func(t *rapid.T) {
				if p := partition.Draw(t, "partition"); !g.owned[p] {
					g.owned[p], g.position[p] = true, g.committed[p]
				}
			},
			"read": func(t *rapid.T) {
				p := partition.Draw(t, "partition")
				if !g.owned[p] {
					return
				}
				if g.open == nil {
					g.open = &cut{done: make(chan struct{})}
				}
				from := g.position[p]
				g.position[p] += int64(rapid.IntRange(1, 9).Draw(t, "records"))
				g.open.slots = append(g.open.slots, slot{topic: modelTopic, partition: p, first: from, next: g.position[p]})
			},
			"seal": func(*rapid.T) {
				if g.open != nil {
					g.ledger.take(g.open)
					g.sealed = append(g.sealed, g.open)
					g.open = nil
				}
			},
			"settle": func(t *rapid.T) {
				if len(g.sealed) == 0 {
					return
				}
				c := g.sealed[0]
				g.sealed = g.sealed[1:]
				for i := range c.slots {
					for o := c.slots[i].first; o < c.slots[i].next; o++ {
						g.acknowledged[c.slots[i].partition][o] = true
					}
				}
				g.ledger.acknowledge(c, func(*slot) {})
				g.ledger.settle(c)
			},
			"commit": func(t *rapid.T) {
				g.answer = func(int32) int16 {
					return rapid.SampledFrom([]int16{0, 0, kerr.RebalanceInProgress.Code, kerr.UnknownMemberID.Code, -1}).Draw(t, "answer")
				}
				_ = g.ledger.flush(t.Context())
			},
			"revoke": func(t *rapid.T) { away(t, g.open) }, // as after a lost session: the open cut is not sealed first
			"another member works": func(t *rapid.T) {
				p := partition.Draw(t, "partition")
				if g.owned[p] {
					return
				}
				for range rapid.IntRange(1, 9).Draw(t, "records") {
					g.acknowledged[p][g.committed[p]] = true
					g.committed[p]++
				}
			},
		})
		// At rest everything acknowledged of the partitions owned is committed.
		if g.open != nil {
			g.ledger.take(g.open)
			g.sealed = append(g.sealed, g.open)
		}
		for _, c := range g.sealed {
			for i := range c.slots {
				for o := c.slots[i].first; o < c.slots[i].next; o++ {
					g.acknowledged[c.slots[i].partition][o] = true
				}
			}
			g.ledger.acknowledge(c, func(*slot) {})
			g.ledger.settle(c)
		}
		g.answer = func(int32) int16 { return 0 }
		if err := g.ledger.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for p := range g.owned {
			if g.committed[p] != g.position[p] {
				t.Fatalf("partition %d is read up to %d and committed up to %d", p, g.position[p], g.committed[p])
			}
		}
		if g.ledger.dueOf(nil) {
			t.Fatal("offsets are still due after a commit that was accepted")
		}
	})
}

func TestForgetWaitsForTheCommitInFlight(t *testing.T) {
	synctest.Test(t, forgetWaits)
}

func forgetWaits(t *testing.T) {
	inFlight, answer := make(chan struct{}), make(chan struct{})
	var sent offsets
	l := newLedger(func(_ context.Context, o offsets, done onCommit) {
		sent = maps.Clone(o)
		close(inFlight)
		<-answer
		done(nil, nil, nil, errors.New("no answer"))
	}, func(string, int) {})
	c := &cut{done: make(chan struct{}), slots: []slot{{topic: modelTopic, partition: 1, next: 5}}}
	l.take(c)
	l.acknowledge(c, func(*slot) {})
	flushed := make(chan error)
	go func() { flushed <- l.flush(t.Context()) }()
	<-inFlight
	forgotten := make(chan int, 1)
	go func() { forgotten <- l.forget(nil, map[string][]int32{modelTopic: {1}}) }()
	synctest.Wait()
	select {
	case <-forgotten:
		t.Fatal("forget returned while a commit of the partition was in flight")
	default:
	}
	close(answer)
	if err := <-flushed; err == nil {
		t.Error("a commit without an answer was taken for a success")
	}
	if n := <-forgotten; n == 0 {
		t.Error("nothing was given up")
	}
	if sent[modelTopic][1] != (kgo.EpochOffset{Offset: 5}) || l.dueOf(nil) {
		t.Errorf("sent %v, due %v", sent, l.due)
	}
}
