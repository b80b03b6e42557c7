package projector

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
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

// markOf marks a record read now. No record is younger than its reading: a producer's clock that is ahead would hide
// an outage for as long as it is.
func markOf(first *kgo.Record, now time.Time) mark {
	if first.Timestamp.After(now) {
		return mark{first.Offset, now}
	}
	return mark{first.Offset, first.Timestamp}
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
	share := min(passed, busy-l.busy) // a wait is counted when it ends: what is more belongs to the interval before, and is carried
	l.ratio += weight * (share.Seconds()/passed.Seconds() - l.ratio)
	l.rate += weight * (float64(settled-l.settled)/passed.Seconds() - l.rate)
	l.at, l.busy, l.settled, l.known = now, l.busy+share, settled, true
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

// collect adds the ages of the lane's partitions to ages, under the projection's name. While Kafka is in trouble they
// are at least as old as that.
func (f *freshness) collect(projection string, now, trouble time.Time, ages map[ownership]time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for topic, partitions := range f.owned {
		for partition, o := range partitions {
			mine := ownership{projection, topic, partition}
			ages[mine] = max(ages[mine], age(o.held, now, trouble))
		}
	}
}

// sample returns the load of the lane, which has been busy for so long.
func (f *freshness) sample(now time.Time, busy time.Duration) load {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.load.sample(now, busy, f.settled)
	return f.load
}
