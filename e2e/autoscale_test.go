package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.yaml.in/yaml/v3"

	"github.com/chprojector/projector/internal/fitness"
)

const (
	// podSpeed is how many events a second one process of two lanes gets into ClickHouse, about: the network lets no
	// more through. So a backlog needs little load, and the machine is not what limits.
	podSpeed = 1000
	rowBytes = 92 // of an insert, for each row
	// simulatedRows is batch.rows of the simulation. The threshold shrinks with it: it is a number of batches.
	simulatedRows = 200
	// fewParts keeps ClickHouse out of it: many small inserts on a busy machine are more than it merges, and then it
	// makes inserts wait.
	fewParts = "    table_settings: {parts_to_delay_insert: 100000, parts_to_throw_insert: 100000}"
	// quiet is how long the load goes on after the last change, so that its rebalance is measured under load as well.
	quiet = 5 * time.Minute
)

// demand is a load over the time of the cluster, in pods that would be fully busy with it.
type demand struct {
	points  []point // between them it changes evenly, after the last it stays
	backlog float64 // pod-minutes of events that come at once, at first
	turns   int     // how often the number of replicas may change its direction
}

type point struct {
	at   time.Duration
	pods float64
}

// demands are the loads. What always comes is small, and smaller the faster the time runs: what piles up while a
// partition moves must not look like a backlog only because moving takes so long in the time of the cluster.
func demands(factor int) map[string]demand {
	calm := 2 / float64(factor)
	at := func(minutes int, pods float64) point { return point{time.Duration(minutes) * time.Minute, pods} }
	return map[string]demand{
		// A campaign opens and closes: more than the minimum carries, for ten minutes.
		"step": {points: []point{at(1, calm), at(1, 2.5), at(11, 2.5), at(11, calm)}, turns: 1},
		// A backfill of the source or an outage of the consumer: a quarter of an hour of one pod's work at once.
		"spike": {points: []point{at(1, calm)}, backlog: 15, turns: 1},
		// A morning: slowly beyond what the minimum carries, and back.
		"ramp": {points: []point{at(0, calm), at(15, 3), at(30, calm)}, turns: 1},
	}
}

// pods is the demand at a moment.
func (d demand) pods(now time.Duration) float64 {
	last := point{pods: d.points[0].pods}
	for _, p := range d.points {
		if now < p.at {
			return last.pods + (p.pods-last.pods)*float64(now-last.at)/float64(p.at-last.at)
		}
		last = p
	}
	return last.pods
}

// end is when it stays as it is.
func (d demand) end() time.Duration { return d.points[len(d.points)-1].at }

// TestAutoscale starts and ends real processes by the rule of the ScaledObject in deploy/kubernetes/overlays/keda, with
// the values of that file, under three loads. Nothing may be lost, and the number of replicas must not swing. How long
// partitions stand still is shown and not judged: it depends on the machine.
//
// Time runs faster for the scaler than for the processes, by E2E_AUTOSCALE: 120 times in CI, 20 times with `make
// autoscale`. What processes and rebalances take is not shortened with it, so a short form is a harder test than the
// long one: a rebalance of two seconds takes four minutes of its cluster.
func TestAutoscale(t *testing.T) {
	factor := number(t, "E2E_AUTOSCALE", 120)
	for name, d := range demands(factor) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAutoscaling(t, d, factor)
			a.play()
			a.verify()
		})
	}
}

// autoscaling is a load with what is done about it.
type autoscaling struct {
	*world
	*scaler
	demand
	factor int
	lanes  int
	link   *proxy // between the pods and ClickHouse
	began  time.Time

	g        *fitness.Generator
	sent     int
	unsent   *kgo.FirstErrPromise
	produced time.Duration // until then the demand is sent, but for owed
	owed     float64       // less than an event

	set           []string  // configuration of each pod
	pods, leaving []*member // oldest first
	started       int
	events        []scaling
	lags          []int64 // at each decision
}

// scaling is one change of the number of replicas.
type scaling struct {
	at       time.Duration // of the cluster
	really   time.Time
	lag      int64
	from, to int
}

