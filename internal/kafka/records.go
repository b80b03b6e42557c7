package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/projector"
)

// fetchTimeout bounds one Fetch: franz-go retries by itself for as long as it
// is let, and nobody would hear of it.
const fetchTimeout = 30 * time.Second

var _ projector.Records = (*Records)(nil)

// Records reads single records again by their place. It is made for the few
// rows that ClickHouse refuses after the consumer has let go of their events;
// it fetches one at a time.
type Records struct {
	client *kgo.Client
	turn   chan struct{} // holds a token while nobody fetches
}

// NewRecords makes a reader with a client of its own; Close it. The options
// are those of Config.Options.
func NewRecords(opts ...kgo.Opt) (*Records, error) {
	client, err := kgo.NewClient(append(opts[:len(opts):len(opts)],
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		// A broker always sends one whole batch; anything further is waste.
		kgo.FetchMaxPartitionBytes(1),
		kgo.MaxConcurrentFetches(1),
	)...)
	if err != nil {
		return nil, fmt.Errorf("kafka record reader: %w", err)
	}
	r := &Records{client: client, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r, nil
}

// Close closes the reader's connections.
func (r *Records) Close() { r.client.Close() }

// Fetch reads the record at a place. An error that wraps
// projector.ErrRecordGone is permanent: the record expired, was compacted away,
// or the topic was created anew; any other error may pass.
func (r *Records) Fetch(ctx context.Context, topic string, partition int32, offset int64) (*kgo.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	select {
	case <-r.turn:
		defer func() { r.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, fmt.Errorf("fetch record %s/%d@%d: %w", topic, partition, offset, ctx.Err())
	}
	r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(offset)}})
	defer r.client.RemoveConsumePartitions(map[string][]int32{topic: {partition}})
	for {
		fetches := r.client.PollRecords(ctx, 1)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("fetch record %s/%d@%d: %w", topic, partition, offset, err)
		}
		for _, e := range fetches.Errors() {
			if e.Topic != "" && (e.Topic != topic || e.Partition != partition) {
				continue // left over from a fetch that was given up
			}
			if errors.Is(e.Err, kerr.OffsetOutOfRange) || errors.Is(e.Err, kerr.UnknownTopicOrPartition) {
				return nil, fmt.Errorf("fetch record %s/%d@%d: %w: %w", topic, partition, offset, projector.ErrRecordGone, e.Err)
			}
			return nil, fmt.Errorf("fetch record %s/%d@%d: %w", topic, partition, offset, e.Err)
		}
		for record := range fetches.RecordsAll() {
			switch {
			case record.Topic != topic || record.Partition != partition || record.Offset < offset:
				// left over from a fetch that was given up
			case record.Offset > offset:
				return nil, fmt.Errorf("fetch record %s/%d@%d: %w: the next record is at %d", topic, partition, offset, projector.ErrRecordGone, record.Offset)
			default:
				return record, nil
			}
		}
	}
}
