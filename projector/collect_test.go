package projector

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// collected makes an engine of two lanes and returns what scrapes tell of its partitions, by metric, topic and
// partition.
func collected(t *testing.T, now time.Time) (lanes []*lane, scrape func() map[string]float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	e, err := New(DefaultConfig(), []Projection{{Name: "results", Topics: []string{"t"}, Group: testGroup, Plan: testPlan(t), Lanes: 2}}, Deps{
		NewInserter: func(Projection) (Inserter, error) { return nil, nil }, DeadLetters: nowhere{}, Records: nowhere{},
		Registerer: registry, Log: zerolog.Nop(), Clock: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range e.lanes {
		l.ledger = newLedger(nil, nil)
		l.positions = newPositions(l.metrics.recordsOf, l.projection.below)
	}
	return e.lanes, func() map[string]float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				switch name := f.GetName(); name {
				case "projector_freshness_seconds", "projector_lag_records", "projector_newest_visible_timestamp_seconds":
					got[name+" "+labels["topic"]+"/"+labels["partition"]] = m.GetGauge().GetValue()
				}
			}
		}
		return got
	}
}

// TestWhatPartitionsTell: each partition has the series that are known, until it belongs to another process: two that
// both report one would contradict each other.
func TestWhatPartitionsTell(t *testing.T) {
	lanes, scrape := collected(t, time.Unix(1_000_000, 0))
	l := lanes[0]
	step := func(what string, want map[string]float64) {
		t.Helper()
		if diff := cmp.Diff(want, scrape()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
	step("nothing is owned", map[string]float64{})
	l.lags.begin(map[string]map[int32]kgo.Offset{"t": {3: kgo.NewOffset().At(5), 4: kgo.NewOffset().AtStart()}})
	step("nobody has seen the end", map[string]float64{})
	l.lags.visible(&slot{topic: "t", partition: 3, high: 10, next: 7, newest: time.Unix(1, 5e8)})
	told := map[string]float64{"projector_lag_records t/3": 3, "projector_newest_visible_timestamp_seconds t/3": 1.5}
	step("a cut is acknowledged", told)
	l.release(nil, map[string][]int32{"t": {3}})
	step("it is another member's", map[string]float64{})
	l.lags.visible(&slot{topic: "t", partition: 3, high: 10, next: 8, newest: time.Unix(2, 0)})
	step("a cut of it was acknowledged too late", map[string]float64{})
}

// TestTwoLanesBelieveInOnePartition: a lane that was expelled does not know it yet when its partition comes to another
// lane of the process. The scrape must go on, with the greater age and the lag of the one that has come further, and
// the news of the expulsion must not end the other's series.
func TestTwoLanesBelieveInOnePartition(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	lanes, scrape := collected(t, now)
	mine := map[string][]int32{"t": {3}}
	for i, l := range lanes {
		l.freshness.own(mine)
		l.freshness.hold("t", 3, mark{7, now.Add(-time.Duration(20-i) * time.Second)})
		l.lags.begin(map[string]map[int32]kgo.Offset{"t": {3: kgo.NewOffset().At(0)}})
		l.lags.visible(&slot{topic: "t", partition: 3, high: 100, next: int64(40 + 20*i), newest: time.Unix(int64(1+i), 0)})
	}
	want := map[string]float64{"projector_freshness_seconds t/3": 20, "projector_lag_records t/3": 40, "projector_newest_visible_timestamp_seconds t/3": 2}
	if diff := cmp.Diff(want, scrape()); diff != "" {
		t.Errorf("both believe in it: -want +got:\n%s", diff)
	}
	lanes[0].release(nil, mine)
	want["projector_freshness_seconds t/3"] = 19
	if diff := cmp.Diff(want, scrape()); diff != "" {
		t.Errorf("one knows better: -want +got:\n%s", diff)
	}
}