func newAutoscaling(t *testing.T, d demand, factor int) *autoscaling {
	t.Helper()
	s := deployedScaler(t)
	w := newWorld(t, setup{
		partitions: int(s.partitions),
		config:     replaced(t, repositoryConfig(t), "    partition_by: detect_id % 8", fewParts),
	})
	w.apply()
	a := &autoscaling{world: w, scaler: s, demand: d, factor: factor, g: events(t, 4_000_000, 20), unsent: kgo.AbortingFirstErrPromise(w.client)}
	var deployed struct {
		Lanes int
		Batch struct{ Rows int64 }
	}
	text, err := os.ReadFile("../deploy/kubernetes/config/config.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &deployed)
	}
	if err != nil || deployed.Lanes < 1 || deployed.Batch.Rows < 1 {
		t.Fatalf("the deployed configuration: %+v, %v", deployed, err)
	}
	a.lanes = deployed.Lanes
	s.threshold = s.threshold * simulatedRows / deployed.Batch.Rows
	a.link = newWatchedProxy(t, w.db.Addr(), func() (requests, answers filter) {
		return narrow(podSpeed * rowBytes / a.lanes), nil
	})
	a.set = []string{
		fmt.Sprint("lanes=", a.lanes), fmt.Sprint("batch.rows=", simulatedRows),
		"clickhouse.addresses=" + a.link.Addr(),
		"kafka.session_timeout=45s", // nobody dies here: whoever is slow must not be taken for dead
	}
	return a
}

// narrow lets so many bytes a second through.
func narrow(bytesPerSecond int) filter {
	return func(chunk []byte) ([]byte, error) {
		timer := time.NewTimer(time.Duration(len(chunk)) * time.Second / time.Duration(bytesPerSecond))
		defer timer.Stop()
		<-timer.C
		return chunk, nil
	}
}

// now is the time of the cluster.
func (a *autoscaling) now() time.Duration { return time.Since(a.began) * time.Duration(a.factor) }

// play lets the load come and scales, until the load is over and everything as it was.
func (a *autoscaling) play() {
	a.t.Helper()
	a.scale(a.least)
	for _, p := range a.pods {
		p.owns()
	}
	if err := a.pileUp(); err != nil {
		a.t.Fatal(err)
	}
	a.began = time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	over := a.end()          // when all is over, unless something happens before
	turn := time.Duration(0) // of the scaler, the next one
	for range tick.C {
		now := a.now()
		if err := a.produce(now); err != nil {
			a.t.Fatal(err)
		}
		if now < turn {
			continue
		}
		turn = now + hpaPeriod
		// A busy machine can be slower to send than the pods are to work off. Then there would be no lag, and all would be
		// over while most of the load is yet to be sent.
		if err := errors.Join(a.client.Flush(a.t.Context()), a.unsent.Err()); err != nil {
			a.t.Fatal(err)
		}
		lag, current := a.lag(), len(a.pods)
		a.lags = append(a.lags, lag)
		if next := a.decide(now, lag, current); next != current {
			a.events = append(a.events, scaling{now, time.Now(), lag, current, next})
			a.scale(next)
			over = max(over, now+quiet)
		} else if now > over && current == a.least && lag <= a.threshold {
			break
		}
		if now > 8*time.Hour {
			a.t.Errorf("%d replicas and a lag of %d after %v", current, lag, now)
			break
		}
	}
}

// pileUp sends the backlog, of which nothing is worked off before all of it is in Kafka: a busy machine can take longer
// to send it than the pods to work it off, and then there never is one.
func (a *autoscaling) pileUp() error {
	a.link.silence()
	defer a.link.clear()
	return errors.Join(a.send(int(a.backlog*podSpeed*60/float64(a.factor))), a.client.Flush(a.t.Context()), a.unsent.Err())
}

// produce sends what the demand has asked for since the last call, however long ago that was.
func (a *autoscaling) produce(now time.Duration) error {
	for a.produced < now {
		step := min(now-a.produced, time.Second)
		a.produced += step
		a.owed += a.demand.pods(a.produced) * podSpeed * step.Seconds() / float64(a.factor)
	}
	whole := int(a.owed)
	a.owed -= float64(whole)
	return a.send(whole)
}

// send hands the next n events to the client. One that does not arrive aborts all others: unsent has its error.
func (a *autoscaling) send(n int) error {
	for range n {
		if a.sent == a.g.Len() {
			return fmt.Errorf("all %d events are sent, and the load goes on", a.sent)
		}
		a.client.Produce(a.t.Context(), &kgo.Record{
			Topic: a.topic, Key: a.g.AppendKey(nil, a.sent), Value: a.g.AppendValue(nil, a.sent),
		}, a.unsent.Promise())
		a.sent++
	}
	return nil
}

