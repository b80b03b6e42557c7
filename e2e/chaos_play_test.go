package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// run is one schedule under way.
type run struct {
	*lab
	*plan
	w       *world
	load    *load
	seen    *gate // what the gate of this schedule has seen
	members map[string]*actor

	began    time.Time
	mu       sync.Mutex
	done     []string       // what was done and when
	findings []string       // what must not be
	counts   map[string]int // of what happened
	verdict  verdict
}

// actor is a member with what was done to it. It belongs to one goroutine at a time.
type actor struct {
	*member
	leaving bool // it was told to
}

// settings are short timeouts, so that what a killed or frozen member held is free soon.
var settings = []string{
	"lanes=2", "batch.delay=200ms", "drain_timeout=6s", "kafka.session_timeout=3s", "kafka.rebalance_timeout=15s",
	"clickhouse.insert_timeout=2s", "clickhouse.dial_timeout=1s",
}

// newRun prepares everything for a plan but starts no member.
func (l *lab) newRun(t *testing.T, p *plan) *run {
	t.Helper()
	config := replaced(t, repositoryConfig(t), "partition_by: detect_id % 8", "partition_by: detect_id % 2")
	// Every row stays where it is until the end, as evidence: see gate.
	config = replaced(t, config, "    null_value: dead_letter", "    table_settings: {max_bytes_to_merge_at_max_space_in_pool: 1, max_bytes_to_merge_at_min_space_in_pool: 1}\n    null_value: dead_letter")
	w := newWorld(t, setup{
		partitions: 6, broker: l.broker, server: l.server, database: strings.NewReplacer("/", "_", "-", "_", "=", "_").Replace(t.Name()), config: config,
	})
	w.apply()
	r := &run{lab: l, plan: p, w: w, load: newLoad(w, p), seen: newGate(w), members: map[string]*actor{}, counts: map[string]int{}}
	for _, name := range memberNames {
		r.members[name] = new(actor)
	}
	r.began = time.Now()
	t.Cleanup(r.seen.close)
	l.gate.Store(r.seen)
	return r
}

// play does the plan, with the load beside it, and heals everything.
func (r *run) play(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error {
		defer r.reached("all is produced")
		return r.load.produce(ctx, faultsTo)
	})
	actors := map[string][]step{} // each does one thing after the other; what happens to a member's network waits for nobody
	for _, s := range r.steps {
		who := s.who
		switch s.do {
		case doStart, doKill, doFreeze, doThaw, doLeave, doCrash, doStall:
		default:
			who += "'s network"
		}
		actors[who] = append(actors[who], s)
	}
	for _, steps := range actors {
		all.Go(func() error {
			for _, s := range steps {
				if !wait(ctx, time.Until(r.began.Add(s.at))) {
					return ctx.Err()
				}
				if err := r.do(ctx, s); err != nil {
					return fmt.Errorf("%s: %w", s, err)
				}
			}
			return nil
		})
	}
	err := all.Wait()
	for _, road := range r.roads {
		road.heal()
	}
	return err
}

// disarm takes away the traps that nobody has run into, and counts the others.
func (r *run) disarm() {
	for _, road := range r.roads {
		for where, n := range road.inserts.forget() {
			r.count("insert cut "+string(where), n)
		}
		late, lost := road.commits.forget()
		r.count("commit answered late", late)
		r.count("commit's answer lost", lost)
	}
}

func (r *run) do(ctx context.Context, s step) error {
	road := r.roads[s.who]
	begin := time.Since(r.began)
	switch s.do {
	case doStart, doThaw, doClear:
	default:
		r.count("faults", 1)
	}
	var err error
	switch s.do {
	case doStart, doKill, doLeave, doFreeze, doThaw:
		err = r.drive(ctx, r.members[s.who], s)
	case doCrash:
		r.count("kill -9 of "+s.who, 1)
		err = r.hosts[s.who].crash(ctx, s.wait)
	case doStall:
		err = r.hosts[s.who].stall(s.wait)
	case doCutAll:
		road.to(s.of).cut()
	case doHalve:
		road.to(s.of).halve()
	case doSilence:
		road.to(s.of).silence()
	case doSlow:
		road.to(s.of).slow(s.by)
	case doClear:
		road.to(s.of).clear()
	case doCutBefore:
		road.inserts.set(trap{place: beforeRows})
	case doCutWithin:
		road.inserts.set(trap{place: withinRows})
	case doCutAfter:
		road.inserts.set(trap{place: afterStored})
	case doLateCommit:
		road.commits.next(delay{late: s.wait})
	case doLostCommit:
		road.commits.next(delay{lost: true})
	}
	r.note("%8.2f to %5.2f s  (%s)", begin.Seconds(), time.Since(r.began).Seconds(), s)
	return err
}

// drive does something to a member's process.
func (r *run) drive(ctx context.Context, a *actor, s step) error {
	if s.do == doStart {
		return r.start(ctx, a, s.who)
	}
	if err := a.Running(); err != nil {
		r.find("%s ended by itself: %v", s.who, err)
		return nil
	}
	switch s.do {
	case doKill:
		r.count("kill -9 of projector", 1)
		return a.Kill()
	case doLeave:
		a.leaving = true
		return a.Signal(syscall.SIGTERM)
	case doFreeze:
		return a.Signal(syscall.SIGSTOP)
	default:
		return a.Signal(syscall.SIGCONT)
	}
}

