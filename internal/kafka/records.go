package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrGone is a record that the topic no longer holds: expired, compacted away,
// or never written there.
var ErrGone = errors.New("record is gone")

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

// Fetch reads the record at a place. ErrGone is permanent; any other error may
// pass. An offset beyond the end is ErrGone too: what was read once can only
// be there when the topic was created anew.
func (r *Records) Fetch(ctx context.Context, topic string, partition int32, offset int64) (*kgo.Record, error) {
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
				return nil, fmt.Errorf("fetch record %s/%d@%d: %w: %w", topic, partition, offset, ErrGone, e.Err)
			}
			return nil, fmt.Errorf("fetch record %s/%d@%d: %w", topic, partition, offset, e.Err)
		}
		for record := range fetches.RecordsAll() {
			switch {
			case record.Topic != topic || record.Partition != partition || record.Offset < offset:
				// left over from a fetch that was given up
			case record.Offset > offset:
				return nil, fmt.Errorf("fetch record %s/%d@%d: %w: the next record is at %d", topic, partition, offset, ErrGone, record.Offset)
			default:
				return record, nil
			}
		}
	}
}
