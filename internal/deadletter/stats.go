package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/kafka"
)

// How much of a topic Stats reads to tell its letters apart.
const (
	scanLetters = 10_000
	scanBytes   = 64 << 20
)

// Stats is what one dead-letter topic holds.
type Stats struct {
	Topic   string         // the dead-letter topic
	Letters int64          // how many, by the topic's offsets
	Scanned int            // how many of them, the newest of each partition, were read for what follows
	Classes map[string]int // by class; "" = records that no projector wrote
	Oldest  time.Time      // when the oldest of the scanned letters was parked; zero without letters
	Newest  time.Time
	Samples map[string]Sample // by class: the newest of the scanned letters
}

// Sample is one letter of many that have the same class.
type Sample struct {
	Info   Info      // zero for a record that no projector wrote
	Parked time.Time // when
}

// Reader reads what is parked.
type Reader struct {
	config  Config
	admin   *kafka.Admin
	records *kafka.Records
}

// NewReader makes a reader; Close it. The options are those of
// kafka.Config.Options.
func NewReader(c Config, opts ...kgo.Opt) (*Reader, error) {
	admin, err := kafka.NewAdmin(opts...)
	if err != nil {
		return nil, err
	}
	records, err := kafka.NewRecords(opts...)
	if err != nil {
		admin.Close()
		return nil, err
	}
	return &Reader{config: c.withDefaults(), admin: admin, records: records}, nil
}

// Close closes the reader's connections.
func (r *Reader) Close() {
	r.admin.Close()
	r.records.Close()
}

// Stats counts the letters of source topics, in the order asked for. A topic
// without a dead-letter topic has no letters. Classes are counted in at most
// the newest 10,000 letters or 64 MiB of each topic.
func (r *Reader) Stats(ctx context.Context, topics ...string) ([]Stats, error) {
	all := make([]Stats, len(topics))
	for i, topic := range topics {
		s := &all[i]
		s.Topic, s.Classes, s.Samples = topic+r.config.Suffix, map[string]int{}, map[string]Sample{}
		partitions, err := r.admin.Offsets(ctx, s.Topic)
		if errors.Is(err, kafka.ErrUnknownTopic) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("count dead letters: %w", err)
		}
		for _, p := range partitions {
			s.Letters += p.End - p.Start
		}
		if err := r.scan(ctx, s, partitions); err != nil {
			return nil, fmt.Errorf("count dead letters by class: %w", err)
		}
	}
	return all, nil
}

// scan reads the newest letters of every partition up to the ends given. The
// bounds are shared out, so that no partition goes without.
func (r *Reader) scan(ctx context.Context, s *Stats, partitions []kafka.PartitionOffsets) error {
	enough := errors.New("enough was read")
	share := len(partitions)
	for _, p := range partitions {
		bytes := 0
		from := max(p.Start, p.End-max(1, int64(scanLetters/share)))
		err := r.records.Scan(ctx, s.Topic, p.Partition, from, p.End, func(record *kgo.Record) error {
			s.count(record)
			if bytes += len(record.Key) + len(record.Value); bytes >= scanBytes/share {
				return enough
			}
			return nil
		})
		if err != nil && !errors.Is(err, enough) {
			return err
		}
	}
	return nil
}

func (s *Stats) count(record *kgo.Record) {
	_, info, _ := Parse(record)
	s.Scanned++
	s.Classes[info.Class]++
	if parked := record.Timestamp; !parked.Before(s.Samples[info.Class].Parked) {
		s.Samples[info.Class] = Sample{info, parked}
	}
	if s.Oldest.IsZero() || record.Timestamp.Before(s.Oldest) {
		s.Oldest = record.Timestamp
	}
	if record.Timestamp.After(s.Newest) {
		s.Newest = record.Timestamp
	}
}
