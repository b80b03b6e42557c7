package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// batch is a claim on its way through Kafka. One goroutine uses it.
type batch struct {
	*Relay
	claim

	sent    []acknowledged
	refused []failed        // by the broker, or for want of a payload
	shut    []event         // their topic takes nothing, or there is none for their type
	settled map[uint64]bool // ids of all of these
	trouble error           // why the rest was not published
}

func newBatch(r *Relay, c claim) *batch {
	return &batch{Relay: r, claim: c, settled: make(map[uint64]bool, len(c.events))}
}

// publish sends the events in groups, in the order of their ids, which within
// an aggregate is that of its versions.
func (b *batch) publish(ctx context.Context) {
	var g group
	err := b.store.payloads(ctx, b.events, func(e *event, payload []byte) error {
		if len(payload) == 0 {
			b.refuse(e, errNoPayload, true)
			return nil
		}
		topic, ok := b.config.topic(e.aggregateType)
		if !ok || b.isClosed(topic) {
			b.turnAway(e, topic)
			return nil
		}
		r := record(b.shard, topic, e, payload)
		if len(g.records) > 0 && g.bytes+size(r) > groupBytes {
			b.send(ctx, &g)
		}
		g.add(e, r)
		return ctx.Err()
	})
	if len(g.records) > 0 {
		b.send(ctx, &g)
	}
	b.trouble = errors.Join(err, b.trouble)
}

// group is what is sent at once.
type group struct {
	records []*kgo.Record
	events  []*event
	bytes   int
}

func (g *group) add(e *event, r *kgo.Record) {
	g.records, g.events, g.bytes = append(g.records, r), append(g.events, e), g.bytes+size(r)
}

// send publishes a group, sorts its events by outcome, and empties it.
func (b *batch) send(ctx context.Context, g *group) {
	start := time.Now()
	outcomes := b.kafka.Publish(ctx, g.records)
	b.metrics.observe(b.metrics.m.publish, time.Since(start))
	for i, o := range outcomes {
		e := g.events[i]
		switch {
		case o.Err == nil:
			b.settled[e.id] = true
			b.sent = append(b.sent, acknowledged{e, o.Partition, o.Offset})
		case theirOwn(o.Err):
			b.refuse(e, o.Err, e.attempts >= b.config.Attempts)
		case topicTrouble(o.Err):
			topic := g.records[i].Topic
			if !b.isClosed(topic) {
				b.closed[topic] = time.Now().Add(topicPause)
				b.log.Warn().Err(o.Err).Str("topic", topic).Msg("a topic takes nothing: create it, grant WRITE on it, or correct outbox.topics; its events wait")
			}
			b.turnAway(e, topic)
		case b.trouble == nil:
			b.trouble = fmt.Errorf("publish to %s: %w", g.records[i].Topic, o.Err)
		}
	}
	*g = group{}
}

// refuse notes that an event failed for what it is.
func (b *batch) refuse(e *event, err error, park bool) {
	b.settled[e.id] = true
	b.refused = append(b.refused, failed{event: e, err: err, park: park, delay: jittered(e.attempts, b.config.BackoffMin, b.config.BackoffMax)})
}

// errNoPayload is a defect of the application, which no further attempt cures.
// Published, an empty value would be a tombstone: compaction would take it for
// the end of the key, and a consumer for a deletion that nobody has asked for.
var errNoPayload = errors.New("the payload is empty: an event is the complete state of its aggregate, and a deletion a state that says so (isDeleted: true); correct the payload in the table, then: projector outbox replay")

// topicPause is how long events of a topic that takes nothing are left alone.
// They must not fill every claim, nor cost the attempts that would park them.
const topicPause = 10 * time.Second

// isClosed reports whether a topic took nothing a moment ago.
func (b *batch) isClosed(topic string) bool { return time.Now().Before(b.closed[topic]) }

// topicTrouble is of one topic as a whole.
func topicTrouble(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.InvalidTopicException)
}

func (b *batch) turnAway(e *event, topic string) {
	b.settled[e.id] = true
	b.shut = append(b.shut, *e)
	if topic == "" && time.Now().After(b.unknown[e.aggregateType]) {
		b.unknown[e.aggregateType] = time.Now().Add(topicPause)
		b.log.Warn().Str("aggregate_type", e.aggregateType).Msg("no topic for an aggregate type: add it to outbox.topics; its events wait")
	}
}

// settle records what became of each event. Trouble with the shard is retried
// until ctx ends with the lease; what is not recorded by then is published
// again by whoever claims it next.
func (b *batch) settle(ctx context.Context) {
	var rest []event
	for _, e := range b.events {
		if !b.settled[e.id] {
			rest = append(rest, e)
		}
	}
	reason, why, pause := "stop", "", time.Duration(0)
	if b.trouble != nil {
		reason, why, pause = "trouble", b.trouble.Error(), jittered(1, b.config.BackoffMin, b.config.BackoffMax)
	}
	b.persist(ctx, "complete", len(b.sent), func() (int, error) { return b.store.complete(ctx, b.token, b.sent) })
	b.persist(ctx, "fail", len(b.refused), func() (int, error) { return b.store.fail(ctx, b.token, b.refused) })
	b.persist(ctx, "return", len(b.shut), func() (int, error) {
		return b.store.giveBack(ctx, b.token, b.shut, topicPause/2+rand.N(topicPause/2), "its topic takes nothing, or outbox.topics names none for its aggregate_type")
	})
	b.persist(ctx, "return", len(rest), func() (int, error) {
		return b.store.giveBack(ctx, b.token, rest, pause, why)
	})
	m := b.metrics.m
	b.metrics.add(m.returned, len(rest), reason)
	b.metrics.add(m.returned, len(b.shut), "topic")
	b.metrics.add(m.failed, len(b.refused))
	for _, f := range b.refused {
		if f.park {
			b.metrics.add(m.parked, 1)
			b.log.Error().Err(f.err).Str("event_id", f.event.eventID).Str("aggregate_type", f.event.aggregateType).Str("aggregate_id", f.event.aggregateID).
				Uint64("version", f.event.version).Int("attempts", f.event.attempts).Msg("parked; correct the cause, then: projector outbox replay")
		}
	}
}

// persist makes a transition of n events, again and again while the shard is
// in trouble, and counts those whose lease was lost.
func (b *batch) persist(ctx context.Context, transition string, n int, do func() (rejected int, err error)) {
	if n == 0 {
		return
	}
	for attempt := 1; ; attempt++ {
		rejected, err := do()
		if err == nil {
			b.settledAs(transition, n-rejected, rejected)
			return
		}
		if ctx.Err() == nil {
			b.metrics.add(b.metrics.m.errors, 1, "settle")
		}
		if !wait(ctx, jittered(attempt, least, time.Second)) {
			b.log.Warn().Err(err).Str("transition", transition).Int("events", n).Msg("claims are left to their lease; their events will be published again")
			return
		}
	}
}

func (b *batch) settledAs(transition string, n, rejected int) {
	if rejected > 0 {
		b.metrics.add(b.metrics.m.rejected, rejected, transition)
		b.log.Warn().Str("transition", transition).Int("events", rejected).Msg("the lease was lost before this; whoever holds the events now goes on")
	}
	if transition != "complete" {
		return
	}
	b.metrics.add(b.metrics.m.sent, n)
	since := time.Since(b.since)
	for _, a := range b.sent {
		b.metrics.observe(b.metrics.m.delay, a.event.age+since)
		b.metrics.m.attempts.WithLabelValues(b.shard).Observe(float64(a.event.attempts))
	}
}
