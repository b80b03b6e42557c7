package outbox

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are those of all relays of a process; each shard is a label.
type Metrics struct {
	events                                  *prometheus.GaugeVec
	oldest                                  *oldestUnsent
	claims, claimed, sent, failed, returned *prometheus.CounterVec
	rejected, expired, parked, superseded   *prometheus.CounterVec
	purged, transactions, errors            *prometheus.CounterVec
	publish, delay, attempts                *prometheus.HistogramVec
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "projector_outbox_" + name, Help: help}, append([]string{"shard"}, labels...))
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "projector_outbox_" + name, Help: help}, append([]string{"shard"}, labels...))
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "projector_outbox_" + name, Help: help, Buckets: buckets}, []string{"shard"})
	}
	m := &Metrics{
		events:       gauge("events", "Events in the outbox by state: due, retry (due later), claimed, expired (claims whose lease is over), parked.", "state"),
		oldest:       &oldestUnsent{of: map[string]*unsent{}},
		claims:       counter("claims_total", "Claims that found events."),
		claimed:      counter("claimed_total", "Events claimed."),
		sent:         counter("sent_total", "Events acknowledged by Kafka and marked as sent."),
		failed:       counter("failed_total", "Attempts that failed because of the event itself: the broker refused it, or it has no payload."),
		returned:     counter("returned_total", "Claimed events given back without costing an attempt, by reason: trouble (with Kafka), topic (it takes nothing, or none is configured), stop.", "reason"),
		rejected:     counter("rejected_total", "Transitions that changed nothing because the lease was lost, in events.", "transition"),
		expired:      counter("expired_total", "Claims ended because their lease was over, in events."),
		parked:       counter("parked_total", "Events parked: after their last attempt, or at once for want of a payload."),
		superseded:   counter("superseded_total", "Parked events of whose aggregate a newer version was sent."),
		purged:       counter("purged_total", "Events deleted after the retention."),
		transactions: counter("repeated_transactions_total", "Transactions repeated after a deadlock or a lock wait timeout.", "kind"),
		errors:       counter("errors_total", "Errors of the shard's server.", "task"),
		publish:      histogram("publish_seconds", "From handing a group of events to the producer to its last acknowledgement.", prometheus.ExponentialBuckets(0.001, 2, 16)),
		delay:        histogram("delay_seconds", "From an event's insert to its acknowledgement by Kafka.", prometheus.ExponentialBuckets(0.005, 2, 20)),
		attempts:     histogram("attempts", "Attempts that sent events needed.", []float64{1, 2, 3, 5, 10, 20, 50}),
	}
	r.MustRegister(m.events, m.oldest, m.claims, m.claimed, m.sent, m.failed, m.returned, m.rejected, m.expired, m.parked,
		m.superseded, m.purged, m.transactions, m.errors, m.publish, m.delay, m.attempts)
	return m
}

// shardMetrics are those of one shard.
type shardMetrics struct {
	m     *Metrics
	shard string
}

// of begins every counter of a shard at zero: a rate over a counter that does
// not exist yet is no rate.
func (m *Metrics) of(shard string) shardMetrics {
	for _, c := range []*prometheus.CounterVec{m.claims, m.claimed, m.sent, m.failed, m.expired, m.parked, m.superseded, m.purged} {
		c.WithLabelValues(shard)
	}
	for c, labels := range map[*prometheus.CounterVec][]string{
		m.returned:     {"trouble", "topic", "stop"},
		m.rejected:     {"complete", "fail", "return"},
		m.transactions: {"deadlock", "lock_wait"},
		m.errors:       {"claim", "publish", "settle", "upkeep", "count", "heartbeat"},
	} {
		for _, label := range labels {
			c.WithLabelValues(shard, label)
		}
	}
	return shardMetrics{m, shard}
}

func (s shardMetrics) add(c *prometheus.CounterVec, n int, labels ...string) {
	c.WithLabelValues(append([]string{s.shard}, labels...)...).Add(float64(n))
}

func (s shardMetrics) observe(h *prometheus.HistogramVec, d time.Duration) {
	h.WithLabelValues(s.shard).Observe(d.Seconds())
}

func (s shardMetrics) counts(c Counts) {
	for state, n := range c.byState() {
		s.m.events.WithLabelValues(s.shard, state).Set(float64(n))
	}
	s.m.oldest.counted(s.shard, c.OldestUnsent)
}

// uncounted notes that the outbox could not be looked at.
func (s shardMetrics) uncounted() { s.m.oldest.uncounted(s.shard) }

var descOldest = prometheus.NewDesc("projector_outbox_oldest_unsent_age_seconds",
	"Age of the oldest event that is neither sent nor parked; while the outbox cannot be looked at, what it may have become.",
	[]string{"shard"}, nil)

// oldestUnsent tells the age of each shard's oldest event at the moment of a scrape. It goes on growing while nobody
// can look: a gauge that kept its last value would say that all is well exactly when it is not.
type oldestUnsent struct {
	mu sync.Mutex
	of map[string]*unsent
}

// unsent is what is known of the oldest event of a shard.
type unsent struct {
	age   time.Duration
	at    time.Time // when it was counted, or first could not be
	blind bool      // the last look failed
}

func (o *oldestUnsent) counted(shard string, age time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.of[shard] = &unsent{age: age, at: time.Now()}
}

func (o *oldestUnsent) uncounted(shard string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[shard] == nil {
		o.of[shard] = &unsent{at: time.Now()}
	}
	o.of[shard].blind = true
}

// Describe is part of prometheus.Collector.
func (o *oldestUnsent) Describe(descs chan<- *prometheus.Desc) { descs <- descOldest }

// Collect is part of prometheus.Collector.
func (o *oldestUnsent) Collect(metrics chan<- prometheus.Metric) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for shard, u := range o.of {
		age := u.age
		if u.blind {
			age += time.Since(u.at)
		}
		metrics <- prometheus.MustNewConstMetric(descOldest, prometheus.GaugeValue, age.Seconds(), shard)
	}
}
