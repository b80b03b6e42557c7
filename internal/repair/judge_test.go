package repair

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/backfill"
	"github.com/chprojector/projector/internal/reconcile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestJudge(t *testing.T) {
	five := uint64(5)
	live, gone := audit.Item{SourceVersion: &five}, audit.Item{SourceVersion: &five, SourceDeleted: true}
	source := func(version uint64, phase backfill.Phase) *current {
		return &current{version: version, phase: phase, shard: "s0"}
	}
	old, ours := Row{Version: 3, Origin: "stream"}, Row{Version: 5, Origin: "repair:x"}
	r := &Replayer{Origin: "repair:x"}
	for _, c := range []struct {
		name    string
		item    audit.Item
		was, is []Row
		source  *current
		want    string
		note    string
	}{
		{"missing", live, nil, nil, source(5, backfill.Live), Planned, ""},
		{"stale", live, []Row{old}, []Row{old}, source(5, backfill.Live), Planned, ""},
		{"stale, an older row merged away", live, []Row{{Version: 2}, old}, []Row{old}, source(5, backfill.Live), Planned, ""},
		{"undeleted", gone, []Row{old}, []Row{old}, source(5, backfill.Deleted), Planned, ""},
		{"written before a kill", live, []Row{old}, []Row{old, ours}, source(5, backfill.Live), Applied, "earlier process"},
		{"a deletion of ours is not the row", live, []Row{old}, []Row{old, {Version: 5, Deleted: true, Origin: "repair:x"}}, source(5, backfill.Live), Skipped, "the table has changed"},
		{"written by the stream", live, []Row{old}, []Row{old, {Version: 5, Origin: "stream"}}, source(5, backfill.Live), Skipped, "it had version 3 (stream) and has version 5 (stream)"},
		{"came to be", live, nil, []Row{old}, source(5, backfill.Live), Skipped, "it had nothing"},
		{"went away", live, []Row{old}, nil, source(5, backfill.Live), Skipped, "has nothing"},
		{"deleted in the table", live, []Row{old}, []Row{{Version: 3, Deleted: true}}, source(5, backfill.Live), Skipped, "a deletion at version 3"},
		{"the source moved on", live, nil, nil, source(6, backfill.Live), Skipped, "it is version 6 (s0) now"},
		{"the source went back", live, nil, nil, source(4, backfill.Live), Skipped, "the source has changed"},
		{"deleted at the same version", live, nil, nil, source(5, backfill.Deleted), Skipped, "a deletion at version 5"},
		{"gone without a record", live, nil, nil, nil, Skipped, "does not have it any more"},
		{"twice in the source", live, nil, nil, &current{version: 5, repeated: true}, Skipped, "more than one live row"},
		{"refused", live, nil, nil, &current{refused: errors.New("no number")}, Skipped, "no number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			state, note := r.judge(c.item, c.was, c.is, c.source)
			if state != c.want || !strings.Contains(note, c.note) {
				t.Errorf("%s: %q, want %s: %q", state, note, c.want, c.note)
			}
		})
	}
}

func TestJudgeRemoval(t *testing.T) {
	row := Row{Version: 3, Topic: "t", Partition: 1, Offset: 7, Origin: "stream"}
	newer := row
	newer.Offset = 8
	for _, c := range []struct {
		name    string
		state   string
		was, is []Row
		source  *current
		want    string
	}{
		{"as planned", Planned, []Row{row}, []Row{row}, nil, Removing},
		{"one merged away", Planned, []Row{row, newer}, []Row{newer}, nil, Removing},
		{"going on after a kill, before the rows went", Removing, []Row{row}, []Row{row}, nil, Removing},
		{"going on after a kill, after the rows went", Removing, []Row{row}, nil, nil, Applied},
		{"gone by another hand", Planned, []Row{row}, nil, nil, Skipped},
		{"a row has come", Planned, []Row{row}, []Row{row, newer}, nil, Skipped},
		{"the source has it now", Planned, []Row{row}, []Row{row}, &current{version: 3}, Skipped},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, note := judgeRemoval(audit.Item{State: c.state}, c.was, c.is, c.source); got != c.want {
				t.Errorf("%s: %q, want %s", got, note, c.want)
			}
		})
	}
}

// Every kind has an action and an advice, and what is not done says so.
func TestEveryKindIsDealtWith(t *testing.T) {
	for _, k := range append(reconcile.Kinds(), VersionConflict) {
		if advice := Advice(k); strings.Contains(advice, "unknown") || (ActionFor(k) == None) != strings.HasPrefix(advice, "not repaired") {
			t.Errorf("%s: %s: %q", k, ActionFor(k), advice)
		}
	}
}

// double is a worker and a record that fail at the n-th call.
type double struct {
	fail  int
	calls int
	seen  map[string]int
	added []audit.Item
}

func (d *double) step() error {
	if d.calls++; d.calls == d.fail {
		return errors.New("killed")
	}
	return nil
}

func (d *double) Work(_ context.Context, campaign string, items []audit.Item) ([]audit.Item, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	done := make([]audit.Item, len(items))
	for i, item := range items {
		if item.Campaign != campaign {
			return nil, errors.New("two campaigns at once")
		}
		d.seen[item.Key]++
		done[i] = become(item, Applied, "")
	}
	return done, nil
}

func (d *double) Add(_ context.Context, list ...audit.Item) error {
	if err := d.step(); err != nil {
		return err
	}
	d.added = append(d.added, list...)
	return nil
}

// Whatever the record says is done is not done again, and the rest is, however
// often the work was cut off.
func TestEachItemIsRecordedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var items []audit.Item
		for i := range rapid.IntRange(1, 30).Draw(t, "items") {
			items = append(items, audit.Item{
				Key: string(rune('a' + i)), Campaign: string(rune('0' + i/rapid.IntRange(3, 9).Draw(t, "campaign"))),
				State: rapid.SampledFrom([]string{Planned, Removing, Applied, Skipped}).Draw(t, "state"),
			})
		}
		want := map[string]bool{}
		for _, item := range items {
			want[item.Key] = item.State == Planned || item.State == Removing
		}
		d := &double{seen: map[string]int{}}
		for {
			d.calls, d.fail = 0, rapid.IntRange(0, 6).Draw(t, "fail")
			if err := each(t.Context(), d, d, items, rapid.SampledFrom([]int{0, 100, 1000}).Draw(t, "rate"), func(int) {}); err == nil {
				break
			}
		}
		recorded := map[string]int{}
		for _, item := range d.added {
			recorded[item.Key]++
		}
		for _, item := range items {
			if n := recorded[item.Key]; (n == 1) != want[item.Key] || n > 1 || item.State == Planned || item.State == Removing {
				t.Fatalf("item %q is %s and was recorded %d times", item.Key, item.State, n)
			}
		}
	})
}
