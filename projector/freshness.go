package projector

import (
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// sampleInterval is the least time between two samples of a lane's load; more scrapes share one.
	sampleInterval = 5 * time.Second
	// smoothing is the time constant of the load: shorter follows every batch, longer sleeps through a step.
	smoothing = time.Minute
)

// freshness is how old the oldest record is that readers still miss, and how busy the lane is. The poll loop, the
// sender and a scrape share it; they meet once for a cut, never for a record.
type freshness struct {
	mu      sync.Mutex
	owned   map[string]map[int32]*owned
	settled int64 // offsets acknowledged in this life
	load    load
}

// owned is a partition that the lane owns.
type owned struct {
	held []mark // where each cut begins that holds records of it, oldest first
}

// mark is the first record that a cut holds of a partition.
type mark struct {
	offset    int64
	timestamp time.Time
}

// reset begins a new life of the lane, which has been busy for so long in earlier ones.
func (f *freshness) reset(now time.Time, busy time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owned = map[string]map[int32]*owned{}
	f.settled, f.load = 0, load{at: now, busy: busy}
}

// own adds partitions that the group has given to the lane: nothing held of them is fresh, and says so.
func (f *freshness) own(partitions map[string][]int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for topic, numbers := range partitions {
		if f.owned[topic] == nil {
			f.owned[topic] = map[int32]*owned{}
		}
		for _, n := range numbers {
			f.owned[topic][n] = new(owned)
		}
	}
}

// disown ends what is told of partitions that belong to another member now.
func (f *freshness) disown(partitions map[string][]int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for topic, numbers := range partitions {
		for _, n := range numbers {
			delete(f.owned[topic], n)
		}
	}
}

// hold notes where a cut begins to hold records of a partition.
func (f *freshness) hold(topic string, partition int32, first mark) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.owned[topic][partition]; o != nil {
		o.held = append(o.held, first)
	}
}

// acknowledge notes that what a cut held of a partition is acknowledged.
func (f *freshness) acknowledge(s *slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settled += s.next - s.first
	if o := f.owned[s.topic][s.partition]; o != nil {
		o.held = slices.DeleteFunc(o.held, func(m mark) bool { return m.offset < s.next })
	}
}

// age is how long readers of a partition have been behind: since the oldest record held of it. While Kafka is in
// trouble they may be behind since then, which counts as much.
func age(held []mark, now, trouble time.Time) time.Duration {
	var age time.Duration
	if len(held) > 0 {
		age = now.Sub(held[0].timestamp)
	}
	if !trouble.IsZero() {
		age = max(age, now.Sub(trouble))
	}
	return max(0, age)
}

// load is how busy a lane is and how fast it works, smoothed. A lane that is behind acts on its own load, and a scaler
// on that of all.
type load struct {
	at      time.Time
	busy    time.Duration
	settled int64
	known   bool
	ratio   float64 // share of the time that the poll loop did not wait for records
	rate    float64 // offsets acknowledged a second
}

// sample takes in how long the lane has been busy and what it has settled up to now.
func (l *load) sample(now time.Time, busy time.Duration, settled int64) {
	passed := now.Sub(l.at)
	if passed < sampleInterval {
		return
	}
	weight := 1.0
	if l.known {
		weight = 1 - math.Exp(-passed.Seconds()/smoothing.Seconds())
	}
	l.ratio += weight * (min(1, (busy-l.busy).Seconds()/passed.Seconds()) - l.ratio)
	l.rate += weight * (float64(settled-l.settled)/passed.Seconds() - l.rate)
	l.at, l.busy, l.settled, l.known = now, busy, settled, true
}

// drain estimates the seconds in which a lag is worked off if nothing is added to it. A lane that is idle half of its
// time can go twice as fast as it does; one that is always busy goes as fast as it can. At least one record a second
// is assumed, because a scaler cannot count with infinity.
func (l *load) drain(lag int64) float64 {
	if lag == 0 {
		return 0
	}
	speed := l.rate
	if l.ratio > 0 {
		speed /= l.ratio
	}
	return float64(lag) / max(1, speed)
}

var (
	partitionLabels = []string{"projection", "topic", "partition"}
	laneLabels      = []string{"projection", "lane"}

	descFreshness = prometheus.NewDesc("projector_freshness_seconds", "Age of the oldest record of a partition that was read and is not acknowledged, 0 if there is none; or how long Kafka has been in trouble.", partitionLabels, nil)
	descBusy      = prometheus.NewDesc("projector_busy_ratio", "Share of the last minute that a lane spent mapping or waiting for ClickHouse.", laneLabels, nil)
	descDrain     = prometheus.NewDesc("projector_drain_seconds", "Estimated time in which a lane works off its lag if nothing is added to it.", laneLabels, nil)
)

// freshnessCollector tells the freshness of an engine's lanes as it is at the moment of a scrape: an age that a loop
// updates stands still together with the loop.
type freshnessCollector struct{ *Engine }

// Describe is part of prometheus.Collector.
func (freshnessCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- descFreshness
	descs <- descBusy
	descs <- descDrain
}

// Collect is part of prometheus.Collector.
func (c freshnessCollector) Collect(metrics chan<- prometheus.Metric) {
	now := c.deps.Clock()
	ages := map[ownership]time.Duration{}
	for _, l := range c.lanes {
		l.freshness.collect(l, now, metrics, ages)
	}
	for o, age := range ages {
		metrics <- prometheus.MustNewConstMetric(descFreshness, prometheus.GaugeValue, age.Seconds(), o.projection, o.topic, strconv.Itoa(int(o.partition)))
	}
}

// ownership names a partition of a projection. Two lanes may believe that it is theirs: one that was expelled learns
// so only from its next heartbeat, and the group may have given the partition to a lane of the same process. One
// series told twice would fail the whole scrape, so the greater age stands for both.
type ownership struct {
	projection, topic string
	partition         int32
}

// collect tells the load of one lane, and adds the ages of its partitions to ages.
func (f *freshness) collect(l *lane, now time.Time, metrics chan<- prometheus.Metric, ages map[ownership]time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := l.projection.Name
	trouble := l.health.kafka.since()
	for topic, partitions := range f.owned {
		for partition, o := range partitions {
			mine := ownership{name, topic, partition}
			ages[mine] = max(ages[mine], age(o.held, now, trouble))
		}
	}
	f.load.sample(now, time.Duration(l.metrics.busy.Load()), f.settled)
	if f.load.known {
		number := strconv.Itoa(l.number)
		metrics <- prometheus.MustNewConstMetric(descBusy, prometheus.GaugeValue, f.load.ratio, name, number)
		metrics <- prometheus.MustNewConstMetric(descDrain, prometheus.GaugeValue, f.load.drain(l.lags.behind()), name, number)
	}
}
