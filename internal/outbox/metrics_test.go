package outbox

import (
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// TestOldestUnsentGrowsWhileNobodyCounts: a shard that is away must not look like one whose outbox is empty.
func TestOldestUnsentGrowsWhileNobodyCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		away, err := sql.Open("mysql", "nobody@tcp(127.0.0.1:1)/none")
		if err != nil {
			t.Fatal(err)
		}
		away.Close()
		r := New("s0", quick(), Deps{DB: away, Metrics: NewMetrics(registry), Log: zerolog.Nop()})
		oldest := func() float64 {
			t.Helper()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "projector_outbox_oldest_unsent_age_seconds" {
					return f.GetMetric()[0].GetGauge().GetValue()
				}
			}
			return -1
		}
		if got := oldest(); got != -1 {
			t.Errorf("before the first count the oldest event is %v s old, want no sample", got)
		}
		r.metrics.counts(Counts{OldestUnsent: 3 * time.Second})
		wait(t.Context(), 20*time.Second)
		if got := oldest(); got != 3 {
			t.Errorf("between two counts that succeed the oldest event is %v s old, want 3", got)
		}
		if _, err := r.count(t.Context()); err == nil {
			t.Fatal("a shard that is away was counted")
		}
		wait(t.Context(), 10*time.Minute)
		if got, want := oldest(), 623.0; got != want {
			t.Errorf("the shard has been away for ten minutes and the oldest event is %v s old, want %v", got, want)
		}
		r.metrics.counts(Counts{})
		if got := oldest(); got != 0 {
			t.Errorf("the shard is back, its outbox empty, and the oldest event is %v s old", got)
		}
	})
}