// scale starts pods, or ends the youngest, as a Deployment does.
func (a *autoscaling) scale(to int) {
	a.t.Helper()
	for len(a.pods) < to {
		a.started++
		a.pods = append(a.pods, a.start(fmt.Sprint("pod-", a.started), a.set...))
	}
	for len(a.pods) > to {
		youngest := a.pods[len(a.pods)-1]
		a.pods = a.pods[:len(a.pods)-1]
		youngest.signal(syscall.SIGTERM)
		a.leaving = append(a.leaving, youngest)
	}
}

// verify looks at what is stored and at what happened on the way.
func (a *autoscaling) verify() {
	a.t.Helper()
	a.settle() // the lag is back at zero
	h := a.history()
	end := time.Now()
	for _, p := range a.leaving {
		p.ends(drainTimeout, 0)
	}
	for _, p := range a.pods {
		p.drain()
	}
	a.equals(modelOf(a.t, a.g, a.sent))
	a.intact()
	a.show(h, end)

	most, moved := a.least, 0
	for _, e := range a.events {
		most = max(most, e.to)
		moved += max(e.to-e.from, e.from-e.to)
	}
	if most == a.least {
		a.t.Errorf("there were never more than %d replicas, with a lag of up to %d: nothing was scaled", most, slices.Max(a.lags))
	}
	if n := len(a.pods); n != a.least {
		a.t.Errorf("%d replicas are left, want %d", n, a.least)
	}
	if n := turns(a.changes); n > a.turns {
		a.t.Errorf("the number of replicas changed its direction %d times, want at most %d", n, a.turns)
	}
	for _, g := range h.generations {
		if limit := a.scaler.most * a.lanes; g.members > limit {
			a.t.Errorf("generation %d has %d members, more than %d replicas have", g.number, g.members, a.scaler.most)
		}
	}
	// Each lane that comes or goes makes one rebalance, and a cooperative one takes a second to hand over.
	first, last := h.at(a.began), h.at(end)
	if n, limit := int(last.number-first.number), 2*a.lanes*moved; n > limit {
		a.t.Errorf("%d rebalances for %d pods that came or went, want at most %d", n, moved, limit)
	}
	if a.t.Failed() {
		a.t.Logf("the lag at each decision: %v", a.lags)
	}
}

// show prints what happened at each change.
func (a *autoscaling) show(h history, end time.Time) {
	a.t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "time runs %d times faster; %d events, a lag of up to %d; a pod for each %d of lag\n", a.factor, a.sent, slices.Max(a.lags), a.threshold)
	fmt.Fprintf(&text, "%9s %9s %8s %9s %11s %6s %30s %8s\n", "cluster", "really", "lag", "replicas", "rebalances", "moved", "pause of moved: median, most", "others")
	row := func(at time.Duration, from, to time.Time, lag int64, replicas string) {
		moved := h.moved(from, to)
		var pauses, others []time.Duration
		for _, p := range h.partitions() {
			if slices.Contains(moved, p) {
				pauses = append(pauses, h.pause(p, from, to))
			} else {
				others = append(others, h.pause(p, from, to))
			}
		}
		slices.Sort(pauses)
		slices.Sort(others)
		pause, other := "", ""
		if n := len(pauses); n > 0 {
			pause = fmt.Sprintf("%.1f s, %.1f s", pauses[n/2].Seconds(), pauses[n-1].Seconds())
		}
		if n := len(others); n > 0 {
			other = fmt.Sprintf("%.1f s", others[n-1].Seconds())
		}
		fmt.Fprintf(&text, "%9s %8.1fs %8d %9s %11d %6d %30s %8s\n", at.Round(time.Second), from.Sub(a.began).Seconds(), lag, replicas,
			h.at(to).number-h.at(from).number, len(moved), pause, other)
	}
	for i, e := range a.events {
		if i == 0 {
			row(0, a.began, e.really, 0, fmt.Sprint(e.from))
		}
		to := end
		if i+1 < len(a.events) {
			to = a.events[i+1].really
		}
		row(e.at, e.really, to, e.lag, fmt.Sprintf("%d → %d", e.from, e.to))
	}
	a.t.Log(text.String())
}
