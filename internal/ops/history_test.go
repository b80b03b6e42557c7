package ops

import (
	"context"
	"encoding/json"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"pgregory.net/rapid"
)

// engine has the metrics of one projection.
type engine struct {
	*prometheus.Registry
	records, rows *prometheus.CounterVec
	inserts       *prometheus.HistogramVec
	fresh         *prometheus.GaugeVec
}

func newEngine() *engine {
	e := &engine{
		Registry: prometheus.NewRegistry(),
		records:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: familyRecords}, []string{"projection", "topic"}),
		rows:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: familyRows}, []string{"projection"}),
		inserts:  prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: familyInserts, Buckets: []float64{0.1, 1, 10}}, []string{"projection"}),
		fresh:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: familyFresh}, []string{"projection", "topic", "partition"}),
	}
	e.MustRegister(e.records, e.rows, e.inserts, e.fresh)
	return e
}

// points are the values of a line by its name.
func points(p Past) map[string][]reading {
	all := map[string][]reading{}
	for _, l := range p.Lines {
		name := l.Projection + " " + l.Value
		if l.Partition != nil {
			name += " " + l.Topic
		}
		all[name] = l.Points
	}
	return all
}

func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, none := newEngine(), reading(math.NaN())
		var lags []Lag
		h := NewHistory(e, func(context.Context) []Lag { return lags }, zerolog.Nop())
		h.sample(t.Context(), time.Now()) // nothing runs yet
		step := func() {
			time.Sleep(historyEvery) //nolint:forbidigo // the bubble's clock is fake
			h.sample(t.Context(), time.Now())
		}

		e.records.WithLabelValues("p", "a").Add(150)
		e.records.WithLabelValues("p", "b").Add(150)
		e.rows.WithLabelValues("p").Add(30)
		e.fresh.WithLabelValues("p", "a", "0").Set(1.5)
		for range 100 {
			e.inserts.WithLabelValues("p").Observe(0.5)
		}
		lags = []Lag{{"p", "a", 0, 7}, {"p", "b", 3, 8}}
		step()
		e.rows.WithLabelValues("p").Add(60)
		lags = []Lag{{"p", "a", 0, 0}}
		step()
		lags = nil      // Kafka is down
		e.fresh.Reset() // and another process reads a
		step()

		want := map[string][]reading{
			"p records_per_second":     {none, 20, 0, 0},
			"p rows_per_second":        {none, 2, 4, 0},
			"p insert_median_seconds":  {none, 0.55, none, none},
			"p insert_slowest_seconds": {none, 0.991, none, none},
			"p lag_records a":          {none, 7, 0, none},
			"p lag_records b":          {none, 8, none, none},
			// Of b, which another process reads, nothing is known.
			"p freshness_seconds a": {none, 1.5, 1.5, none},
		}
		same := cmp.Comparer(func(a, b reading) bool {
			x, y := float64(a), float64(b)
			return math.IsNaN(x) && math.IsNaN(y) || math.Abs(x-y) < 1e-9
		})
		if d := cmp.Diff(want, points(h.Past()), same); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}

		// A line ends when its last value is an hour old.
		for range historyKept {
			step()
		}
		past := h.Past()
		got := points(past)
		for _, gone := range []string{"p lag_records a", "p lag_records b", "p freshness_seconds a", "p insert_median_seconds"} {
			if _, ok := got[gone]; ok {
				t.Errorf("%s is still there", gone)
			}
		}
		if n := len(got["p rows_per_second"]); n != historyKept || len(past.Times) != historyKept {
			t.Errorf("%d values at %d times", n, len(past.Times))
		}
	})
}

func TestHistoryIsBounded(t *testing.T) {
	h := NewHistory(prometheus.NewRegistry(), nil, zerolog.Nop())
	values := map[lineKey]float64{}
	for i := range 3 * historyLines {
		values[lineKey{partition: string(rune('a' + i))}] = 1
	}
	for range 3 {
		h.add(time.Now(), values)
	}
	if n := len(h.Past().Lines); n != historyLines {
		t.Errorf("%d lines", n)
	}
}

func TestReading(t *testing.T) {
	for want, r := range map[string]reading{"0": 0, "12345678": 12345678, "0.1235": 0.123456, "null": reading(math.NaN())} {
		if got, err := json.Marshal(r); err != nil || string(got) != want {
			t.Errorf("%v is %s, want %s (%v)", float64(r), got, want, err)
		}
	}
	if got, err := json.Marshal(reading(math.Inf(1))); err != nil || string(got) != "null" {
		t.Errorf("infinity is %s, %v", got, err)
	}
}

// An estimate lies in the bucket of the observation that it stands for.
func TestQuantileIsInItsBucket(t *testing.T) {
	if got := (buckets{[]float64{0.1, 1}, []float64{3, 3}, 3}).quantile(1); got != 0.1 {
		t.Errorf("the greatest of a full bucket is %v, want its bound", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		bounds := []float64{0.1, 1, 10}
		counts := make([]float64, len(bounds))
		observed := rapid.SliceOfN(rapid.Float64Range(0, 9.99), 1, 50).Draw(t, "observed")
		for _, v := range observed {
			for i, bound := range bounds {
				if v <= bound {
					counts[i]++
				}
			}
		}
		q := rapid.Float64Range(0.01, 1).Draw(t, "q")
		got := buckets{bounds, counts, float64(len(observed))}.quantile(q)
		low := 0.0
		for i, bound := range bounds {
			if counts[i] >= q*float64(len(observed)) {
				if got < low || got > bound {
					t.Fatalf("%v is not within %v and %v", got, low, bound)
				}
				return
			}
			low = bound
		}
	})
}
