package projector

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestFreshness(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	const fresh, busy, drain = "projector_freshness_seconds", "projector_busy_ratio", "projector_drain_seconds"
	own := func(l *lane) {
		l.freshness.own(map[string][]int32{"t": {3}})
		l.lags.begin(map[string]map[int32]kgo.Offset{"t": {3: kgo.NewOffset().At(0)}})
	}
	for name, c := range map[string]struct {
		happened func(l *lane, now *time.Time)
		now      int
		want     map[string]float64
	}{
		"owns nothing":                    {func(*lane, *time.Time) {}, 3, map[string]float64{}},
		"an idle partition":               {func(l *lane, _ *time.Time) { own(l) }, 3, map[string]float64{fresh: 0}},
		"not ours, and read all the same": {func(l *lane, _ *time.Time) { l.freshness.hold("t", 3, mark{7, at(-20)}) }, 3, map[string]float64{}},
		"as old as the oldest record held": {func(l *lane, _ *time.Time) {
			own(l)
			l.freshness.hold("t", 3, mark{7, at(-20)})
			l.freshness.hold("t", 3, mark{9, at(-5)})
		}, 3, map[string]float64{fresh: 23}},
		"acknowledged: as old as what is left": {func(l *lane, _ *time.Time) {
			own(l)
			l.freshness.hold("t", 3, mark{7, at(-20)})
			l.freshness.hold("t", 3, mark{9, at(-5)})
			l.freshness.acknowledge(&slot{topic: "t", partition: 3, first: 7, next: 9})
		}, 3, map[string]float64{fresh: 8}},
		"a producer's clock ahead of ours": {func(l *lane, _ *time.Time) { own(l); l.freshness.hold("t", 3, mark{0, at(60)}) }, 3, map[string]float64{fresh: 0}},
		"Kafka is in trouble": {func(l *lane, now *time.Time) {
			own(l)
			*now = at(1)
			l.health.kafka.fail(errHardStop)
		}, 4, map[string]float64{fresh: 3}},
		"a leader is silent": {func(l *lane, now *time.Time) {
			own(l)
			*now = at(2)
			l.health.topics.fail(errHardStop)
			*now = at(3)
			l.health.kafka.fail(errHardStop)
		}, 4, map[string]float64{fresh: 2}},
		"given to another member": {func(l *lane, _ *time.Time) {
			own(l)
			l.freshness.hold("t", 3, mark{7, at(-20)})
			l.freshness.disown(map[string][]int32{"t": {3}})
			l.freshness.acknowledge(&slot{topic: "t", partition: 3, first: 7, next: 9})
		}, 3, map[string]float64{}},
		"busy half of the time, so twice as fast if need be": {func(l *lane, _ *time.Time) {
			own(l)
			l.freshness.hold("t", 3, mark{0, at(0)})
			l.freshness.acknowledge(&slot{topic: "t", partition: 3, first: 0, next: 1000})
			l.lags.visible(&slot{topic: "t", partition: 3, next: 1000, high: 5000})
			l.metrics.spent(stateMapping, 3*time.Second)
			l.metrics.spent(stateBlocked, 2*time.Second)
			l.metrics.spent(stateIdle, 5*time.Second)
		}, 10, map[string]float64{fresh: 0, busy: 0.5, drain: 20}},
		"stands still: a long time, but a finite one": {func(l *lane, _ *time.Time) {
			own(l)
			l.lags.visible(&slot{topic: "t", partition: 3, high: 5000})
			l.metrics.spent(stateBlocked, 30*time.Second)
		}, 10, map[string]float64{fresh: 0, busy: 1, drain: 5000}},
		"nothing to do": {func(l *lane, _ *time.Time) { own(l) }, 10, map[string]float64{fresh: 0, busy: 0, drain: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			now := start
			registry := prometheus.NewPedanticRegistry()
			e, err := New(DefaultConfig(), []Projection{{Name: "results", Topics: []string{"t"}, Group: testGroup, Plan: testPlan(t), Lanes: 1}}, Deps{
				NewInserter: func(Projection) (Inserter, error) { return nil, nil }, DeadLetters: nowhere{}, Records: nowhere{},
				Registerer: registry, Log: zerolog.Nop(), Clock: func() time.Time { return now },
			})
			if err != nil {
				t.Fatal(err)
			}
			c.happened(e.lanes[0], &now)
			now = at(c.now)
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			problems, err := promlint.NewWithMetricFamilies(families).Lint()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
			got := map[string]float64{}
			for _, f := range families {
				if name := f.GetName(); name == fresh || name == busy || name == drain {
					got[name] = total(t, registry, name, "projection", "results")
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestLoadIsSmoothed: a step of load is seen within about a minute, and a single batch is no step.
func TestLoadIsSmoothed(t *testing.T) {
	l := load{at: time.Unix(0, 0)}
	step := func(n int, busy time.Duration, settled int64) {
		for range n {
			l.sample(l.at.Add(10*time.Second), l.busy+busy, l.settled+settled)
		}
	}
	step(30, 0, 0)
	step(1, 10*time.Second, 100_000)
	if l.ratio > 0.2 {
		t.Errorf("one busy interval makes a ratio of %v", l.ratio)
	}
	step(30, 10*time.Second, 100_000)
	if math.Abs(l.ratio-1) > 0.01 || math.Abs(l.rate-10_000) > 100 {
		t.Errorf("after five busy minutes the ratio is %v and the rate %v", l.ratio, l.rate)
	}
	step(18, 0, 0)
	if l.ratio > 0.06 {
		t.Errorf("three idle minutes later the ratio is %v", l.ratio)
	}
	was := l
	if l.sample(l.at.Add(sampleInterval-1), l.busy+time.Hour, 0); l != was {
		t.Error("two scrapes shortly after one another are two samples")
	}
}
