package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// plan is one schedule of the chaos suite: its load and its faults. It is a function of the seed alone. What the
// servers, the kernel and the processes make of it takes its own time on every machine, so a repeated schedule is the
// same in what is done and when, not in what happens.
type plan struct {
	seed     uint64
	events   int // good ones, duplicates included
	poison   int
	optimize bool // the view is compared again after all merges
	steps    []step
}

// step is something that is done to an actor at a time.
type step struct {
	at   time.Duration // since the beginning
	who  string        // a member's name, or one of the servers
	do   action
	of   string        // the server whose connections are meant
	by   int           // bytes a second
	wait time.Duration // how long it lasts
}

// action is what a step does.
type action string

const (
	doStart  action = "start"
	doKill   action = "kill -9"
	doFreeze action = "SIGSTOP"
	doThaw   action = "SIGCONT"
	doLeave  action = "SIGTERM"

	doCrash action = "kill -9 and start again" // of a server
	doStall action = "SIGSTOP for"             // of a server

	doCutAll     action = "cut its connections to"
	doCutBefore  action = "cut its next insert before the rows"
	doCutWithin  action = "cut its next insert within the rows"
	doCutAfter   action = "cut its next insert after the rows are stored, before the answer"
	doLateCommit action = "answer its next commit late, after"
	doLostCommit action = "cut its next commit after it happened, before the answer"
	doHalve      action = "make half-open its connections to"
	doSilence    action = "let nothing pass to"
	doSlow       action = "slow down its connections to"
	doClear      action = "let pass again, to"
)

// The actors beside the members.
const (
	clickHouse = "ClickHouse"
	kafka      = "Kafka"
)

var memberNames = []string{"first", "second", "third"}

func (s step) String() string {
	text := fmt.Sprintf("%5.2f s  %-10s  %s", s.at.Seconds(), s.who, s.do)
	if s.of != "" {
		text += " " + s.of
	}
	if s.by > 0 {
		text += fmt.Sprintf(" to %d KB/s", s.by/1000)
	}
	if s.wait > 0 {
		text += fmt.Sprintf(" %.2f s", s.wait.Seconds())
	}
	return text
}

func (p *plan) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d: %d events, %d poison messages, %d steps\n", p.seed, p.events, p.poison, len(p.steps))
	for _, s := range p.steps {
		fmt.Fprintf(&text, "  %s\n", s)
	}
	return text.String()
}

// The window of the faults. Before it members start, after it everything heals.
const (
	faultsFrom = 700 * time.Millisecond
	faultsTo   = 4200 * time.Millisecond
)

// fault draws the steps of one kind of fault that begins at a time.
type fault struct {
	name string
	draw func(*draft, time.Duration)
	dear bool // it takes long to get over, and is drawn half as often
}

