package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// TestChaos runs random schedules of faults. Each is a function of its seed; E2E_SEED is the first seed, E2E_SCHEDULES
// how many there are (`make chaos`: 200).
func TestChaos(t *testing.T) {
	first, schedules := number(t, "E2E_SEED", 1), number(t, "E2E_SCHEDULES", 10)
	l := newLab(t)
	var sum tally
	began := time.Now()
	t.Cleanup(func() { t.Logf("%s, %.0f s", &sum, time.Since(began).Seconds()) })
	if !t.Run("calm", func(t *testing.T) { l.schedule(t, calmPlan(), new(tally)) }) {
		t.Fatal("faults would show nothing beyond that")
	}
	t.Logf("normal is %s", l.normal)
	t.Run("the checks can fail", func(t *testing.T) { canFail(t, l) })
	for seed := first; seed < first+schedules; seed++ {
		t.Run(fmt.Sprint("seed-", seed), func(t *testing.T) { l.schedule(t, newPlan(uint64(seed)), &sum) })
	}
}

// schedule runs one plan from its beginning to its end and says how to repeat it if something is wrong.
func (l *lab) schedule(t *testing.T, p *plan, sum *tally) {
	t.Helper()
	r := l.newRun(t, p)
	t.Cleanup(func() {
		sum.add(r)
		if t.Failed() {
			sum.failed++
			t.Logf("the plan of %s\nwhat was done:\n  %s\nrepeat it with: make chaos SEED=%d SCHEDULES=1", p, strings.Join(r.done, "\n  "), p.seed)
		}
	})
	guarded, release := context.WithCancel(t.Context())
	var guards errgroup.Group
	for _, h := range l.hosts {
		guards.Go(func() error { return h.guard(guarded) })
	}
	defer func() {
		release()
		if err := guards.Wait(); err != nil {
			t.Error(err)
		}
	}()
	if err := r.play(t.Context()); err != nil {
		t.Fatalf("the schedule could not be run: %v", err)
	}
	r.settled(t.Context()) // what is still to be cut is cut now
	r.disarm()
	v, err := r.judge(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.verdict = v
	r.reached("all is judged")
	if p.seed == 0 {
		l.measure(r)
	}
	r.calm()
	r.reached("all processes have ended")
	t.Logf("%d events, %d faults, %d commits checked, %d rows inserted again, %.1f s", len(r.load.events), r.counts["faults"], r.seen.commits, v.again, time.Since(r.began).Seconds())
	r.report(t)
	if !t.Failed() {
		r.remove(t)
	}
}

// measure notes what is normal for a member.
func (l *lab) measure(r *run) {
	for name := range r.members {
		f := r.footprint(name)
		l.normal.goroutines = max(l.normal.goroutines, f.goroutines)
		l.normal.connections = max(l.normal.connections, f.connections)
	}
}

// report fails the test with everything that must not be.
func (r *run) report(t *testing.T) {
	t.Helper()
	for _, list := range []struct {
		what  string
		found []string
	}{
		{"committed early", r.seen.early},
		{"lost", r.verdict.lost},
		{"invented", r.verdict.invented},
		{"wrong", r.verdict.wrong},
		{"not as it should be", r.findings},
	} {
		if n := len(list.found); n > 0 {
			t.Errorf("%s: %d, the first of them:\n  %s", list.what, n, strings.Join(list.found[:min(n, 5)], "\n  "))
		}
	}
	for _, h := range r.hosts {
		for _, death := range h.died() {
			r.count(h.name+" died by itself", 1)
			if h.name == kafka {
				t.Errorf("the broker died by itself: %s", death)
			}
		}
	}
}

// remove takes away what the schedule left on the servers.
func (r *run) remove(t *testing.T) {
	t.Helper()
	if _, err := r.ask(t.Context(), "DROP DATABASE "+r.w.db.Name+" SYNC"); err != nil {
		t.Error(err)
	}
	if _, err := r.w.admin.DeleteTopics(t.Context(), r.w.topic, r.w.topic+"-dlq"); err != nil {
		t.Error(err)
	}
}

// tally is what happened in all schedules.
type tally struct {
	schedules, failed, events, poison, commits, unchecked, again int
	lost, wrong, early                                           int
	counts                                                       map[string]int
}

func (s *tally) add(r *run) {
	s.schedules++
	s.events += len(r.load.events)
	s.poison += len(r.load.parked)
	s.commits += r.seen.commits
	s.unchecked += r.seen.unchecked
	s.early += len(r.seen.early)
	s.again += r.verdict.again
	s.lost += len(r.verdict.lost)
	s.wrong += len(r.verdict.wrong) + len(r.verdict.invented)
	if s.counts == nil {
		s.counts = map[string]int{}
	}
	for what, n := range r.counts {
		s.counts[what] += n
	}
}

func (s *tally) String() string {
	var what strings.Builder
	for _, k := range slices.Sorted(maps.Keys(s.counts)) {
		fmt.Fprintf(&what, ", %s: %d", k, s.counts[k])
	}
	return fmt.Sprintf("%d schedules, %d failed; %d events and %d poison messages%s; %d commits checked, %d kept back unchecked, %d early; %d rows inserted again; lost %d, wrong %d",
		s.schedules, s.failed, s.events, s.poison, what.String(), s.commits, s.unchecked, s.early, s.again, s.lost, s.wrong)
}
