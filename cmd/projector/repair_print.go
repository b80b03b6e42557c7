package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/reconcile"
	"github.com/chprojector/projector/internal/repair"
)

func (p *plan) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, p)
	}
	if len(p.Repairs)+len(p.Left) == 0 {
		fmt.Fprintf(w, "nothing to repair in %s\n", p.Table)
		return nil
	}
	t := newTable(w, "KIND", "RECORDS", "WHAT IS DONE", "REPAIR")
	for _, r := range p.Repairs {
		for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
			t.row(kind, strconv.Itoa(r.Kinds[kind]), repair.Advice(reconcile.Kind(kind)), r.Operation)
		}
	}
	for _, l := range p.Left {
		t.row(string(l.Kind), strconv.Itoa(l.Count), l.Advice+" ("+shortened(l.IDs, l.Count)+")", "-")
	}
	if err := t.flush(); err != nil {
		return err
	}
	if len(p.Quarantined) > 0 {
		fmt.Fprintln(w)
		q := newTable(w, "QUARANTINED", "CAMPAIGN", "VERSION", "TOPIC", "PARTITION", "OFFSET", "ORIGIN", "INSERTED")
		for _, record := range p.Quarantined[:min(len(p.Quarantined), shownRefusals)] {
			for _, r := range record.Rows {
				q.row(record.ID, record.Campaign, strconv.FormatUint(r.Version, 10), r.Topic, fmt.Sprint(r.Partition), fmt.Sprint(r.Offset), r.Origin, instant(r.At))
			}
		}
		if err := q.flush(); err != nil {
			return err
		}
		if rest := len(p.Quarantined) - shownRefusals; rest > 0 {
			fmt.Fprintf(w, "… and %d more; `projector repair show` lists them\n", rest)
		}
	}
	for _, r := range p.Repairs {
		who := ""
		if r.Action == repair.Remove {
			who = " --actor SECOND-PERSON"
		}
		fmt.Fprintf(w, "\n%s of %s is planned; to do it: projector repair apply %s%s\n", r.Action, count(r.Records, "record"), r.Operation, who)
	}
	return nil
}

func shortened(ids []string, n int) string {
	text := strings.Join(ids, ", ")
	if n > len(ids) {
		text += ", …"
	}
	return text
}

// repairResult is a repair as it is now.
type repairResult struct {
	Operation  string        `json:"operation"`
	Projection string        `json:"projection"`
	Table      string        `json:"table"`
	Action     repair.Action `json:"action"`
	State      audit.State   `json:"state"`
	repair.Counts
	Items []repairItem `json:"items"`
}

// repairItem is one record of a repair.
type repairItem struct {
	audit.Item
	Before []repair.Row `json:"before"`
}

func newRepairResult(op audit.Operation, scope repairScope, items []audit.Item) repairResult {
	r := repairResult{op.ID, op.Projection, scope.Table, scope.Action, op.State, repair.Count(items), make([]repairItem, len(items))}
	for i, item := range items {
		before, _ := repair.Before(item) // what cannot be read is shown as nothing
		r.Items[i] = repairItem{item, before}
	}
	return r
}

func (r repairResult) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, r)
	}
	t := newTable(w)
	t.row("repair", r.Operation+" ("+string(r.State)+")")
	t.row("does", string(r.Action)+" in "+r.Table+", projection "+r.Projection)
	t.row("records", fmt.Sprintf("%d: %d applied, %d skipped, %d verified, %d refuted", r.Records, r.Applied, r.Skipped, r.Verified, r.Refuted))
	if err := t.flush(); err != nil {
		return err
	}
	noted := slices.DeleteFunc(slices.Clone(r.Items), func(i repairItem) bool { return i.State != repair.Skipped && i.State != repair.Refuted })
	return printItems(w, noted)
}

