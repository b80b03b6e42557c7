package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/kafka"
)

const (
	// groupBytes is what is sent at once, before compression. franz-go makes one
	// batch of what it has for a partition, and a broker refuses a batch for its
	// size as a whole: with groups of half of Kafka's default max.message.bytes
	// that happens only to events that are large themselves.
	groupBytes = 512 << 10
	// largest is more than a MEDIUMTEXT holds: the client's own limit is out of
	// the way, and the topic's decides.
	largest = 32 << 20
)

// Headers of a published record. The key is the aggregate's id, so that all
// versions of one aggregate meet in one partition.
const (
	HeaderEvent     = "event-id"
	HeaderAggregate = "aggregate-type"
	HeaderVersion   = "version"
	HeaderShard     = "shard"
)

// Producer publishes. It may be shared by shards.
type Producer struct{ client *kgo.Client }

// NewProducer makes a producer with a client of its own; Close it. The options
// are those of kafka.Config.Options. Nothing is connected before the first
// event.
func NewProducer(opts ...kgo.Opt) (*Producer, error) {
	client, err := kgo.NewClient(append(opts[:len(opts):len(opts)],
		kgo.RequiredAcks(kgo.AllISRAcks()), // and idempotent, which is kgo's default
		kgo.ProducerBatchMaxBytes(largest),
		kgo.MaxBufferedRecords(100_000), // publish bounds what is under way; this must not make one shard wait for another
		kgo.ProducerLinger(0),
		kgo.MetadataMinAge(time.Second),
		kgo.UnknownTopicRetries(1), // the events wait in the outbox, not here
		// Without this a record in flight outlives its deadline until a broker
		// answers. What is given up may arrive nevertheless, and then twice.
		kgo.AllowIdempotentProduceCancellation(),
	)...)
	if err != nil {
		return nil, fmt.Errorf("outbox producer: %w", err)
	}
	return &Producer{client}, nil
}

// Close closes the client; what is under way fails.
func (p *Producer) Close() { p.client.Close() }

// Ping asks any broker for an answer.
func (p *Producer) Ping(ctx context.Context) error { return kafka.Ping(ctx, p.client) }

// Outcome is what became of one record.
type Outcome struct {
	Partition int32
	Offset    int64
	Err       error // nil once all in-sync replicas have it
}

// Publish sends records and returns the outcome of each. It returns when ctx
// ends at the latest; what has no answer by then has an error, and may arrive
// nevertheless.
func (p *Producer) Publish(ctx context.Context, records []*kgo.Record) []Outcome {
	outcomes := p.produce(ctx, records)
	if len(records) == 1 {
		return outcomes
	}
	// A batch is refused as a whole, for its size or for one of its records. Alone,
	// the broker tells which event it is, and the others lose no attempt.
	for i, o := range outcomes {
		if theirOwn(o.Err) {
			outcomes[i] = p.produce(ctx, records[i:i+1])[0]
		}
	}
	return outcomes
}

func (p *Producer) produce(ctx context.Context, records []*kgo.Record) []Outcome {
	type answer struct {
		at int
		Outcome
	}
	answers, outcomes := make(chan answer, len(records)), make([]Outcome, len(records))
	for i, r := range records {
		outcomes[i].Err = errNoAnswer
		p.client.Produce(ctx, r, func(r *kgo.Record, err error) {
			answers <- answer{i, Outcome{r.Partition, r.Offset, err}}
		})
	}
	// franz-go looks at a record's context only between its own waits, which may
	// be seconds.
	for range records {
		select {
		case a := <-answers:
			outcomes[a.at] = a.Outcome
		case <-ctx.Done():
			return outcomes
		}
	}
	return outcomes
}

var errNoAnswer = errors.New("Kafka did not answer in time")

func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// theirOwn reports whether the broker refused an event for what it is. Any
// other error says something about the broker, the topic, a right or the
// network, and costs the event no attempt: overload is not poison, and a topic
// that nobody has created must not park all that is meant for it.
func theirOwn(err error) bool {
	return tooLarge(err) || slices.ContainsFunc([]error{kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.PolicyViolation, kerr.CorruptMessage}, func(target error) bool {
		return errors.Is(err, target)
	})
}

// record is what an event becomes. It has no timestamp, so it gets that of its
// publishing: a topic's retention goes by it, and an event that was parked for
// longer than that would be removed at once.
func record(shard, topic string, e *event, payload []byte) *kgo.Record {
	return &kgo.Record{
		Topic: topic, Key: []byte(e.aggregateID), Value: payload,
		Headers: []kgo.RecordHeader{
			{Key: HeaderEvent, Value: []byte(e.eventID)},
			{Key: HeaderAggregate, Value: []byte(e.aggregateType)},
			{Key: HeaderVersion, Value: strconv.AppendUint(nil, e.version, 10)},
			{Key: HeaderShard, Value: []byte(shard)},
		},
	}
}

// size is about what a record takes in a batch.
func size(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value) + 32
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value) + 4
	}
	return n
}
