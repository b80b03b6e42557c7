package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

// TestOnlyTheSameIsResumed: a killed replay is gone on with by the same command alone. Whatever else the command says,
// or the projection means by now, begins at the start of its own selection, with nothing behind it untried.
func TestOnlyTheSameIsResumed(t *testing.T) {
	base := func(w *world) command {
		c := w.command()
		c.options = Options{Selection: deadletter.Selection{From: time.UnixMilli(1_700_000_000_000)}, Max: 5, MaxReplays: 3}
		c.target.Digest = "d1"
		return c
	}
	for name, test := range map[string]struct {
		change func(*command)
		same   bool
	}{
		"the same":            {func(*command) {}, true},
		"another rate":        {func(c *command) { c.options.Rate = 1000 }, true},
		"the flags' order":    {func(c *command) { c.target.Configured = []string{"other", "fitness"} }, true},
		"the default, said":   {func(c *command) { c.options.MaxReplays = 0 }, true},
		"another max-replays": {func(c *command) { c.options.MaxReplays = 10 }, false},
		"another max":         {func(c *command) { c.options.Max = 4 }, false},
		"no max":              {func(c *command) { c.options.Max = 0 }, false},
		"another from":        {func(c *command) { c.options.Selection.From = time.UnixMilli(1_700_000_000_001) }, false},
		"a class":             {func(c *command) { c.options.Selection.Classes = []string{"range", "format"} }, false},
		"strays":              {func(c *command) { c.target.Strays = true }, false},
		"another mapping":     {func(c *command) { c.target.Digest = "d2" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.park(letter(0, 1, 1), letter(0, 2, 0), letter(0, 3, 3), letter(0, 4, 4))
			w.killed(base(w), "r1", 3)
			c := base(w)
			test.change(&c)
			p := w.planned(w.job(c), "r2")
			want, selected := "r2", 4 // the second was parked again, and its older copy is not counted
			if test.same {
				want, selected = "r1", 2
			}
			if p.ID != want || p.Selection() != selected {
				t.Errorf("replay %s looks at %d letters, want %s and %d", p.ID, p.Selection(), want, selected)
			}
		})
	}
}

// TestResumedTellsOfAll: the answer of a replay that was killed is that of the whole: what failed again or was left
// before it was killed still is not in the table.
func TestResumedTellsOfAll(t *testing.T) {
	w := newWorld(t, 1)
	c := w.command()
	c.options.MaxReplays = 1
	w.park(letter(0, 1, 0))
	w.replay(c, "r0") // the first one is tried, and then left
	stray := letter(0, 2, 2)
	stray.Projection = "renamed"
	w.park(stray, letter(0, 3, 3), letter(0, 4, 0), letter(0, 5, 5), letter(0, 6, 6))
	w.killed(c, "r1", 5)
	p, r := w.replay(c, "r2")
	if p.ID != "r1" || r.Stored != 2 || p.Chosen != 2 {
		t.Errorf("replay %s chose %d and stored %d, want r1 to go on with 2", p.ID, p.Chosen, r.Stored)
	}
	if p.Earlier != (Earlier{Failed: 1, Passed: 2}) {
		t.Errorf("before it was killed: %+v; want 1 that failed again, 2 that were passed over", p.Earlier)
	}
	p, r = w.replay(c, "r3")
	if p.ID != "r3" || p.Earlier != (Earlier{}) || p.Left != 2 || p.Others["renamed"] != 1 || p.Superseded != 3 || p.Chosen != 0 {
		t.Errorf("the next one: %+v, %+v", p, r)
	}
}

// TestTellsOfWhatWasParkedSince: a replay that is resumed keeps its ends, and says what lies behind them: nobody may take
// its success for that of letters it has not looked at.
func TestTellsOfWhatWasParkedSince(t *testing.T) {
	w := newWorld(t, 1)
	c := w.command()
	c.options.Selection.Classes = []string{"range"}
	w.park(letter(0, 1, 0), letter(0, 2, 2), letter(0, 3, 0))
	w.killed(c, "r1", 2)
	another, stray, others := letter(0, 4, 4), letter(0, 5, 5), letter(0, 6, 6)
	another.Error = &mapping.Error{Class: mapping.ClassFormat, Column: "id"}
	stray.Projection, others.Projection = "renamed", "other"
	w.park(letter(0, 3, 0), another, stray, others, letter(0, 7, 7))
	if p, _ := w.replay(c, "r2"); p.ID != "r1" || p.Since != 2 || p.Earlier.Failed != 1 {
		t.Errorf("replay %s: %d parked since it began, %d failed before it was killed; want 2 (one of a projection that is not configured) and 1", p.ID, p.Since, p.Earlier.Failed)
	}
	if p, r := w.replay(c, "r3"); p.ID != "r3" || p.Since != 0 || r.Stored != 1 {
		t.Errorf("replay %s: %d parked since, %d stored; want another one that stores 1", p.ID, p.Since, r.Stored)
	}
}

