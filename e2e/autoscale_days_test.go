package e2e

import (
	"testing"
	"time"
)

// pool is the group as water: partitions that fill evenly and lanes that empty those which they own. It shows hours in
// milliseconds, and so what the rule does with a load that stays.
type pool struct {
	*scaler
	lanes int
	speed float64 // events a second that a pod carries
	lag   []float64
}

// play lets a load in pods come for hours and returns how often the number of replicas turned in an hour, without the
// first. carries is, if not 0, the target of a second trigger on the events consumed a second, as a share of speed: the
// HPA takes the larger number of replicas that its metrics ask for.
func (p *pool) play(pods, carries float64, hours int) (turnsAnHour float64) {
	const start = 20 * time.Second // until a new pod has its partitions
	n, working, since := p.least, p.least, time.Duration(0)
	for now := time.Duration(0); now < time.Duration(hours)*time.Hour; now += time.Second {
		if now >= since+start {
			working = n
		}
		before, after := 0.0, 0.0
		for i := range p.lag {
			p.lag[i] += pods * p.speed / float64(len(p.lag))
			before += p.lag[i]
		}
		lanes := p.lanes * min(working, n)
		for lane := range min(lanes, len(p.lag)) {
			owned := (len(p.lag) - lane + lanes - 1) / lanes
			for i := lane; i < len(p.lag); i += lanes {
				p.lag[i] = max(0, p.lag[i]-p.speed/float64(p.lanes*owned))
				after += p.lag[i]
			}
		}
		if now%hpaPeriod != 0 {
			continue
		}
		metric := after + pods*p.speed // a second's worth is in hand
		if carries > 0 {
			metric = max(metric, (before-after)/(carries*p.speed)*float64(p.threshold))
		}
		if next := p.decide(now, int64(metric), n); next != n {
			n, since = next, now
		}
	}
	var later []change
	for _, c := range p.changes {
		if c.at > time.Hour {
			later = append(later, c)
		}
	}
	return float64(turns(later)) / float64(hours-1)
}

// TestScalerSustained: lag is gone as soon as there are enough pods, so under a load that stays it cannot tell that they
// are needed, and the number of replicas swings. The window bounds how often, and a trigger on the events consumed ends
// it. docs/decisions/autoscaling.md has the figures that this test prints.
func TestScalerSustained(t *testing.T) {
	const hours = 13
	for _, pods := range []float64{2.5, 5} {
		for _, speed := range []float64{10_000, 50_000} {
			play := func(window int, carries float64) float64 {
				p := &pool{scaler: deployedScaler(t), lanes: 2, speed: speed, lag: make([]float64, 12)}
				if window > 0 {
					p.down.Window = window
				}
				n := p.play(pods, carries, hours)
				t.Logf("%.1f pods of %.0f events/s each, window %d s, second trigger at %.0f %%: %.1f turns an hour", pods, speed, p.down.Window, 100*carries, n)
				return n
			}
			for _, window := range []int{300, 900, 3600} {
				play(window, 0)
			}
			// Between two falls there is a rise, and between that and the next fall the window.
			if n, most := play(0, 0), 2*3600/float64(deployedScaler(t).down.Window); n > most {
				t.Errorf("by lag alone: %.1f turns an hour, want at most %.1f", n, most)
			}
			if n := play(0, 0.8); n > 0 {
				t.Errorf("with the rate of events: %.1f turns an hour, want none", n)
			}
		}
	}
}
