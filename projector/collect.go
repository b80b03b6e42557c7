package projector

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	partitionLabels = []string{"projection", "topic", "partition"}
	laneLabels      = []string{"projection", "lane"}

	descLag       = prometheus.NewDesc("projector_lag_records", "Records of a partition not yet acknowledged, as of its last batch or a look at the end of the log, whichever is newer.", partitionLabels, nil)
	descNewest    = prometheus.NewDesc("projector_newest_visible_timestamp_seconds", "Timestamp of the newest record acknowledged of a partition.", partitionLabels, nil)
	descFreshness = prometheus.NewDesc("projector_freshness_seconds", "Age of the oldest record of a partition that was read and is not acknowledged, 0 if there is none; or how long Kafka has been in trouble.", partitionLabels, nil)
	descBusy      = prometheus.NewDesc("projector_busy_ratio", "Share of the last minute that a lane spent mapping or waiting for ClickHouse.", laneLabels, nil)
	descDrain     = prometheus.NewDesc("projector_drain_seconds", "Estimated time in which a lane works off its lag if nothing is added to it.", laneLabels, nil)
)

// laneCollector tells what the lanes of an engine hold at the moment of a scrape: an age that a loop updates stands
// still together with the loop, and a series that a loop ends may by then be another lane's.
type laneCollector struct{ *Engine }

// Describe is part of prometheus.Collector.
func (laneCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLag, descNewest, descFreshness, descBusy, descDrain} {
		descs <- d
	}
}

// ownership names a partition of a projection. Two lanes may believe that it is theirs: one that was expelled learns
// so only from its next heartbeat, and the group may have given the partition to a lane of the same process. One
// series told twice would fail the whole scrape, so the greater age and the lane that has come further stand for both.
type ownership struct {
	projection, topic string
	partition         int32
}

// Collect is part of prometheus.Collector.
func (c laneCollector) Collect(metrics chan<- prometheus.Metric) {
	now := c.deps.Clock()
	ages, lags := map[ownership]time.Duration{}, map[ownership]lag{}
	for _, l := range c.lanes {
		name := l.projection.Name
		l.freshness.collect(name, now, l.health.kafkaTrouble(), ages)
		l.lags.collect(name, lags)
		if load := l.freshness.sample(now, time.Duration(l.metrics.busy.Load())); load.known {
			number := strconv.Itoa(l.number)
			metrics <- prometheus.MustNewConstMetric(descBusy, prometheus.GaugeValue, load.ratio, name, number)
			metrics <- prometheus.MustNewConstMetric(descDrain, prometheus.GaugeValue, load.drain(l.lags.behind()), name, number)
		}
	}
	for o, age := range ages {
		metrics <- prometheus.MustNewConstMetric(descFreshness, prometheus.GaugeValue, age.Seconds(), o.projection, o.topic, strconv.Itoa(int(o.partition)))
	}
	for o, lag := range lags {
		partition := strconv.Itoa(int(o.partition))
		if records, known := lag.records(); known {
			metrics <- prometheus.MustNewConstMetric(descLag, prometheus.GaugeValue, float64(records), o.projection, o.topic, partition)
		}
		if !lag.newest.IsZero() {
			metrics <- prometheus.MustNewConstMetric(descNewest, prometheus.GaugeValue, float64(lag.newest.UnixMilli())/1000, o.projection, o.topic, partition)
		}
	}
}
