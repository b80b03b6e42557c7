package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/chprojector/projector/internal/replay"
)

// replayReport is a replay for programs.
type replayReport struct {
	Replay     string         `json:"replay,omitempty"` // also in _origin of its rows, as replay:ID
	DryRun     bool           `json:"dry_run"`
	Topic      string         `json:"topic"`
	Projection string         `json:"projection"`
	Table      string         `json:"table"`
	Group      string         `json:"group"`
	From       string         `json:"from"`
	To         string         `json:"to,omitempty"`
	Read       int            `json:"read"`
	Selected   int            `json:"selected"`
	Groups     []letterGroup  `json:"groups"`
	Superseded int            `json:"superseded"` // the table has their version, or a newer one
	Left       int            `json:"left"`       // replayed too often
	Remaining  int            `json:"remaining"`  // beyond --max
	Chosen     int            `json:"chosen"`
	WouldFail  []letterGroup  `json:"would_fail"` // by what is wrong now
	Older      int            `json:"older_copies"`
	Others     map[string]int `json:"other_projections"`
	Foreign    int            `json:"foreign"`
	Earlier    earlierLetters `json:"earlier"`      // of a replay that is resumed, before the place where it was stopped
	Since      int            `json:"parked_since"` // letters parked since the replay began that is resumed

	Stored  *int          `json:"stored,omitempty"`
	Failed  []letterGroup `json:"failed,omitempty"`
	Ignored int           `json:"ignored,omitempty"`
	Expired int           `json:"expired,omitempty"` // they left their topic before they were replayed
}

// earlierLetters remain of what a replay did before it was stopped.
type earlierLetters struct {
	Failed int `json:"failed_again"`
	Passed int `json:"passed"` // not tried: replayed too often, or of no configured projection
}

func (w *replayWork) report(r *replayed) replayReport {
	p := r.plan
	report := replayReport{
		Replay: p.ID, DryRun: r.result == nil, Topic: r.target.Topic, Projection: r.target.Projection, Table: r.table, Group: r.job.Group(),
		From: instant(w.selection.From), Read: p.Read, Selected: p.Selection(), Groups: letterGroups(p.Selected), Superseded: p.Superseded, Left: p.Left,
		Remaining: p.Remaining, Chosen: p.Chosen, WouldFail: letterGroups(p.WouldFail), Older: p.Older, Others: p.Others, Foreign: p.Foreign,
		Earlier: earlierLetters(p.Earlier), Since: p.Since,
	}
	if !w.selection.To.IsZero() {
		report.To = instant(w.selection.To)
	}
	if r.result != nil {
		report.Stored, report.Failed = &r.result.Stored, letterGroups(r.result.Failed)
		report.Ignored, report.Expired = r.result.Ignored, r.result.Expired
	}
	return report
}

// scope is what the record says a replay was asked to do.
func (w *replayWork) scope(r *replayed) any {
	return struct {
		Topic   string   `json:"topic"`
		From    string   `json:"from"`
		To      string   `json:"to,omitempty"`
		Classes []string `json:"classes,omitempty"`
		Columns []string `json:"columns,omitempty"`
		Keys    []string `json:"keys,omitempty"`
		Max     int      `json:"max,omitempty"`
		Rate    int      `json:"rate,omitempty"`
		Times   int      `json:"max_replays"`
		Letters int      `json:"letters"`
	}{r.target.Topic, instant(w.selection.From), strings.TrimPrefix(instant(w.selection.To), "-"), w.selection.Classes, w.selection.Columns, w.selection.Keys, w.command.Max, w.command.Rate, r.job.MaxReplays(), r.plan.Chosen}
}

// outcome is what the record says came of it.
func (r *replayed) outcome() any {
	return struct {
		Chosen     int `json:"chosen"`
		Stored     int `json:"stored"`
		Failed     int `json:"failed_again"`
		Superseded int `json:"superseded"`
		Left       int `json:"left"`
		Remaining  int `json:"remaining"`
		Expired    int `json:"expired"`
		Earlier    any `json:"earlier"`
	}{r.plan.Chosen, r.result.Stored, r.result.FailedLetters(), r.plan.Superseded, r.plan.Left, r.plan.Remaining, r.result.Expired, earlierLetters(r.plan.Earlier)}
}