// faults are the kinds. Each schedule has one that its seed's place in the list says, so that consecutive seeds go
// through all of them, and several that are drawn.
var faults = []fault{
	{name: "a member is killed", draw: func(d *draft, at time.Duration) { d.down(at, doKill, 100, 900) }},
	{name: "a member leaves and comes back", draw: func(d *draft, at time.Duration) { d.down(at, doLeave, 100, 900) }},
	{name: "a member stands still", draw: func(d *draft, at time.Duration) {
		if m, at, ok := d.member(at, d.spell(at, 500, 4500)); ok {
			d.add(step{at: at, who: m, do: doFreeze})
			d.add(step{at: d.busy[m], who: m, do: doThaw})
		}
	}},
	{name: "rolling restart", draw: (*draft).rolling},
	{name: "ClickHouse is killed", draw: func(d *draft, at time.Duration) {
		d.server(at, step{who: clickHouse, do: doCrash, wait: d.between(0, 1000)})
	}},
	{name: "ClickHouse stands still", draw: func(d *draft, at time.Duration) {
		d.server(at, step{who: clickHouse, do: doStall, wait: d.between(300, 3000)})
	}},
	{name: "Kafka stands still", draw: func(d *draft, at time.Duration) {
		d.server(at, step{who: kafka, do: doStall, wait: d.between(300, 3000)})
	}},
	{name: "Kafka is killed", draw: func(d *draft, at time.Duration) { d.server(at, step{who: kafka, do: doCrash}) }, dear: true},
	{name: "cut before the rows", draw: func(d *draft, at time.Duration) { d.network(at, step{do: doCutBefore}, 0) }},
	{name: "cut within the rows", draw: func(d *draft, at time.Duration) { d.network(at, step{do: doCutWithin}, 0) }},
	{name: "stored, answer lost", draw: func(d *draft, at time.Duration) { d.network(at, step{do: doCutAfter}, 0) }},
	{name: "late commit", draw: func(d *draft, at time.Duration) {
		d.network(at, step{do: doLateCommit, wait: d.between(200, 5500)}, 0)
	}},
	{name: "commit happened, answer lost", draw: func(d *draft, at time.Duration) { d.network(at, step{do: doLostCommit}, 0) }},
	{name: "connections cut", draw: func(d *draft, at time.Duration) { d.network(at, step{do: doCutAll, of: d.either()}, 0) }},
	{name: "half-open", draw: func(d *draft, at time.Duration) {
		d.network(at, step{do: doHalve, of: d.either()}, d.spell(at, 500, 4000))
	}},
	{name: "silent", draw: func(d *draft, at time.Duration) {
		d.network(at, step{do: doSilence, of: d.either()}, d.spell(at, 300, 4000))
	}},
	{name: "slow", draw: func(d *draft, at time.Duration) {
		d.network(at, step{do: doSlow, of: d.either(), by: 20_000 + d.random.IntN(300_000)}, d.spell(at, 500, 3000))
	}},
}

// newPlan draws the schedule of a seed.
func newPlan(seed uint64) *plan {
	d := &draft{random: rand.New(rand.NewPCG(seed, 0xC4A05)), busy: map[string]time.Duration{}}
	d.plan = &plan{seed: seed, events: 6000 + 500*d.random.IntN(9), poison: 3 + d.random.IntN(5), optimize: d.random.IntN(3) == 0}

	// Two or three members; the third may join when all is under way.
	joins := []time.Duration{0, 0, 0}
	if d.random.IntN(2) == 0 {
		joins[2] = d.moment()
	}
	for i, name := range memberNames {
		at := joins[i] + d.between(0, 200)
		d.add(step{at: at, who: name, do: doStart})
		d.busy[name] = at + 300*time.Millisecond
	}
	faults[seed%uint64(len(faults))].draw(d, d.moment())
	others := d.random.Perm(len(faults))
	for _, i := range others[:4+d.random.IntN(4)] {
		if at := d.moment(); !faults[i].dear || d.random.IntN(2) == 0 {
			faults[i].draw(d, at)
		}
	}
	for range 1 + d.random.IntN(2) { // what happens most in life
		d.down(d.moment(), doKill, 50, 900)
	}
	slices.SortStableFunc(d.plan.steps, func(a, b step) int { return int(a.at - b.at) })
	return d.plan
}

// calmPlan has the load and no faults: what is seen in it is normal.
func calmPlan() *plan {
	p := &plan{events: 4000, poison: 3, optimize: true}
	for _, name := range memberNames {
		p.steps = append(p.steps, step{who: name, do: doStart})
	}
	return p
}

// draft is a plan while it is drawn. An actor does one thing after the other, so each is busy for a while.
type draft struct {
	*plan
	random *rand.Rand
	busy   map[string]time.Duration
}

func (d *draft) add(s step) { d.steps = append(d.steps, s) }

func (d *draft) moment() time.Duration {
	return faultsFrom + time.Duration(d.random.Int64N(int64(faultsTo-faultsFrom)))
}

// between is a random duration, in milliseconds.
func (d *draft) between(least, most int) time.Duration {
	return time.Duration(least+d.random.IntN(most-least+1)) * time.Millisecond
}

