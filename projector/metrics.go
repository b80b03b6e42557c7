package projector

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chprojector/projector/mapping"
)

// What a poll loop does with its time.
const (
	stateIdle    = "idle"    // waiting for records
	stateMapping = "mapping" // mapping records: the share of this is how busy the lane is
	stateBlocked = "blocked" // waiting for the sender: ClickHouse is the bottleneck
)

// metrics are the engine's. Labels are bounded: projections, topics and partitions by configuration, classes and
// outcomes by this package. One serves one Engine.
type metrics struct {
	records, rows, bytes, letters, ignored, unknownFields, conflicts *prometheus.CounterVec
	inserts, divided, retries, commits, fetchErrors                  *prometheus.CounterVec
	resets, lostRecords                                              *prometheus.CounterVec
	assigned, revoked, lost, forgotten, restarts, laneSeconds        *prometheus.CounterVec
	insertSeconds, cutRecords, visibleSeconds                        *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{}
	var collectors []prometheus.Collector
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "projector_" + name, Help: help}, append([]string{"projection"}, labels...))
		collectors = append(collectors, c)
		return c
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "projector_" + name, Help: help, Buckets: buckets}, []string{"projection"})
		collectors = append(collectors, h)
		return h
	}
	m.records = counter("records_total", "Records consumed.", "topic")
	m.rows = counter("rows_total", "Rows acknowledged by ClickHouse.")
	m.bytes = counter("bytes_total", "Bytes of column data acknowledged by ClickHouse.")
	m.letters = counter("letters_total", "Records acknowledged by the dead-letter topic.", "class")
	m.ignored = counter("ignored_total", "Records that the configuration ignores.")
	m.unknownFields = counter("unknown_fields_total", "Fields of events that no column takes.")
	m.conflicts = counter("conflicts_total", "Pairs of events in one batch with equal identity and version and different content.")
	m.inserts = counter("inserts_total", "Attempts to insert.", "outcome")
	m.divided = counter("divided_inserts_total", "Inserts of parts of a batch that ClickHouse did not take whole: about 2·k·log2(n) for k rejected rows of n.")
	m.retries = counter("insert_retries_total", "Attempts to insert, park or read again that were repeated.", "class")
	m.commits = counter("commits_total", "Partition offsets sent in commits.", "outcome")
	m.fetchErrors = counter("fetch_errors_total", "Errors that Kafka reported for a partition or the group.", "kind")
	m.resets = counter("offset_resets_total", "Reads that did not go on where the last one ended: records expired unread, or the log was cut or replaced.", "topic", "kind")
	m.lostRecords = counter("expired_records_total", "Offsets that retention removed before they were read: backfill them.", "topic")
	m.assigned = counter("partitions_assigned_total", "Partitions assigned.")
	m.revoked = counter("partitions_revoked_total", "Partitions given back in a rebalance.")
	m.lost = counter("partitions_lost_total", "Partitions lost without notice.")
	m.forgotten = counter("offsets_forgotten_total", "Partition offsets given up in a rebalance: another member reads those records again.")
	m.restarts = counter("lane_restarts_total", "Lanes that started over with a new Kafka client.")
	m.laneSeconds = counter("lane_seconds_total", "What the poll loops did with their time: idle, mapping, or blocked by ClickHouse.", "lane", "state")
	m.insertSeconds = histogram("insert_seconds", "Duration of one attempt to insert.", prometheus.ExponentialBuckets(0.005, 2, 14))
	m.cutRecords = histogram("batch_records", "Records in a batch.", prometheus.ExponentialBuckets(1, 4, 10))
	m.visibleSeconds = histogram("visible_seconds", "Age of a batch's oldest record when the batch became visible.", prometheus.ExponentialBuckets(0.0625, 2, 16))
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// laneMetrics are the children of one lane, looked up once.
type laneMetrics struct {
	*metrics
	projection string

	rows, bytes, ignored, unknownFields, conflicts prometheus.Counter
	assigned, revoked, lost, forgotten, restarts   prometheus.Counter
	inserted, failed, divided                      prometheus.Counter
	retries                                        [len(classNames)]prometheus.Counter
	insertSeconds, cutRecords, visibleSeconds      prometheus.Observer
	seconds                                        map[string]prometheus.Counter
	busy                                           atomic.Int64 // nanoseconds of all states but idle
}

func (m *metrics) lane(p *Projection, number int) *laneMetrics {
	projection := p.Name
	l := &laneMetrics{
		metrics: m, projection: projection,
		rows:           m.rows.WithLabelValues(projection),
		bytes:          m.bytes.WithLabelValues(projection),
		ignored:        m.ignored.WithLabelValues(projection),
		unknownFields:  m.unknownFields.WithLabelValues(projection),
		conflicts:      m.conflicts.WithLabelValues(projection),
		assigned:       m.assigned.WithLabelValues(projection),
		revoked:        m.revoked.WithLabelValues(projection),
		lost:           m.lost.WithLabelValues(projection),
		forgotten:      m.forgotten.WithLabelValues(projection),
		restarts:       m.restarts.WithLabelValues(projection),
		inserted:       m.inserts.WithLabelValues(projection, "acknowledged"),
		failed:         m.inserts.WithLabelValues(projection, "failed"),
		divided:        m.divided.WithLabelValues(projection),
		insertSeconds:  m.insertSeconds.WithLabelValues(projection),
		cutRecords:     m.cutRecords.WithLabelValues(projection),
		visibleSeconds: m.visibleSeconds.WithLabelValues(projection),
		seconds:        map[string]prometheus.Counter{},
	}
	// A rate over a counter that begins with its first event misses that event.
	for _, topic := range p.Topics {
		m.lostRecords.WithLabelValues(projection, topic)
		for _, kind := range []string{resetReported, resetBack, resetExpired, resetRecreate} {
			m.resets.WithLabelValues(projection, topic, kind)
		}
	}
	for _, class := range append(mapping.Classes(), ClassRejected) {
		m.letters.WithLabelValues(projection, string(class))
	}
	for class := range l.retries {
		l.retries[class] = m.retries.WithLabelValues(projection, Class(class).String())
	}
	for _, state := range []string{stateIdle, stateMapping, stateBlocked} {
		l.seconds[state] = m.laneSeconds.WithLabelValues(projection, strconv.Itoa(number), state)
	}
	return l
}

// spent adds to what the poll loop did with its time.
func (l *laneMetrics) spent(state string, d time.Duration) {
	l.seconds[state].Add(d.Seconds())
	if state != stateIdle {
		l.busy.Add(int64(d))
	}
}

// recordsOf returns the counter of a topic's records.
func (l *laneMetrics) recordsOf(topic string) prometheus.Counter {
	return l.records.WithLabelValues(l.projection, topic)
}

// committed counts the outcome of commits.
func (l *laneMetrics) committed(outcome string, partitions int) {
	l.commits.WithLabelValues(l.projection, outcome).Add(float64(partitions))
}

// delivered counts what an acknowledged cut held.
func (l *laneMetrics) delivered(c *cut, now time.Time) {
	l.bytes.Add(float64(c.rows.Size()))
	l.ignored.Add(float64(c.ignored))
	l.unknownFields.Add(float64(c.rows.UnknownFields()))
	l.cutRecords.Observe(float64(c.records))
	if c.records > 0 {
		l.visibleSeconds.Observe(max(0, now.Sub(c.oldest).Seconds()))
	}
	for i := range c.letters {
		l.letters.WithLabelValues(l.projection, string(c.letters[i].Error.Class)).Inc()
	}
}
