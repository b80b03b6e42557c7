package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// limit is the fastest consumer of this table that could be written: it polls with franz-go, looks at no byte of a
// record, inserts prepared blocks and commits after each acknowledgement. Any consumer that also reads the events and
// builds the rows is slower, so its throughput is what the projector is measured against.
type limit struct {
	job    job
	left   atomic.Int64 // records not consumed yet
	lastID atomic.Uint64
	full   func() (*block, error) // makes the block of batchRows that lanes copy
	finish context.CancelFunc     // ends polling once left is 0
}

// runLimit consumes job.Events records. Options of job.Variant: "lz4" compresses inserts, "serial" inserts in the
// polling goroutine, "pools" recycles franz-go's memory, "big" fetches
// more at a time.
func runLimit(ctx context.Context, j job, _ io.Writer) error {
	polling, finish := context.WithCancel(ctx)
	defer finish()
	l := &limit{job: j, finish: finish, full: sync.OnceValues(func() (*block, error) { return newBlock(batchRows) })}
	l.left.Store(int64(j.Events))
	group, ctx := errgroup.WithContext(ctx)
	for lane := range j.Lanes {
		group.Go(func() error {
			if err := l.lane(ctx, polling, lane); err != nil {
				finish()
				return err
			}
			return nil
		})
	}
	return group.Wait()
}

func (l *limit) option(name string) bool {
	return slices.Contains(strings.Split(l.job.Variant, ","), name)
}

// cut is what one insert acknowledges.
type cut struct {
	rows    int
	offsets kadm.Offsets
}

func (l *limit) lane(ctx, polling context.Context, lane int) error {
	client, err := l.client(lane)
	if err != nil {
		return err
	}
	defer client.Close()
	if l.option("serial") {
		sender, err := l.newSender(ctx, client)
		if err != nil {
			return err
		}
		defer func() { _ = sender.conn.Close() }()
		return l.poll(polling, client, func(c cut) error { return sender.send(ctx, c) })
	}
	group, sending := errgroup.WithContext(ctx)
	cuts := make(chan cut, 1)
	group.Go(func() error {
		sender, err := l.newSender(sending, client)
		if err != nil {
			return err
		}
		defer func() { _ = sender.conn.Close() }()
		for c := range cuts {
			if err := sender.send(sending, c); err != nil {
				return err
			}
		}
		return nil
	})
	group.Go(func() error {
		defer close(cuts)
		return l.poll(polling, client, func(c cut) error {
			select {
			case cuts <- c:
				return nil
			case <-sending.Done():
				return sending.Err()
			}
		})
	})
	return group.Wait()
}

// poll gathers records until there are batchRows of them, or none left, and hands them on.
func (l *limit) poll(polling context.Context, client *kgo.Client, hand func(cut) error) error {
	c := newCut()
	for polling.Err() == nil {
		fetches := client.PollRecords(polling, batchRows-c.rows)
		for _, err := range fetches.Errors() {
			if !errors.Is(err.Err, context.Canceled) {
				return fmt.Errorf("poll %s/%d: %w", err.Topic, err.Partition, err.Err)
			}
		}
		n := 0
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) == 0 {
				return
			}
			n += len(p.Records)
			last := p.Records[len(p.Records)-1]
			c.offsets.AddOffset(p.Topic, p.Partition, last.Offset+1, last.LeaderEpoch)
			if l.option("pools") {
				for _, r := range p.Records {
					r.Recycle()
				}
			}
		})
		c.rows += n
		if l.left.Add(-int64(n)) <= 0 {
			l.finish()
		}
		if c.rows == batchRows {
			if err := hand(c); err != nil {
				return err
			}
			c = newCut()
		}
	}
	if c.rows == 0 {
		return nil
	}
	return hand(c)
}

func newCut() cut { return cut{offsets: kadm.Offsets{}} }

// client returns a lane's client. It takes its share of the partitions without joining a group, which saves the limit
// rebalances, and commits to the group all the same.
func (l *limit) client(lane int) (*kgo.Client, error) {
	share := map[int32]kgo.Offset{}
	for p := lane; p < int(l.job.Partitions); p += l.job.Lanes {
		share[int32(p)] = kgo.NewOffset().AtStart()
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(l.job.Brokers...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.job.Topic: share}),
	}
	if l.option("pools") {
		opts = append(opts, kgo.WithPools(new(recordPool)))
	}
	if l.option("big") {
		opts = append(opts, kgo.FetchMaxPartitionBytes(16<<20))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("limit: open the Kafka client: %w", err)
	}
	return client, nil
}

// sender owns one connection and one prepared block.
type sender struct {
	limit *limit
	admin *kadm.Client
	conn  *ch.Client
	block *block
}

func (l *limit) newSender(ctx context.Context, client *kgo.Client) (*sender, error) {
	options := ch.Options{
		Address: l.job.ClickHouse, Database: l.job.Database, ReadTimeout: time.Minute,
		Settings: []ch.Setting{
			{Key: "async_insert", Value: "0", Important: true},
			{Key: "optimize_on_insert", Value: "0", Important: true},
		},
	}
	if l.option("lz4") {
		options.Compression = ch.CompressionLZ4
	}
	conn, err := ch.Dial(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("limit: connect to ClickHouse: %w", err)
	}
	full, err := l.full()
	if err != nil {
		return nil, err
	}
	return &sender{limit: l, admin: kadm.NewClient(client), conn: conn, block: full.from(l.reserve())}, nil
}

// reserve returns the first of many ids that no other block uses.
func (l *limit) reserve() uint64 { return l.lastID.Add(1 << 40) }

// send inserts a cut's rows and then commits its offsets.
func (s *sender) send(ctx context.Context, c cut) error {
	b := s.block
	if c.rows != b.rows { // the last cut
		last, err := newBlock(c.rows)
		if err != nil {
			return err
		}
		b = last.from(s.limit.reserve())
	}
	err := s.conn.Do(ctx, ch.Query{Body: b.input.Into(s.limit.job.Table), Input: b.input})
	if err != nil {
		return fmt.Errorf("limit: insert %d rows: %w", c.rows, err)
	}
	b.next()
	if err := s.admin.CommitAllOffsets(ctx, s.limit.job.Group, c.offsets); err != nil {
		return fmt.Errorf("limit: commit: %w", err)
	}
	return nil
}

// recordPool keeps the memory of consumed records for the next fetch.
type recordPool struct{ records, bytes sync.Pool }

// GetRecords implements [kgo.PoolRecords].
func (p *recordPool) GetRecords(n int) []kgo.Record {
	if s, _ := p.records.Get().(*[]kgo.Record); s != nil && cap(*s) >= n {
		return (*s)[:0]
	}
	return make([]kgo.Record, 0, n)
}

// PutRecords implements [kgo.PoolRecords].
func (p *recordPool) PutRecords(s []kgo.Record) { p.records.Put(&s) }

// GetDecompressBytes implements [kgo.PoolDecompressBytes].
func (p *recordPool) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	if s, _ := p.bytes.Get().(*[]byte); s != nil && cap(*s) >= len(compressed) {
		return *s
	}
	return make([]byte, 0, 6*len(compressed))
}

// PutDecompressBytes implements [kgo.PoolDecompressBytes].
func (p *recordPool) PutDecompressBytes(s []byte) { p.bytes.Put(&s) }
