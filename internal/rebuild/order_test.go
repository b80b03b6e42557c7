package rebuild_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/chprojector/projector/internal/rebuild"
)

func done(n int) (p rebuild.Progress) {
	for range n {
		p = p.Add(rebuild.Done{})
	}
	return p
}

func TestAdmit(t *testing.T) {
	for _, c := range []struct {
		name     string
		done     int
		from, to rebuild.Step
		want     string // "" = admitted
	}{
		{"the first step", 0, rebuild.Create, rebuild.Copy, ""},
		{"the last step of a command", 3, rebuild.Create, rebuild.Copy, ""},
		{"start twice", 4, rebuild.Create, rebuild.Copy, "has done step 4 of 9 (copy the source) already; next is `projector rebuild verify`"},
		{"switch unverified", 4, rebuild.Switch, rebuild.Switch, "is at step 5 of 9 (wait for the stream), and step 7 (switch the views) must not come before it; next is `projector rebuild verify`"},
		{"switch while the copy is not finished", 3, rebuild.Switch, rebuild.Switch, "next is `projector rebuild start`"},
		{"switch", 6, rebuild.Switch, rebuild.Switch, ""},
		{"close before the switch", 6, rebuild.Close, rebuild.Close, "next is `projector rebuild switch`"},
		{"close twice", 8, rebuild.Close, rebuild.Close, "already; next is `projector rebuild verify`"},
		{"drop unconfirmed", 8, rebuild.Confirm + 1, rebuild.Confirm + 1, "next is `projector rebuild verify`"},
		{"confirm again", 9, rebuild.CatchUp, rebuild.Confirm + 1, ""},
		{"all done", 9, rebuild.Close, rebuild.Close, "next is `projector rebuild close --drop`"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := done(c.done).Admit("ID", c.from, c.to)
			switch order := new(rebuild.OrderError); {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.As(err, &order) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestProgress: only the next step can be done, what is taken back takes all
// after it along, and the record says the same as the memory.
func TestProgress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, n := rebuild.Progress{}, 0
		for range rapid.IntRange(0, 40).Draw(t, "moves") {
			before := p
			if n < rebuild.Steps && rapid.Bool().Draw(t, "forward") {
				p = p.Add(rebuild.Done{By: "eve"})
				n++
			} else {
				to := rapid.IntRange(1, rebuild.Steps).Draw(t, "to")
				p = p.Until(rebuild.Step(to))
				n = min(n, to-1)
			}
			text, err := json.Marshal(p)
			var read rebuild.Progress
			if err == nil {
				err = json.Unmarshal(text, &read)
			}
			if err != nil || read.Next() != p.Next() || int(p.Next()) != n+1 {
				t.Fatalf("%v: next is %d, read back %d, want %d", err, p.Next(), read.Next(), n+1)
			}
			for i, d := range p.Steps {
				if int(d.Step) != i+1 || d.Name != d.Step.String() {
					t.Fatalf("step %d is %+v", i+1, d)
				}
			}
			for i, d := range before.Steps {
				if int(d.Step) != i+1 {
					t.Fatalf("a copy was changed: %+v", before)
				}
			}
		}
	})
}
