package projector

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// minFetch is the least that is asked of one broker: below it the requests cost more than the records.
const minFetch = 64 << 10

// fetchSize keeps what a lane fetches at once within Config.FetchBytes, counted as it lies in memory: decompressed,
// and from all brokers together. Kafka's own limits count bytes as they are stored, for one broker; topics compress
// five to fifteen times and clusters have three to thirty brokers, so that a fixed limit would be far too large for
// one and far too small for another. kgo calls the hook, the look at the topics counts the brokers, and the poll loop
// adjusts.
type fetchSize struct {
	budget           int
	stored, unpacked atomic.Int64 // bytes of batches read since the last adjustment
	brokers          atomic.Int64 // as last seen; 0 before that
	asked            int
}

// firstFetch is what is asked for before anything is known about the topic: it compresses ten times, say.
func (f *fetchSize) firstFetch() int { return max(minFetch, f.budget/10) }

// perPartition is the limit of a single partition: with two or more partitions none fills a fetch alone.
func perPartition(fetch int) int { return max(minFetch, fetch/2) }

// OnFetchBatchRead learns how well a batch was compressed.
func (f *fetchSize) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	f.stored.Add(int64(m.CompressedBytes))
	f.unpacked.Add(int64(m.UncompressedBytes))
}

// adjust follows the topic's compression, once enough was read to know it, and the brokers were counted: records may
// come first. A change of less than a quarter is let be.
func (f *fetchSize) adjust(client *kgo.Client) {
	stored, unpacked, brokers := f.stored.Load(), f.unpacked.Load(), f.brokers.Load()
	if stored < minFetch || brokers == 0 {
		return
	}
	f.stored.Add(-stored)
	f.unpacked.Add(-unpacked)
	want := int(float64(f.budget) / float64(brokers) * float64(stored) / float64(max(unpacked, stored)))
	want = max(want, minFetch)
	if change := want - f.asked; 4*change < f.asked && 4*change > -f.asked {
		return
	}
	f.asked = want
	client.UpdateFetchMaxBytes(int32(want), int32(perPartition(want)))
}