func (d *draft) either() string { return []string{clickHouse, kafka}[d.random.IntN(2)] }

// member chooses one that is at rest and keeps it busy for a while, from at or from when it is free. It reports false
// if that is past the window.
func (d *draft) member(at, long time.Duration) (string, time.Duration, bool) {
	name := memberNames[d.random.IntN(len(memberNames))]
	at = max(at, d.busy[name])
	if at > faultsTo {
		return "", 0, false
	}
	d.busy[name] = at + long
	return name, at, true
}

// down ends a member and starts it again after some milliseconds.
func (d *draft) down(at time.Duration, how action, least, most int) {
	if m, at, ok := d.member(at, d.between(least, most)); ok {
		d.add(step{at: at, who: m, do: how})
		d.add(step{at: d.busy[m], who: m, do: doStart})
		d.busy[m] += 300 * time.Millisecond
	}
}

// rolling replaces all members one after the other, as a rollout does.
func (d *draft) rolling(at time.Duration) {
	for _, m := range memberNames {
		at = max(at, d.busy[m])
		d.add(step{at: at, who: m, do: doLeave})
		at += d.between(200, 500)
		d.add(step{at: at, who: m, do: doStart})
		at += d.between(100, 400)
		d.busy[m] = at
	}
}

// server adds a step of a server, at most one of each server: what a second outage adds, its place in time takes away.
func (d *draft) server(at time.Duration, s step) {
	if d.busy[s.who] == 0 {
		s.at, d.busy[s.who] = at, at
		d.add(s)
	}
}

// network adds a step at the connections of a member, and its end if it has one.
func (d *draft) network(at time.Duration, s step, long time.Duration) {
	s.at, s.who = at, memberNames[d.random.IntN(len(memberNames))]
	d.add(s)
	if long > 0 {
		d.add(step{at: at + long, who: s.who, do: doClear, of: s.of})
	}
}

// spell is how long something lasts that begins at a time, in milliseconds. Nothing lasts much longer than the window.
func (d *draft) spell(at time.Duration, least, most int) time.Duration {
	return min(d.between(least, most), faultsTo+1500*time.Millisecond-at)
}

// TestPlans: a plan is a function of its seed, says nothing that contradicts itself, and the plans of the short form
// have every kind of fault.
func TestPlans(t *testing.T) {
	const short, long = 10, 500
	seen := map[action]int{}
	for seed := uint64(1); seed <= long; seed++ {
		p := newPlan(seed)
		if text := p.String(); text != newPlan(seed).String() || text == newPlan(seed+1).String() {
			t.Fatalf("the plan of seed %d is no function of it", seed)
		}
		type state struct{ running, frozen bool }
		members := map[string]state{}
		var last time.Duration
		for _, s := range p.steps {
			m := members[s.who]
			ok := true
			switch s.do {
			case doStart:
				ok, m = !m.running, state{running: true}
			case doKill, doLeave:
				ok, m = m.running && !m.frozen, state{}
			case doFreeze:
				ok, m.frozen = m.running && !m.frozen, true
			case doThaw:
				ok, m.frozen = m.frozen, false
			default: // the network's and the servers'
			}
			if !ok || s.at < last || s.at > 10*time.Second {
				t.Fatalf("%q cannot be done in\n%s", s, p)
			}
			members[s.who], last = m, s.at
			if seed <= short {
				seen[s.do]++
			}
		}
		for _, name := range memberNames {
			if members[name] != (state{running: true}) {
				t.Fatalf("%s does not run at the end of\n%s", name, p)
			}
		}
	}
	for _, a := range []action{
		doStart, doKill, doFreeze, doThaw, doLeave, doCrash, doStall, doCutAll, doCutBefore, doCutWithin, doCutAfter,
		doLateCommit, doLostCommit, doHalve, doSilence, doSlow, doClear,
	} {
		if seen[a] == 0 {
			t.Errorf("none of the first %d plans does %q", short, a)
		}
	}
}
