// Package deadletter keeps the records that cannot become rows: it parks them
// in a topic beside their own, with the reason in the headers, and reads back
// what is parked.
//
// A letter is acknowledged by all in-sync replicas before the offset of its
// record is committed. It may be parked twice, after an answer that was lost;
// it is never lost.
package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/projector"
)

// Defaults of Config.
const (
	DefaultSuffix  = "-dlq"
	DefaultTimeout = 30 * time.Second
)

const (
	// groupBytes is what is sent at once, before compression. franz-go makes
	// one batch of what it has for a partition, and a broker refuses a batch
	// for its size as a whole: with groups of half of Kafka's default
	// max.message.bytes that happens only to letters that are large themselves.
	groupBytes = 512 << 10
	// largest is the largest letter that is tried at all. A request beyond
	// socket.request.max.bytes (100 MiB) is not answered: the broker closes
	// the connection, which looks like an outage that never ends.
	largest = 64 << 20
)

// Config says where letters go.
type Config struct {
	Suffix  string        // appended to the topic's name; "" = DefaultSuffix
	Timeout time.Duration // of one Park; 0 = DefaultTimeout
}

func (c Config) withDefaults() Config {
	if c.Suffix == "" {
		c.Suffix = DefaultSuffix
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	return c
}

var _ projector.DeadLetters = (*Parker)(nil)

// Parker produces letters. It may be shared by lanes; it parks for one of them
// at a time, so that a batch never holds more than one of its groups.
type Parker struct {
	config Config
	client *kgo.Client
	admin  *kafka.Admin
	turn   chan struct{}   // holds a token while nobody parks
	known  map[string]bool // topics that exist; belongs to whoever has the turn
}

// NewParker makes a parker with a client of its own; Close it. The options are
// those of kafka.Config.Options. Nothing is connected before the first letter.
func NewParker(c Config, opts ...kgo.Opt) (*Parker, error) {
	client, err := kgo.NewClient(append(opts[:len(opts):len(opts)],
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// The client's own limit is out of the way: it counts before
		// compression, the broker, who decides, after it.
		kgo.ProducerBatchMaxBytes(largest+1<<20),
		kgo.ProducerBatchCompression(kgo.ZstdCompression(), kgo.SnappyCompression(), kgo.NoCompression()),
		kgo.ProducerLinger(0),
		kgo.MetadataMinAge(time.Second), // letters are rare, and wait for a topic that was just created
		// Without this a record in flight outlives its context until a broker
		// answers. A letter that is parked twice does no harm.
		kgo.AllowIdempotentProduceCancellation(),
		kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(samePartition)),
	)...)
	if err != nil {
		return nil, fmt.Errorf("dead-letter producer: %w", err)
	}
	p := &Parker{config: c.withDefaults(), client: client, admin: kafka.AdminOf(client), turn: make(chan struct{}, 1), known: map[string]bool{}}
	p.turn <- struct{}{}
	return p, nil
}

// samePartition keeps the letters of one partition together and in order.
func samePartition(string) func(*kgo.Record, int) int {
	return func(r *kgo.Record, n int) int { return int(r.Partition) % n }
}

// Close closes the client. A Park under way fails.
func (p *Parker) Close() { p.client.Close() }

// Park returns nil once every letter is acknowledged by all in-sync replicas
// of its topic. After an error none, some or all of them may be parked: park
// the same letters again. Trouble that passes is a transient
// *projector.InsertError; a topic that is missing and cannot be created, or
// that refuses letters, is an error that says what to do about it.
//
// A letter that its topic does not accept for its size is replaced by a
// pointer: the same headers, and projector-pointer, without the value.
func (p *Parker) Park(ctx context.Context, letters []projector.Letter) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	select {
	case <-p.turn:
		defer func() { p.turn <- struct{}{} }()
	case <-ctx.Done():
		return classified(fmt.Errorf("wait for other letters: %w", ctx.Err()))
	}
	items, now := make([]item, len(letters)), time.Now()
	for i := range letters {
		s := origin(&letters[i], p.config.Suffix)
		if err := p.ensure(ctx, s.topic, s.target); err != nil {
			return classified(err)
		}
		items[i] = item{letter: &letters[i], source: s, record: record(&letters[i], s, whole, now)}
	}
	for len(items) > 0 {
		n, bytes := 0, 0
		for n < len(items) && (n == 0 || bytes+size(items[n].record) <= groupBytes) {
			bytes += size(items[n].record)
			n++
		}
		refused, err := p.produce(ctx, items[:n])
		for i := 0; i < len(refused) && err == nil; i++ {
			err = p.parkLarge(ctx, refused[i], now)
		}
		if err != nil {
			return classified(err)
		}
		items = items[n:]
	}
	return nil
}

// item is a letter on its way.
type item struct {
	letter *projector.Letter
	source source
	record *kgo.Record
}

// parkLarge parks a letter of a group that was refused for its size. Alone,
// the broker tells whether the letter itself is too large, and then it goes
// with as much as its topic accepts.
func (p *Parker) parkLarge(ctx context.Context, it item, now time.Time) error {
	for _, part := range []part{whole, pointer, place} {
		it.record = record(it.letter, it.source, part, now)
		refused, err := p.produce(ctx, []item{it})
		if err != nil || len(refused) == 0 {
			return err
		}
	}
	return fmt.Errorf("topic %s accepts not even a letter without key and value: raise its max.message.bytes to at least 16384", it.source.target)
}

// produce sends a group and gives back what was refused for its size; the rest
// is acknowledged unless there is an error.
func (p *Parker) produce(ctx context.Context, group []item) (refused []item, err error) {
	if size(group[0].record) > largest { // and therefore alone
		return group, nil
	}
	// Not ProduceSync: franz-go looks at a record's context only between its own
	// waits, which may be seconds. What is given up here may still arrive.
	type result struct {
		item item
		err  error
	}
	results := make(chan result, len(group))
	for _, it := range group {
		p.client.Produce(ctx, it.record, func(_ *kgo.Record, err error) { results <- result{it, err} })
	}
	for range group {
		var r result
		select {
		case r = <-results:
		case <-ctx.Done():
			return nil, fmt.Errorf("park in topic %s: no answer: %w", group[0].source.target, ctx.Err())
		}
		switch {
		case r.err == nil:
		case errors.Is(r.err, kerr.MessageTooLarge), errors.Is(r.err, kerr.RecordListTooLarge):
			refused = append(refused, r.item)
		default:
			if unknownTopic(r.err) {
				p.forget(r.item.source.target)
			}
			return nil, fmt.Errorf("park in topic %s: %w", r.item.source.target, r.err)
		}
	}
	return refused, nil
}

// forget drops what is known of a topic that is gone: the next letter looks for
// it again and finds the one that has taken its place.
func (p *Parker) forget(topic string) {
	delete(p.known, topic)
	p.client.PurgeTopicsFromClient(topic)
}

func unknownTopic(err error) bool {
	return errors.Is(err, kafka.ErrUnknownTopic) || errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

// classified marks what passes by itself. The rest, a missing right or a topic
// that cannot be created, is retried for a bounded time, and then is fatal.
func classified(err error) error {
	var network net.Error
	passes := errors.As(err, &network) || kerr.IsRetriable(err) ||
		slices.ContainsFunc([]error{
			context.DeadlineExceeded, context.Canceled, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
			kgo.ErrRecordTimeout, kgo.ErrRecordRetries, kgo.ErrAborting,
		}, func(target error) bool { return errors.Is(err, target) })
	if !passes || unknownTopic(err) {
		return err
	}
	return &projector.InsertError{Class: projector.Transient, Err: err}
}