// start starts a member, for the first time or again, and looks at how it has ended before.
func (r *run) start(ctx context.Context, a *actor, name string) error {
	if a.member == nil {
		road := r.roads[name]
		m, err := r.w.launch(name, append(slices.Clip(settings), "kafka.brokers="+road.kafka.Addr(), "clickhouse.addresses="+road.clickHouse.Addr())...)
		a.member = m
		return err
	}
	// A drain is over after drain_timeout and the moment that leaving and closing take.
	state, err := a.Wait(20 * time.Second)
	stuck := err != nil
	if stuck {
		if err := a.Signal(syscall.SIGQUIT); err != nil {
			return err
		}
		state, err = a.Wait(10 * time.Second)
		_, goroutines, _ := strings.Cut(a.log(), "SIGQUIT: quit")
		r.find("%s does not end; its goroutines are\n%s", name, goroutines)
		if err != nil {
			return err
		}
	}
	// A member that leaves while a server is away gives up what it could not finish, and says so with 1. One that has
	// barely begun knows no signals yet.
	expected := []string{"signal: killed"}
	if a.leaving {
		expected = []string{"exit status 0", "exit status 1", "signal: terminated"}
	}
	if !stuck && !slices.Contains(expected, state) {
		r.find("%s ended with %q", name, state)
	}
	a.leaving = false
	return a.Restart(ctx)
}

// settled waits until everything in the topic is committed.
func (r *run) settled(ctx context.Context) {
	const patience = 60 * time.Second
	left, since := int64(-1), time.Now()
	var err error
	for time.Since(since) < patience {
		ask, cancel := context.WithTimeout(ctx, 5*time.Second)
		var o offsets
		o, err = r.w.offsets(ask)
		cancel()
		if err == nil && o.lag() == 0 {
			r.reached("all is committed")
			return
		}
		if err == nil && o.lag() != left {
			left, since = o.lag(), time.Now()
		}
		if !wait(ctx, 20*time.Millisecond) {
			return
		}
	}
	r.find("%d events are not committed and nothing has moved for %v (%v); %s", left, patience, err, r.standstill(ctx))
}

// standstill is what is known when nothing moves: where the partitions are, and what the members say of themselves.
func (r *run) standstill(ctx context.Context) string {
	var text strings.Builder
	ask, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	o, err := r.w.offsets(ask)
	fmt.Fprintf(&text, "committed %v, ends %v (%v)", o.committed, o.ends, err)
	r.seen.mu.Lock()
	defer r.seen.mu.Unlock()
	fmt.Fprintf(&text, "\nall commits:\n  %s", strings.Join(r.seen.history, "\n  "))
	for _, name := range memberNames {
		m := r.members[name].member
		if m == nil {
			continue
		}
		_, metrics := m.probe("/metrics")
		_, ready := m.probe("/readyz")
		fmt.Fprintf(&text, "\n%s: %s", name, strings.TrimSpace(ready))
		for line := range strings.Lines(metrics) {
			for _, of := range []string{"projector_lag_records{", "projector_commits_total{", "projector_records_total{", "projector_partitions_", "projector_inserts_total{"} {
				if strings.HasPrefix(line, of) {
					text.WriteString("\n  " + strings.TrimSpace(line))
				}
			}
		}
	}
	return text.String()
}

// calm checks the processes after all that: they run, are ready, hold on to no more than in a calm schedule, and end as
// they should.
func (r *run) calm() {
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		if err := r.members[name].Running(); err != nil {
			r.find("%s ended by itself: %v", name, err)
			return
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		r.members[name].ready()
	}
	if r.normal.goroutines > 0 {
		for _, name := range slices.Sorted(maps.Keys(r.members)) {
			r.small(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		r.members[name].signal(syscall.SIGTERM)
	}
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		if state, err := r.members[name].Wait(15 * time.Second); err != nil || state != "exit status 0" {
			r.find("%s should end with 0 after SIGTERM in calm weather, and ended with %q (%v)", name, state, err)
		}
		for _, sign := range []string{"panic:", "fatal error:", "DATA RACE"} {
			if strings.Contains(r.members[name].log(), sign) {
				r.find("%s logged %q", name, sign)
			}
		}
	}
}

// small waits until a member holds on to no more than is normal.
func (r *run) small(name string) {
	// A lane that is between two members has a few goroutines and connections more or less.
	most := footprint{r.normal.goroutines + 12, r.normal.connections + 6}
	var f footprint
	deadline := time.Now().Add(soon)
	for time.Now().Before(deadline) {
		if f = r.footprint(name); f.goroutines <= most.goroutines && f.connections <= most.connections {
			return
		}
		wait(r.w.t.Context(), 50*time.Millisecond)
	}
	r.find("%s still holds on to %s; %s are normal", name, f, r.normal)
}

func (r *run) footprint(name string) footprint {
	road := r.roads[name]
	return footprint{r.members[name].metric("go_goroutines"), float64(road.kafka.open() + road.clickHouse.open())}
}

func (r *run) find(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findings = append(r.findings, fmt.Sprintf(format, args...))
}

// reached notes that something has come to its end by itself.
func (r *run) reached(what string) { r.note("%18.2f s  %s", time.Since(r.began).Seconds(), what) }

func (r *run) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, fmt.Sprintf(format, args...))
}

func (r *run) count(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what] += n
}
