package projector

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// connect makes the lane's client, which joins the group at once. Options of the caller come first: brokers, TLS,
// SASL. What the commit invariant rests on comes last and cannot be overridden.
//
// The end of life fails every request of the client, under way or to come.
func (l *lane) connect(life context.Context) error {
	cfg, p := l.cfg, l.projection
	_, err := kgo.NewClient(slices.Concat(
		[]kgo.Opt{
			kgo.ClientID(fmt.Sprintf("projector-%s-%d", p.Name, l.number)),
			kgo.DisableClientMetrics(), // their last push would only delay the end
		},
		l.deps.Kafka,
		[]kgo.Opt{
			kgo.WithContext(life),
			kgo.ConsumeTopics(p.Topics...),
			kgo.ConsumerGroup(p.Group),
			kgo.Balancers(kgo.CooperativeStickyBalancer()),
			kgo.SessionTimeout(cfg.SessionTimeout),
			kgo.RebalanceTimeout(cfg.RebalanceTimeout),
			kgo.HeartbeatInterval(cfg.HeartbeatInterval),

			// Whatever is in doubt is read from its beginning: reading twice is harmless, skipping is not. startsAt
			// knows where a group without commits starts.
			kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.AdjustFetchOffsetsFn(l.startsAt),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), // what a transaction took back never happened
			kgo.KeepControlRecords(),                     // to commit past the marks at the ends of transactions

			kgo.FetchMaxWait(time.Second), // a partition that is assigned during a wait is asked for after it
			kgo.FetchMaxBytes(int32(l.fetches.firstFetch())),
			kgo.FetchMaxPartitionBytes(int32(perPartition(l.fetches.firstFetch()))),
			kgo.WithHooks(l.fetches, onNewClient(func(cl *kgo.Client) { l.client = cl })),
			kgo.WithPools(new(recordPool)),

			// No commit but the ledger's, and no rebalance callback while records are being mapped.
			kgo.DisableAutoCommit(),
			kgo.BlockRebalanceOnPoll(),
			kgo.OnPartitionsAssigned(l.assigned),
			kgo.OnPartitionsRevoked(l.revoked),
			kgo.OnPartitionsLost(l.lost),
		},
	)...)
	if err != nil {
		return fmt.Errorf("make the Kafka client of projection %s: %w", p.Name, err)
	}
	return nil
}

// onNewClient is told the client before any of its goroutines run: a callback of the group may come before
// kgo.NewClient has returned.
type onNewClient func(*kgo.Client)

// OnNewClient is called by kgo.
func (f onNewClient) OnNewClient(cl *kgo.Client) { f(cl) }

// recordPool takes records back from Record.Recycle. franz-go allocates them in slabs of one fetched batch each,
// which is most of what a lane would allocate. It keeps a few slabs, not a sync.Pool: a lane uses the same handful
// over and over, and a pool that the collector empties would allocate them again.
type recordPool struct {
	mu    sync.Mutex
	slabs [][]kgo.Record
	bytes [][]byte
}

const pooledSlabs = 16

// GetRecords returns a slice with room for n records if the pool has one.
func (p *recordPool) GetRecords(n int) []kgo.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return take(&p.slabs, n)
}

// PutRecords takes a slab whose records have all been recycled.
func (p *recordPool) PutRecords(s []kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	put(&p.slabs, s)
}

// GetDecompressBytes returns a slice to decompress into; the factor is what JSON usually compresses to, and kgo grows
// a slice that is too small.
func (p *recordPool) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return take(&p.bytes, 4*len(compressed))
}

// PutDecompressBytes takes a slice whose records have all been recycled.
func (p *recordPool) PutDecompressBytes(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	put(&p.bytes, b)
}

// take removes and returns the last slice with room for n elements, or makes one.
func take[E any](pool *[][]E, n int) []E {
	for i, s := range slices.Backward(*pool) {
		if cap(s) >= n {
			*pool = slices.Delete(*pool, i, i+1)
			return s[:0]
		}
	}
	return make([]E, 0, n)
}

// put keeps s; a full pool drops its oldest slice, so that sizes follow the traffic.
func put[E any](pool *[][]E, s []E) {
	if len(*pool) == pooledSlabs {
		*pool = slices.Delete(*pool, 0, 1)
	}
	*pool = append(*pool, s)
}