func (w *replayWork) print(all []*replayed) error {
	if w.command.json() {
		reports := make([]replayReport, len(all))
		for i, r := range all {
			reports[i] = w.report(r)
		}
		return printJSON(w.p.stdout, reports)
	}
	for i, r := range all {
		if i > 0 {
			fmt.Fprintln(w.p.stdout)
		}
		if err := r.printPlan(w.p.stdout, w); err != nil {
			return err
		}
		if err := r.printResult(w.p.stdout, w); err != nil {
			return err
		}
	}
	return nil
}

// printPlan shows what was chosen.
func (r *replayed) printPlan(out io.Writer, w *replayWork) error {
	p := r.plan
	report := w.report(r)
	span := spanOf(&w.selection.From, nil)
	if !w.selection.To.IsZero() {
		span = spanOf(&w.selection.From, &w.selection.To)
	}
	fmt.Fprintf(out, "%s into %s: %s parked %s\n", r.target.Topic, r.table, count(p.Selection(), "letter"), span)
	if len(report.Groups) > 0 {
		fmt.Fprintln(out)
		if err := printGroups(out, report.Groups, w.now); err != nil {
			return err
		}
	}
	fmt.Fprintln(out)
	tab := newTable(out)
	line := func(n int, what string) {
		if n > 0 {
			tab.row("  "+strconv.Itoa(n), what)
		}
	}
	line(p.Superseded, "superseded: the table has their version or a newer one")
	line(p.Left, fmt.Sprintf("left: replayed %d times already; --max-replays raises the limit", r.job.MaxReplays()))
	line(p.Remaining, "beyond --max")
	tab.row("  "+strconv.Itoa(p.Chosen), "to replay")
	if err := tab.flush(); err != nil {
		return err
	}
	for _, note := range r.notes() {
		fmt.Fprintln(out, note)
	}
	if r.result == nil && len(report.WouldFail) > 0 {
		fmt.Fprintf(out, "\n%d of them would fail again, for the mapping still refuses them:\n\n", total(report.WouldFail))
		return printGroups(out, report.WouldFail, w.now)
	}
	return nil
}

// notes are what was read and is not the projection's.
func (r *replayed) notes() (notes []string) {
	p := r.plan
	if p.Selection() == 0 && p.Read > 0 {
		notes = append(notes, fmt.Sprintf("%s parked there since then, none of this selection", count(p.Read, "record")))
	}
	if p.Older > 0 {
		notes = append(notes, fmt.Sprintf("%d older copies of letters that were parked again are not counted", p.Older))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Others)) {
		of := "of projection " + name
		switch {
		case name == "":
			of = "that name no projection; give theirs with --projection"
		case !slices.Contains(r.target.Configured, name):
			of += ", which is not configured; give the one to take them with --projection"
		}
		notes = append(notes, count(p.Others[name], "letter")+" "+of)
	}
	if e := p.Earlier; e != (replay.Earlier{}) {
		notes = append(notes, fmt.Sprintf("going on with a replay that was stopped: before that, %d failed again and %d were not tried", e.Failed, e.Passed))
	}
	if p.Since > 0 {
		notes = append(notes, count(p.Since, "letter")+" parked since that replay began: the same command goes on with them")
	}
	if p.Foreign > 0 {
		notes = append(notes, count(p.Foreign, "record")+" that no projector wrote, or of another topic")
	}
	return notes
}

// printResult shows what became of it.
func (r *replayed) printResult(out io.Writer, w *replayWork) error {
	if r.result == nil {
		_, err := fmt.Fprintln(out, "\nThis was a dry run: nothing was changed.")
		return err
	}
	if r.plan.ID == "" {
		_, err := fmt.Fprintln(out, "\nNothing to replay.")
		return err
	}
	fmt.Fprintf(out, "\nreplay %s: %s stored", r.plan.ID, count(r.result.Stored, "row"))
	if n := r.result.FailedLetters(); n > 0 {
		fmt.Fprintf(out, ", %d failed again", n)
	}
	if r.result.Ignored > 0 {
		fmt.Fprintf(out, ", %d ignored by configuration", r.result.Ignored)
	}
	if r.result.Expired > 0 {
		fmt.Fprintf(out, ", %d expired before they were replayed", r.result.Expired)
	}
	fmt.Fprintln(out)
	if len(r.result.Failed) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	return printGroups(out, letterGroups(r.result.Failed), w.now)
}

func total(groups []letterGroup) (n int) {
	for i := range groups {
		n += groups[i].Count
	}
	return n
}
