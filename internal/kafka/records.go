package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

const (
	// fetchTimeout bounds one question: brokers that do not answer are retried, and nobody would hear of it.
	fetchTimeout = 30 * time.Second
	// absence is how long a place must hold nothing, by brokers that answer, before that is believed. A topic is
	// unknown, and a new leader's end lower than the old one's, for a moment after a broker has failed.
	absence = 3 * time.Second
	// waitMillis is how long a broker waits for a record where there is none yet.
	waitMillis = 100
	// scanBytesAtOnce is what Scan asks for at a time, as it is stored.
	scanBytesAtOnce = 1 << 20
)

var _ projector.Records = (*Records)(nil)

// Records reads records by their place: single ones again, for the few rows that ClickHouse refuses after the consumer
// has let go of their events, and ranges from end to end.
//
// It asks the partition's leader itself. A consumer, as franz-go has it, says nothing while there is nothing to
// return: it waits for ever for a record that compaction has removed, and for the end of a range of which the last
// records are gone. A broker's own answer says where its log begins and ends.
type Records struct {
	client *kgo.Client
	adm    *kadm.Client
	unpack kgo.Decompressor

	mu     sync.Mutex
	topics map[string]kadm.TopicDetail // as last described
}

// NewRecords makes a reader with a client of its own; Close it. The options are those of Config.Options.
func NewRecords(opts ...kgo.Opt) (*Records, error) {
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("kafka record reader: %w", err)
	}
	return AdminOf(client).Records(), nil
}

// Records reads over the admin's connections, which the admin closes.
func (a *Admin) Records() *Records {
	return &Records{client: a.client, adm: a.adm, unpack: kgo.DefaultDecompressor(), topics: map[string]kadm.TopicDetail{}}
}

// Close closes the reader's connections.
func (r *Records) Close() { r.client.Close() }

// Fetch reads the record at a place. An error that wraps projector.ErrRecordGone is permanent: the record expired, was
// compacted away, or the log was cut or replaced; any other error may pass. A topic that was created anew may have
// another record at the place: see Again.
func (r *Records) Fetch(ctx context.Context, topic string, partition int32, offset int64) (*kgo.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	// A broker sends at least one whole batch; anything further is waste.
	for at := (place{topic, partition, offset, 1}); ; {
		got, err := r.next(ctx, at)
		if err != nil {
			return nil, fmt.Errorf("fetch record %s/%d@%d: %w", topic, partition, offset, err)
		}
		for _, record := range got.records {
			switch {
			case record.Offset == offset:
				return record, nil
			case record.Offset > offset:
				return nil, fmt.Errorf("fetch record %s/%d@%d: %w: the next record is at %d", topic, partition, offset, projector.ErrRecordGone, record.Offset)
			}
		}
		at.offset = got.next // past a batch of which nothing is left
	}
}

// Again reads the record that a row was made from. Another one at its place, by its timestamp, is an error that wraps
// projector.ErrRecordGone: a topic that was deleted and created again has other records at the same offsets.
func (r *Records) Again(ctx context.Context, of mapping.Lineage) (*kgo.Record, error) {
	record, err := r.Fetch(ctx, of.Topic, of.Partition, of.Offset)
	if err != nil {
		return nil, err
	}
	if record.Timestamp.UnixMilli() != of.Timestamp.UnixMilli() {
		return nil, fmt.Errorf("another record is at %s/%d@%d, of %s instead of %s: %w", of.Topic, of.Partition, of.Offset,
			record.Timestamp.UTC().Format(time.RFC3339Nano), of.Timestamp.UTC().Format(time.RFC3339Nano), projector.ErrRecordGone)
	}
	return record, nil
}

