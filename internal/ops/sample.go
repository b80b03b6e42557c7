package ops

import (
	"maps"
	"math"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// The values of a Line.
const (
	valueRecords = "records_per_second"     // consumed, by this process
	valueRows    = "rows_per_second"        // acknowledged by ClickHouse, of this process
	valueMedian  = "insert_median_seconds"  // of this process's inserts since the last sample
	valueSlow    = "insert_slowest_seconds" // the 99th percentile of them
	valueLag     = "lag_records"            // of the group, whoever reads the partition
	valueFresh   = "freshness_seconds"      // age of the oldest record read and not yet visible; of the partitions of this process
)

// The engine's metrics that a History is made of.
const (
	familyRecords = "projector_records_total"
	familyRows    = "projector_rows_total"
	familyInserts = "projector_insert_seconds"
	familyFresh   = "projector_freshness_seconds"
)

// sample is the state of the counters at one time.
type sample struct {
	at      time.Time
	records map[string]float64 // by projection
	rows    map[string]float64
	inserts map[string]buckets
	gauges  map[lineKey]float64
}

func newSample(at time.Time, families []*dto.MetricFamily, lags []Lag) *sample {
	s := &sample{at: at, records: map[string]float64{}, rows: map[string]float64{}, inserts: map[string]buckets{}, gauges: map[lineKey]float64{}}
	for _, l := range lags {
		s.gauges[lineKey{l.Projection, l.Topic, strconv.Itoa(int(l.Partition)), valueLag}] = float64(l.Records)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			label := map[string]string{}
			for _, l := range m.GetLabel() {
				label[l.GetName()] = l.GetValue()
			}
			projection := label["projection"]
			switch f.GetName() {
			case familyRecords:
				s.records[projection] += m.GetCounter().GetValue()
			case familyRows:
				s.rows[projection] += m.GetCounter().GetValue()
			case familyInserts:
				s.inserts[projection] = newBuckets(m.GetHistogram())
			case familyFresh:
				s.gauges[lineKey{projection, label["topic"], label["partition"], valueFresh}] = m.GetGauge().GetValue()
			}
		}
	}
	return s
}

// values is what is now, and what happened since before.
func (s *sample) values(before *sample) map[lineKey]float64 {
	values := maps.Clone(s.gauges)
	if before == nil {
		return values
	}
	seconds := s.at.Sub(before.at).Seconds()
	for projection, inserts := range s.inserts {
		set := func(value string, v float64) { values[lineKey{projection: projection, value: value}] = v }
		set(valueRecords, (s.records[projection]-before.records[projection])/seconds)
		set(valueRows, (s.rows[projection]-before.rows[projection])/seconds)
		since := inserts.since(before.inserts[projection])
		set(valueMedian, since.quantile(0.5))
		set(valueSlow, since.quantile(0.99))
	}
	return values
}

// buckets are a histogram's: how many observations are at most each bound.
type buckets struct {
	bounds []float64
	counts []float64
	total  float64
}

func newBuckets(h *dto.Histogram) (b buckets) {
	for _, x := range h.GetBucket() {
		b.bounds = append(b.bounds, x.GetUpperBound())
		b.counts = append(b.counts, float64(x.GetCumulativeCount()))
	}
	b.total = float64(h.GetSampleCount())
	return b
}

// since leaves what was observed after an earlier state of the histogram.
func (b buckets) since(before buckets) buckets {
	d := buckets{bounds: b.bounds, total: b.total - before.total}
	for i, n := range b.counts {
		if i < len(before.counts) {
			n -= before.counts[i]
		}
		d.counts = append(d.counts, n)
	}
	return d
}

// quantile estimates as Prometheus' histogram_quantile does: evenly spread
// within a bucket, and the last bound for what is beyond it. NaN without
// observations.
func (b buckets) quantile(q float64) float64 {
	if b.total <= 0 || len(b.bounds) == 0 {
		return math.NaN()
	}
	rank, low, below := q*b.total, 0.0, 0.0
	for i, bound := range b.bounds {
		if b.counts[i] >= rank {
			return min(bound, low+(bound-low)*(rank-below)/max(1, b.counts[i]-below)) // 0.1*3/3 is more than 0.1
		}
		low, below = bound, b.counts[i]
	}
	return b.bounds[len(b.bounds)-1]
}
