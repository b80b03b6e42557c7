package projector

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestFetchSizeWaitsForTheBrokers: the brokers are counted beside the poll loop, and records may come before the answer.
// The whole budget must not be asked of each broker meanwhile.
func TestFetchSizeWaitsForTheBrokers(t *testing.T) {
	client, err := kgo.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	f := &fetchSize{budget: 100 << 20}
	read := kgo.FetchBatchMetrics{CompressedBytes: 1 << 20, UncompressedBytes: 5 << 20}
	f.OnFetchBatchRead(kgo.BrokerMetadata{}, testTopic, 0, read)
	f.adjust(client)
	if f.asked != 0 {
		t.Errorf("%d bytes are asked of each of an unknown number of brokers", f.asked)
	}
	f.brokers.Store(10)
	f.adjust(client)
	if want := 100 << 20 / 10 / 5; f.asked != want {
		t.Errorf("%d bytes are asked of each of 10 brokers, want %d", f.asked, want)
	}
}
