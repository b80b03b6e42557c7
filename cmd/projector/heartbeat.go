package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/ops"
)

// heartbeats reads the newest heartbeat of each shard back through the view, as
// a report would, and exports how old it is. The age goes on growing while
// nothing can be read: a gauge that kept its last value would say that all is
// well exactly when it is not.
type heartbeats struct {
	query    string
	interval time.Duration
	conn     chschema.Conn
	log      zerolog.Logger

	mu     sync.Mutex
	newest map[string]time.Time // by shard, by this machine's monotonic clock
}

var heartbeatAge = prometheus.NewDesc("projector_heartbeat_age_seconds",
	"Age of the newest heartbeat of a shard that the current view shows: from the outbox through Kafka to the reader. Before the first one it is the age of this process.",
	[]string{"shard"}, nil)

// newHeartbeats returns nil if none are configured.
func newHeartbeats(cfg *config.Config, conn chschema.Conn, log zerolog.Logger) *heartbeats {
	p := cfg.HeartbeatProjection()
	if p == nil {
		return nil
	}
	table := cfg.Table(p)
	h := &heartbeats{
		query: fmt.Sprintf("SELECT toString(`%s`) AS shard, dateDiff('microsecond', max(`%s`), now64(6, 'UTC')) AS age FROM %s GROUP BY shard",
			config.HeartbeatShard, config.HeartbeatAt, table.Qualified(table.Current())),
		interval: min(cfg.Outbox.Heartbeat.Interval.Of(), 10*time.Second),
		conn:     conn,
		log:      log,
		newest:   map[string]time.Time{},
	}
	for _, s := range cfg.Source.Shards {
		h.newest[s.Name] = time.Now()
	}
	return h
}

// Describe is of prometheus.Collector.
func (h *heartbeats) Describe(to chan<- *prometheus.Desc) { to <- heartbeatAge }

// Collect is of prometheus.Collector.
func (h *heartbeats) Collect(to chan<- prometheus.Metric) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for shard, at := range h.newest {
		to <- prometheus.MustNewConstMetric(heartbeatAge, prometheus.GaugeValue, time.Since(at).Seconds(), shard)
	}
}

// watch reads until ctx is done.
func (h *heartbeats) watch(ctx context.Context) {
	streak, tick := ops.NewStreak(h.log, "read the heartbeats"), time.NewTicker(h.interval)
	defer tick.Stop()
	for {
		if err := h.read(ctx); err == nil {
			streak.Succeed()
		} else if ctx.Err() == nil {
			streak.Fail(admitted(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (h *heartbeats) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	var rows []struct {
		Shard string `ch:"shard"`
		Age   int64  `ch:"age"` // µs, between the shard's clock and ClickHouse's
	}
	asked := time.Now()
	if err := h.conn.Select(ctx, &rows, h.query); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range rows {
		h.newest[r.Shard] = asked.Add(-max(0, time.Duration(r.Age)*time.Microsecond))
	}
	return nil
}