// Scan reads the records of a partition from an offset on, in order, up to the offset to, which it does not read, or
// the end of the log, and hands them to each. What expires meanwhile is passed over. It ends with the error of each,
// if that returns one, and with an error if nothing comes although the log goes on.
func (r *Records) Scan(ctx context.Context, topic string, partition int32, from, to int64, each func(*kgo.Record) error) error {
	for at := (place{topic, partition, from, scanBytesAtOnce}); at.offset < to; {
		attempt, cancel := context.WithTimeout(ctx, fetchTimeout)
		got, err := r.next(attempt, at)
		cancel()
		var expired *expiredError
		switch {
		case errors.As(err, &expired) && expired.start > at.offset:
			at.offset = expired.start
			continue
		case errors.Is(err, projector.ErrRecordGone):
			return r.confirmEnd(ctx, at)
		case err != nil:
			return fmt.Errorf("read %s/%d from offset %d: %w", topic, partition, at.offset, err)
		}
		for _, record := range got.records {
			if record.Offset >= to {
				return nil
			}
			if err := each(record); err != nil {
				return err
			}
		}
		at.offset = got.next
	}
	return nil
}

// Yields reports whether a consumer is still given a record of a partition's range. The marks at the ends of
// transactions, and what they took back, count as offsets and are given to nobody. A transaction that is open may yet
// be committed.
func (r *Records) Yields(ctx context.Context, topic string, partition int32, from, to int64) (bool, error) {
	settled, err := r.settled(ctx, topic, partition)
	if err != nil {
		return false, fmt.Errorf("look for records of %s/%d from offset %d: %w", topic, partition, from, err)
	}
	if settled < to {
		return true, nil
	}
	one := errors.New("there is one")
	if err := r.Scan(ctx, topic, partition, from, to, func(*kgo.Record) error { return one }); !errors.Is(err, one) {
		return false, err
	}
	return true, nil
}

// settled is the offset up to which no transaction is open: the first that no consumer is given yet.
func (r *Records) settled(ctx context.Context, topic string, partition int32) (int64, error) {
	ends, err := r.adm.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	end, ok := ends.Lookup(topic, partition)
	if !ok {
		return 0, kerr.UnknownTopicOrPartition
	}
	return end.Offset, end.Err
}

// confirmEnd returns nil if the log holds nothing from a place on, by what its leader says of its end: a fetch that
// finds nothing for a while may have met a failover.
func (r *Records) confirmEnd(ctx context.Context, at place) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	end, err := r.settled(ctx, at.topic, at.partition)
	switch {
	case err != nil:
		return fmt.Errorf("read %s/%d from offset %d: there is nothing, and the end of the log is not known: %w", at.topic, at.partition, at.offset, err)
	case end > at.offset:
		return fmt.Errorf("read %s/%d from offset %d: there is nothing, although the log ends at %d; try again", at.topic, at.partition, at.offset, end)
	}
	return nil
}

// place is where to read, and how much.
type place struct {
	topic     string
	partition int32
	offset    int64
	bytes     int32
}

// answer is what there is from a place on.
type answer struct {
	records []*kgo.Record
	next    int64 // the offset after what was read
}

// expiredError is a place before the beginning of the log.
type expiredError struct{ start int64 }

func (e *expiredError) Error() string { return fmt.Sprintf("the oldest record is at %d", e.start) }
func (e *expiredError) Unwrap() error { return projector.ErrRecordGone }

// absentError is a place at which there is nothing now.
type absentError struct{ reason string }

func (e *absentError) Error() string { return e.reason }
func (e *absentError) Unwrap() error { return projector.ErrRecordGone }

// next asks until there is an answer, or there was nothing for long enough.
func (r *Records) next(ctx context.Context, at place) (answer, error) {
	var since time.Time // of the first of the latest answers that there is nothing
	for {
		got, err := r.ask(ctx, at)
		var absent *absentError
		switch {
		case err == nil:
			return got, nil
		case errors.As(err, &absent):
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) >= absence {
				return answer{}, err
			}
		case final(err):
			return answer{}, err
		default:
			since = time.Time{}
		}
		r.forget(at.topic)
		pause := time.NewTimer(waitMillis * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return answer{}, fmt.Errorf("%w (the last answer: %w)", ctx.Err(), errors.New(err.Error())) // not gone: it was not waited for long enough
		}
	}
}

