//go:build synctests

package projector

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestTransactions: what a transaction took back never happened, and the marks at the ends of transactions are no
// records. Both are committed past: a lag that stays for ever would be shown, and scaled for, for nothing.
func TestTransactions(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		m := w.newMember(testPlan(t), w.good(), nil).live(t.Context())
		defer m.kill()
		producer, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.net.DialContext), kgo.DisableClientMetrics(),
			kgo.TransactionalID("writer"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close()
		for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
			r := &kgo.Record{Topic: testTopic, Value: plainEvent(0, w.end[0])}
			if err := errors.Join(producer.BeginTransaction(), producer.ProduceSync(t.Context(), r).FirstErr(), producer.EndTransaction(t.Context(), end)); err != nil {
				t.Fatal(err)
			}
			if r.Offset != w.end[0] {
				t.Fatalf("offset %d, want %d", r.Offset, w.end[0])
			}
			w.values[place{0, r.Offset}] = r.Value
			if end == kgo.TryAbort {
				w.store.nothing(0, r.Offset)
			}
			w.store.nothing(0, r.Offset+1)
			w.end[0] += 2
		}
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		for name, want := range map[string]float64{"projector_rows_total": 2, "projector_records_total": 2, "projector_lag_records": 0, "projector_freshness_seconds": 0, "projector_letters_total": 0} {
			if got := total(t, m.registry, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
		w.mustBeSound(t)
	})
}