// printItems lists records; the first ones, for a person.
func printItems(w io.Writer, items []repairItem) error {
	if len(items) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := newTable(w, "RECORD", "CAMPAIGN", "KIND", "SOURCE", "BEFORE", "STATE", "NOTE")
	for _, i := range items[:min(len(items), shownItems)] {
		source := "-"
		if i.SourceVersion != nil {
			source = stateText(&reconcile.State{Version: *i.SourceVersion, Deleted: i.SourceDeleted, Place: i.Place})
		}
		var before []string
		for _, r := range i.Before {
			before = append(before, fmt.Sprintf("%s from %s at %s/%d/%d", stateText(&reconcile.State{Version: r.Version, Deleted: r.Deleted}), r.Origin, r.Topic, r.Partition, r.Offset))
		}
		if len(before) == 0 {
			before = []string{"-"}
		}
		t.row(i.ID, i.Campaign, i.Kind, source, strings.Join(before, "; "), i.State, i.Note)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if rest := len(items) - shownItems; rest > 0 {
		fmt.Fprintf(w, "… and %d more; -o json lists all\n", rest)
	}
	return nil
}

const shownItems = 100

type repairList struct {
	output
	Projection string   `help:"Only this projection's." placeholder:"NAME"`
	State      []string `help:"Only repairs in these states: planned, approved, running, failed, applied, verified, refuted or withdrawn." placeholder:"STATE"`
	Limit      int      `help:"The newest so many." default:"100" placeholder:"N"`
}

func (repairList) Help() string {
	return `Lists repairs, the newest first. Removals that are planned are the quarantine.

Examples:

    projector repair list
    projector repair list --state applied
    projector repair list -o json`
}

// repairStates are those that a repair can be in.
var repairStates = []audit.State{audit.Planned, audit.Approved, audit.Running, audit.Failed, audit.Applied, audit.Verified, audit.Refuted, audit.Withdrawn}

func (c repairList) Run(ctx context.Context, p *program) error {
	if c.Limit < 1 {
		return usageError{errors.New("--limit must be at least 1"), "projector repair list"}
	}
	for _, s := range c.State {
		if !slices.Contains(repairStates, audit.State(s)) { // a list without any would say that there are none
			return usageError{fmt.Errorf("--state: there is no state %q", s), "projector repair list"}
		}
	}
	r, err := openRepairs(p)
	if err != nil {
		return err
	}
	defer r.close()
	filter := audit.Filter{Kind: audit.Repair, Projection: c.Projection, Limit: c.Limit}
	for _, s := range c.State {
		filter.States = append(filter.States, audit.State(s))
	}
	ops, err := r.log.List(ctx, filter)
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(p.stdout, orEmpty(ops))
	}
	t := newTable(p.stdout, "REPAIR", "STATE", "SINCE", "PROJECTION", "ACTION", "RECORDS", "ACTOR", "REASON")
	for _, op := range ops {
		scope := scopeOf(op)
		t.row(op.ID, string(op.State), instant(op.At), op.Projection, string(scope.Action), strconv.Itoa(scope.Records), op.Actor, op.Reason)
	}
	return t.flush()
}

type repairShow struct {
	Operation string `arg:"" help:"The repair, as plan and list name it." placeholder:"OPERATION"`
	output
}

func (repairShow) Help() string {
	return `Shows one repair: who did what when, and of every record the source's version, the rows that
the table had before with their topic, partition, offset and origin, and what became of it.
JSON has the whole rows that a removal takes away.

Examples:

    projector repair show 20261130T134512-4f2a9c
    projector repair show 20261130T134512-4f2a9c -o json`
}

func (c repairShow) Run(ctx context.Context, p *program) error {
	r, err := openRepair(ctx, p, c.Operation)
	if err != nil {
		return err
	}
	defer r.close()
	op, scope := r.op, r.scope
	history, err := r.log.History(ctx, op.ID)
	if err != nil {
		return err
	}
	result := newRepairResult(op, scope, r.records)
	if c.json() {
		return printJSON(p.stdout, struct {
			repairResult
			Reason  string            `json:"reason"`
			History []audit.Operation `json:"history"`
		}{result, history[0].Reason, history})
	}
	t := newTable(p.stdout)
	t.row("repair", op.ID+" ("+string(op.State)+")")
	t.row("does", string(scope.Action)+" in "+scope.Table+", projection "+op.Projection)
	t.row("reason", history[0].Reason)
	t.row("records", strconv.Itoa(scope.Records))
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintln(p.stdout)
	h := newTable(p.stdout, "AT", "STATE", "BY", "WHY")
	for i, o := range history {
		if i == 0 || o.State != history[i-1].State || o.Run != history[i-1].Run {
			why := o.Error
			if o.State == audit.Withdrawn {
				why = o.Reason
			}
			h.row(instant(o.At), string(o.State), o.By, why)
		}
	}
	if err := h.flush(); err != nil {
		return err
	}
	return printItems(p.stdout, result.Items)
}
