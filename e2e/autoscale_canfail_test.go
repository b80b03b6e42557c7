package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestScalerRule holds the rule against examples: those of the documentation where it has one.
func TestScalerRule(t *testing.T) {
	rule := func(up, down direction) func() *scaler {
		return func() *scaler {
			return &scaler{least: 2, most: 100, threshold: 100, partitions: 1000, up: up, down: down}
		}
	}
	pods := func(n, period int) policy { return policy{"Pods", n, period} }
	percent := func(n, period int) policy { return policy{"Percent", n, period} }
	at := func(window int, policies ...policy) direction { return direction{window, policies} }
	free := at(0, percent(10_000, 15))
	for name, c := range map[string]struct {
		rule func() *scaler
		from int
		lags []int64 // one decision every 15 s, the first at 0
		want []int
	}{
		"a replica for each threshold":                      {rule(free, free), 4, []int64{0, 1001}, []int{2, 11}},
		"10 % too much are tolerated":                       {rule(free, free), 4, []int64{439}, []int{4}},
		"more are not":                                      {rule(free, free), 4, []int64{441}, []int{5}},
		"10 % too little are tolerated":                     {rule(free, free), 4, []int64{360}, []int{4}},
		"less needs fewer, rounded up":                      {rule(free, free), 4, []int64{299}, []int{3}},
		"and between them it is as it is":                   {rule(free, free), 4, []int64{359}, []int{4}},
		"at least":                                          {rule(free, free), 4, []int64{0}, []int{2}},
		"at most":                                           {rule(free, free), 4, []int64{100_000_000}, []int{100}},
		"no more than partitions":                           {func() *scaler { s := rule(free, free)(); s.partitions = 12; return s }, 4, []int64{100_000_000}, []int{12}},
		"up only after a minute of need":                    {rule(at(60, percent(900, 15)), free), 2, []int64{1000, 1000, 1000, 1000, 1000}, []int{2, 2, 2, 2, 10}},
		"up to the least need of the minute":                {rule(at(60, percent(900, 15)), free), 2, []int64{1000, 1000, 500, 1000, 1000, 1000, 1000}, []int{2, 2, 2, 2, 5, 5, 10}},
		"down to the greatest need of the last half minute": {rule(free, at(30, percent(100, 15))), 9, []int64{0, 500, 0, 0}, []int{9, 9, 5, 2}},
		// "The first policy allows at most 4 replicas to be scaled down in one minute. The second allows at most 10 %."
		"the documentation's policies, 80":                 {rule(free, at(0, pods(4, 60), percent(10, 60))), 80, []int64{1000}, []int{72}},
		"the documentation's policies, 72":                 {rule(free, at(0, pods(4, 60), percent(10, 60))), 72, []int64{1000}, []int{64}},
		"the documentation's policies, 40":                 {rule(free, at(0, pods(4, 60), percent(10, 60))), 40, []int64{1000}, []int{36}},
		"a policy holds for its period":                    {rule(free, at(0, pods(4, 60))), 40, []int64{1000, 1000, 1000, 1000, 1000, 1000}, []int{36, 36, 36, 36, 32, 32}},
		"what was added in the period may be taken":        {rule(free, at(0, pods(1, 60))), 4, []int64{800, 0, 0, 0, 0, 0}, []int{8, 3, 3, 3, 3, 2}},
		"the default of Kubernetes doubles, or adds four":  {rule(at(0, percent(100, 15), pods(4, 15)), free), 2, []int64{5000, 5000, 5000, 5000}, []int{6, 12, 24, 48}},
		"a percentage that is less than one adds one":      {rule(at(0, percent(10, 15)), free), 2, []int64{5000}, []int{3}},
		"the lag of a moment, once it has passed, is over": {rule(at(60, pods(2, 60)), at(900, pods(1, 300))), 2, []int64{0, 9000, 0, 0, 0, 0}, []int{2, 2, 2, 2, 2, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			s, n := c.rule(), c.from
			for i, lag := range c.lags {
				if n = s.decide(time.Duration(i)*hpaPeriod, lag, n); n != c.want[i] {
					t.Fatalf("decision %d, lag %d: %d replicas, want %v", i, lag, n, c.want)
				}
			}
		})
	}
}

// TestScalerSteady holds the deployed rule to what it is for, whatever the lag does: it stays within its bounds and its
// pace, gives a pod that it has added time to be of use, and comes to rest.
func TestScalerSteady(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := deployedScaler(t)
		lags := rapid.SliceOfN(rapid.Int64Range(0, 20*s.threshold), 1, 400).Draw(r, "lags")
		n := rapid.IntRange(s.least, s.most).Draw(r, "replicas")
		var now time.Duration
		last := lags[len(lags)-1]
		for range 1000 { // the last lag for four hours
			lags = append(lags, last)
		}
		for i, lag := range lags {
			now = time.Duration(i) * hpaPeriod
			n = s.decide(now, lag, n)
			if n < s.least || n > s.most {
				r.Fatalf("%v: %d replicas", now, n)
			}
		}
		for i, c := range s.changes {
			sum := 0
			for _, before := range s.changes[:i+1] {
				if before.at > c.at-seconds(s.up.Policies[0].Period) {
					sum += before.by
				}
			}
			if c.by < -s.down.Policies[0].Value || sum > s.up.Policies[0].Value {
				r.Fatalf("%v: by %d, by %d within the period: %v", c.at, c.by, sum, s.changes)
			}
			if c.by < 0 && i > 0 && s.changes[i-1].by > 0 && c.at-s.changes[i-1].at < seconds(s.down.Window) {
				r.Fatalf("%v: a pod was taken %v after one was added: %v", c.at, c.at-s.changes[i-1].at, s.changes)
			}
		}
		if n := len(s.changes); n > 0 && s.changes[n-1].at > now-2*time.Hour {
			r.Fatalf("%v: still changing although the lag is what it was: %v", now, s.changes)
		}
	})
}

