package ops

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// The last hour, and how much of it is kept at most: 240 values of 8 bytes for
// each of 1,000 lines are 2 MB.
const (
	historyEvery = 15 * time.Second
	historyKept  = 240
	historyLines = 1000
)

// Lag is how many records of a partition a projection has still to read.
type Lag struct {
	Projection, Topic string
	Partition         int32
	Records           int64
}

// History samples the last hour of a process in its memory: what its own
// metrics say, and the lag of its groups.
type History struct {
	metrics prometheus.Gatherer
	lags    func(context.Context) []Lag
	log     zerolog.Logger
	before  *sample // the owner's; nil before the first

	mu    sync.Mutex
	times []time.Time
	lines map[lineKey][]float64 // as long as times; NaN = unknown then
}

// lineKey names a line: one value over time.
type lineKey struct {
	projection string
	topic      string // "" for a line of the whole projection
	partition  string
	value      string
}

// NewHistory makes a history of what metrics gathers and lags returns. What
// lags leaves out is unknown. Run samples.
func NewHistory(metrics prometheus.Gatherer, lags func(context.Context) []Lag, log zerolog.Logger) *History {
	return &History{metrics: metrics, lags: lags, log: log, lines: map[lineKey][]float64{}}
}

// Run samples until ctx is done.
func (h *History) Run(ctx context.Context) {
	tick := time.NewTicker(historyEvery)
	defer tick.Stop()
	for {
		h.sample(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (h *History) sample(ctx context.Context, now time.Time) {
	families, err := h.metrics.Gather()
	if err != nil {
		h.log.Debug().Err(err).Msg("sample the metrics")
	}
	limited, cancel := context.WithTimeout(ctx, historyEvery/2)
	defer cancel()
	s := newSample(now, families, h.lags(limited))
	h.add(now, s.values(h.before))
	h.before = s
}

// add appends one value to every line; a line that has none now goes on as
// unknown, and ends when its last value is an hour old.
func (h *History) add(now time.Time, values map[lineKey]float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range values {
		if _, ok := h.lines[key]; !ok && len(h.lines) < historyLines {
			h.lines[key] = slices.Repeat([]float64{math.NaN()}, len(h.times))
		}
	}
	h.times = append(h.times, now)
	drop := max(0, len(h.times)-historyKept)
	h.times = slices.Delete(h.times, 0, drop)
	for key, line := range h.lines {
		value, ok := values[key]
		if !ok {
			value = math.NaN()
		}
		line = slices.Delete(append(line, value), 0, drop)
		if slices.ContainsFunc(line, func(v float64) bool { return !math.IsNaN(v) }) {
			h.lines[key] = line
		} else {
			delete(h.lines, key)
		}
	}
}

// Line is one value over time.
type Line struct {
	Projection string    `json:"projection"`
	Topic      string    `json:"topic,omitempty"`
	Partition  *int32    `json:"partition,omitempty"` // nil: of the whole projection
	Value      string    `json:"value"`
	Points     []reading `json:"points"` // null = unknown then
}

// Past is a History as the page draws it.
type Past struct {
	Every float64     `json:"every_seconds"`
	Times []time.Time `json:"times"`
	Lines []Line      `json:"lines"`
}

// Past returns what is kept.
func (h *History) Past() Past {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := Past{Every: historyEvery.Seconds(), Times: slices.Clone(h.times), Lines: []Line{}}
	for key, values := range h.lines {
		line := Line{Projection: key.projection, Topic: key.topic, Value: key.value, Points: make([]reading, len(values))}
		if n, err := strconv.ParseInt(key.partition, 10, 32); err == nil {
			partition := int32(n)
			line.Partition = &partition
		}
		for i, v := range values {
			line.Points[i] = reading(v)
		}
		p.Lines = append(p.Lines, line)
	}
	slices.SortFunc(p.Lines, func(a, b Line) int { return strings.Compare(a.key(), b.key()) })
	return p
}

func (l *Line) key() string {
	partition := ""
	if l.Partition != nil {
		partition = strconv.Itoa(int(*l.Partition))
	}
	return strings.Join([]string{l.Projection, l.Topic, partition, l.Value}, "\x00")
}

// reading is a number, or NaN for none, which JSON has no number for.
type reading float64

// MarshalJSON writes null for what is not a number, and no more digits than a
// chart can show.
func (r reading) MarshalJSON() ([]byte, error) {
	if v := float64(r); !math.IsNaN(v) && !math.IsInf(v, 0) {
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.AppendInt(nil, int64(v), 10), nil
		}
		return strconv.AppendFloat(nil, v, 'g', 4, 64), nil
	}
	return []byte("null"), nil
}