// TestPlannedAtTheSameTime: of replays that have read the same letters only one does what it has planned, however the
// others ended or what they were asked for. So no letter is parked twice for one failure.
func TestPlannedAtTheSameTime(t *testing.T) {
	for name, between := range map[string]func(w *world, c command, plan func()){
		"one after the other": func(w *world, c command, plan func()) {
			plan()
			w.replay(c, "r3")
		},
		"after a killed one": func(w *world, c command, plan func()) {
			plan()
			w.killed(c, "r3", 3)
		},
		"after another selection": func(w *world, c command, plan func()) {
			plan()
			c.options.Selection.Classes = []string{"range", "format"}
			w.replay(c, "r3")
		},
		"while one was at work": func(w *world, c command, plan func()) {
			w.atWork = plan
			w.killed(c, "r3", 3)
		},
	} {
		for _, resumed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, resumed %v", name, resumed), func(t *testing.T) {
				w := newWorld(t, 2)
				w.park(letter(0, 1, 1), letter(0, 2, 2), letter(0, 3, 0), letter(1, 4, 0), letter(0, 5, 3))
				c := w.command()
				if resumed {
					w.killed(c, "r0", 2)
				}
				second := w.job(c)
				var plan *Plan
				between(w, c, func() { plan = w.planned(second, "r2") })
				before := w.copies()
				if _, err := second.Run(t.Context(), t.Context(), plan); !errors.Is(err, ErrBusy) {
					t.Errorf("the second one ended with %v, want %v", err, ErrBusy)
				}
				if got := w.copies(); !maps.Equal(got, before) {
					t.Errorf("copies by letter and replays: %v, then %v", before, got)
				}
				// The same command again does what is left, once.
				w.replay(c, "r4")
				for at, n := range w.copies() {
					if n != 1 {
						t.Errorf("%d copies of %s replays", n, at)
					}
				}
				if rows := slices.Compact(slices.Sorted(slices.Values(w.rows))); len(rows) != 3 || len(w.rows) != 3 {
					t.Errorf("rows: %v", w.rows)
				}
			})
		}
	}
}

// TestReplacedTopic: records of a source topic that was created anew are others, although they lie at the same places.
func TestReplacedTopic(t *testing.T) {
	w := newWorld(t, 1)
	again := func(l projector.Letter) projector.Letter {
		l.Timestamp = l.Timestamp.Add(time.Hour)
		return l
	}
	// At place 1 the first fails again and again, and the second would be stored. At 2 the table refuses the second.
	w.park(letter(0, 1, 0), letter(0, 2, 2))
	c := w.command()
	w.replay(c, "r1")
	w.park(again(letter(0, 1, 10)), again(letter(0, 2, 20)), again(letter(0, 3, 30)))
	w.park(letter(0, 3, 3))
	w.refuse = func(rows *mapping.Rows, i int) error {
		if id := rows.Format(i, "id"); id == "3" || id == "20" {
			return &projector.InsertError{Class: projector.Rejected, Code: 469, Message: "constraint"}
		}
		return nil
	}
	p, r := w.replay(c, "r2")
	if p.Selection() != 6 || p.Older != 1 || p.Superseded != 1 || p.Chosen != 5 || r.Stored != 2 || r.FailedLetters() != 3 {
		t.Errorf("%d selected, %d older, %d superseded, %d chosen, %d stored, %d failed again", p.Selection(), p.Older, p.Superseded, p.Chosen, r.Stored, r.FailedLetters())
	}
	var got []string
	w.each(func(l *deadletter.Letter) {
		if l.Info.Class == "rejected" {
			got = append(got, fmt.Sprintf("%d at %s %s%s", l.Info.Offset, l.Info.Timestamp.Format(time.TimeOnly), l.Record.Value, l.Info.Pointer))
		}
	})
	if want := `2 at 21:26:40 {"id":20,"version":1}, 3 at 20:26:40 {"id":3,"version":1}`; strings.Join(got, ", ") != want {
		t.Errorf("rejected: %s\nwant      %s", strings.Join(got, ", "), want)
	}
}

// TestExpiredSinceThePlan: letters may leave their topic while a person reads the plan. They are no success, nobody waits
// for them, and they are not taken for letters that the configuration ignores.
func TestExpiredSinceThePlan(t *testing.T) {
	for name, test := range map[string]struct {
		start  int64 // of the topic by then
		stored int
	}{"some": {2, 1}, "all": {3, 0}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.park(letter(0, 1, 1), letter(0, 2, 2), letter(0, 3, 3))
			j := w.job(w.command())
			p := w.planned(j, "r1")
			client, err := kgo.NewClient(w.opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			var before kadm.Offsets
			before.Add(kadm.Offset{Topic: "results-dlq", At: test.start})
			if deleted, err := kadm.NewClient(client).DeleteRecords(t.Context(), before); err != nil || deleted.Error() != nil {
				t.Fatal(err, deleted.Error())
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r, err := j.Run(ctx, ctx, p)
			if err != nil || r.Stored != test.stored || r.Ignored != 0 || r.Expired != 3-test.stored {
				t.Errorf("%d stored, %d ignored, %d expired, %v; want %d, 0, %d", r.Stored, r.Ignored, r.Expired, err, test.stored, 3-test.stored)
			}
		})
	}
}

// TestParkedTwice: after an answer that was lost there are two copies of a letter, of which one is replayed.
func TestParkedTwice(t *testing.T) {
	w := newWorld(t, 1)
	w.park(letter(0, 1, 0), letter(0, 2, 2))
	w.park(letter(0, 1, 0), letter(0, 2, 2))
	p, r := w.replay(w.command(), "r1")
	if p.Older != 2 || p.Chosen != 2 || r.Stored != 1 || r.FailedLetters() != 1 {
		t.Errorf("%d older copies, %d chosen; %+v", p.Older, p.Chosen, r)
	}
	if got := w.copies()["0/1 after 1"]; got != 1 {
		t.Errorf("it was parked again %d times", got)
	}
}