// final reports an answer that another question does not change.
func final(err error) bool {
	broker, ok := errors.AsType[*kerr.Error](err)
	return errors.Is(err, projector.ErrRecordGone) || ok && !broker.Retriable
}

// ask asks once.
func (r *Records) ask(ctx context.Context, at place) (answer, error) {
	topic, err := r.describe(ctx, at.topic)
	if err != nil {
		return answer{}, err
	}
	partition, ok := topic.Partitions[at.partition]
	switch {
	case !ok:
		return answer{}, &absentError{fmt.Sprintf("the topic has %d partitions", len(topic.Partitions))}
	case partition.Leader < 0:
		return answer{}, kerr.LeaderNotAvailable
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel = waitMillis, 1, at.bytes, 1 // 1: committed
	t, p := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	t.Topic, t.TopicID = at.topic, topic.ID
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = at.partition, at.offset, at.bytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := r.client.Broker(int(partition.Leader)).RetriableRequest(ctx, req)
	if err != nil {
		return answer{}, err
	}
	fetched := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(fetched.ErrorCode); err != nil {
		return answer{}, err
	}
	if len(fetched.Topics) != 1 || len(fetched.Topics[0].Partitions) != 1 {
		return answer{}, fmt.Errorf("the broker answered for %d topics", len(fetched.Topics))
	}
	return r.understand(ctx, at, &fetched.Topics[0].Partitions[0])
}

// understand takes a broker's answer apart.
func (r *Records) understand(ctx context.Context, at place, p *kmsg.FetchResponseTopicPartition) (answer, error) {
	switch err := kerr.ErrorForCode(p.ErrorCode); {
	case errors.Is(err, kerr.OffsetOutOfRange):
		starts, err := r.adm.ListStartOffsets(ctx, at.topic)
		if err != nil {
			return answer{}, err
		}
		start, _ := starts.Lookup(at.topic, at.partition)
		switch {
		case start.Err != nil:
			return answer{}, start.Err
		case start.Offset > at.offset:
			return answer{}, &expiredError{start.Offset}
		}
		return answer{}, &absentError{"it lies beyond the end of the log"}
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return answer{}, &absentError{err.Error()}
	case err != nil:
		return answer{}, err
	}
	got, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: at.offset, IsolationLevel: kgo.ReadCommitted(), Topic: at.topic, Partition: at.partition,
	}, p, r.unpack, nil)
	switch {
	case got.Err != nil:
		return answer{}, got.Err
	case len(got.Records) > 0 || next > at.offset:
		return answer{got.Records, next}, nil
	}
	return answer{}, &absentError{fmt.Sprintf("there is no record from there up to the end of the log at %d", p.LastStableOffset)}
}

// describe asks for a topic's ID and leaders, unless they are known.
func (r *Records) describe(ctx context.Context, name string) (kadm.TopicDetail, error) {
	r.mu.Lock()
	known, ok := r.topics[name]
	r.mu.Unlock()
	if ok {
		return known, nil
	}
	// Asking for the rights as well makes kadm ask a broker instead of its cache.
	details, err := r.adm.ListTopicsWithInternal(kadm.WithAuthorizedOps(ctx), name)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	switch d, ok := details[name]; {
	case !ok, errors.Is(d.Err, kerr.UnknownTopicOrPartition):
		return kadm.TopicDetail{}, &absentError{ErrUnknownTopic.Error()}
	case d.Err != nil:
		return kadm.TopicDetail{}, d.Err
	default:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.topics[name] = d
		return d, nil
	}
}

// forget drops what is known of a topic.
func (r *Records) forget(topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.topics, topic)
}
