package testenv

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// NewFakeKafka starts franz-go's broker in Go inside the test binary and closes it when the test ends: one broker
// unless opts say otherwise, in memory, with groups, transactions and fault injection. Its ListenAddrs are the
// brokers. Nothing in it can be killed with SIGKILL: that takes StartKafka.
func NewFakeKafka(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatalf("start kfake: %v", err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}