// recorded is the lag at each decision of TestAutoscale/ramp, 60 times faster, with stabilizationWindowSeconds 0 for
// scaling down: with 2, 3, 4, 6, 5, 4, 3, 4, 3 and 2 replicas, after which the test failed.
var recorded = []int64{
	0, 20, 62, 111, 169, 234, 283, 136, 217, 326, 446, 367, 252, 400, 557, 724, 322, 502, 700, 925,
	402, 638, 861, 920, 580, 851, 943, 856, 923, 1222, 957, 1104, 831, 1011, 1132, 1108, 1102, 1217, 1086, 1299,
	1358, 1356, 1224, 1255, 1194, 1667, 1559, 1431, 1957, 1252, 1800, 1117, 1685, 2044, 1634, 2015, 1580, 1979, 2426, 2184,
	2428, 2451, 2616, 2405, 2960, 2375, 2690, 2280, 2215, 2560, 3037, 2619, 2696, 2038, 2202, 1745, 1408, 1383, 1159, 1757,
	1670, 2017, 1535, 1787, 1345, 1310, 1461, 1418, 1136, 1246, 1375, 1471, 1197, 1277, 1545, 1395, 1241, 1500, 1209, 1098,
	1323, 1373, 1308, 1487, 730, 882, 905, 770, 649, 647, 679, 271, 349, 225, 113, 156, 202, 118, 144, 55,
	63, 12, 14, 22, 30, 28, 20, 16, 25, 33, 12, 15, 24, 32, 12, 13, 21, 29, 16, 13,
	18, 26,
}

// TestScalerThrashes shows that the bound of TestAutoscale can be exceeded: by the rule without its window, on the lag
// that it has brought about itself. With the window the same lag is one rise and one fall.
func TestScalerThrashes(t *testing.T) {
	play := func(window int) *scaler {
		s := deployedScaler(t)
		s.threshold = 400
		s.down.Window = window
		n := s.least
		for i, lag := range recorded {
			n = s.decide(time.Duration(i)*hpaPeriod, lag, n)
		}
		for i := range 1000 { // nothing more comes
			n = s.decide(time.Duration(len(recorded)+i)*hpaPeriod, 0, n)
		}
		return s
	}
	bound := demands(60)["ramp"].turns
	if s := play(0); turns(s.changes) <= bound {
		t.Errorf("without a window: %d turns, want more than %d: %v", turns(s.changes), bound, s.changes)
	}
	if s := play(deployedScaler(t).down.Window); turns(s.changes) != 1 {
		t.Errorf("with the deployed window: %d turns, want 1: %v", turns(s.changes), s.changes)
	}
}

// TestScalerIsReadWhole: a rule that is in the file and not simulated is an error.
func TestScalerIsReadWhole(t *testing.T) {
	text, err := os.ReadFile("../deploy/kubernetes/overlays/keda/scaledobject.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ old, new, want string }{
		"an unknown field of behavior": {"          policies: [{type: Pods, value: 2", "          tolerance: 0.5\n          policies: [{type: Pods, value: 2", "field tolerance not found"},
		"another selection":            {"          policies: [{type: Pods, value: 1", "          selectPolicy: Min\n          policies: [{type: Pods, value: 1", "field selectPolicy not found"},
		"no policy":                    {"          policies: [{type: Pods, value: 1, periodSeconds: 300}]\n", "", "has no policies"},
		"another kind of policy":       {"type: Pods, value: 1", "type: Pod, value: 1", "is no policy"},
		"another pace":                 {"pollingInterval: 15", "pollingInterval: 30", "the HPA asks every 15s"},
		"scaling to zero":              {"minReplicaCount: 2", "minReplicaCount: 0", "scaling to zero"},
		"a cooldown":                   {"minReplicaCount: 2", "cooldownPeriod: 300\n  minReplicaCount: 2", "scaling to zero"},
		"another trigger":              {"type: kafka", "type: cron", "want one trigger of type kafka"},
		"no threshold":                 {`lagThreshold: "200000"`, `lagThreshold: many`, "lagThreshold"},
		"no partitions":                {`projector/partitions: "12"`, `projector/partition: "12"`, "projector/partitions"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readScaler([]byte(replaced(t, string(text), c.old, c.new)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
