package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/rebuild"
)

type rebuildStatus struct {
	output
	Projection string `help:"Which projection; needed when there are several." placeholder:"NAME"`
}

func (rebuildStatus) Help() string {
	return `Shows the newest rebuild of the projection: the nine steps, which are done, when and by
whom, the tables that exist, who consumes each generation and how far behind, and the
command to give next. It reads only.

A part that cannot be reached is shown as unknown with the reason; the exit code is then 1.

Examples:

    projector rebuild status
    projector rebuild status -o json`
}

// rebuildResult is where a rebuild stands.
type rebuildResult struct {
	Operation  string        `json:"operation"`
	Projection string        `json:"projection"`
	State      audit.State   `json:"state"`
	Scope      rebuild.Scope `json:"scope"`
	Actor      string        `json:"actor"`
	Reason     string        `json:"reason"`
	rebuild.Progress
	Next  string `json:"next"` // command; "" = nothing is left
	Error string `json:"error,omitempty"`

	Reads       *uint32            `json:"views_read,omitempty"` // of status alone
	Generations []generationStatus `json:"generations,omitempty"`
	Unknown     []string           `json:"unknown,omitempty"`
}

// generationStatus is a table that exists, and who fills it.
type generationStatus struct {
	rebuild.Generation
	Group   string   `json:"group"`
	Members []string `json:"members"`
	Lag     *int64   `json:"lag"` // nil: unknown
}

func (c rebuildStatus) Run(ctx context.Context, p *program) error {
	j, err := newRebuildJob(p, c.Projection, requester{})
	if err != nil {
		return err
	}
	defer j.close()
	op, ok, err := j.latest(ctx)
	if err != nil {
		return err
	}
	r := rebuildResult{Projection: j.projection.Name}
	if ok {
		if err := j.take(op); err != nil {
			return err
		}
		r = j.result()
	}
	if err := j.survey(ctx, &r); err != nil {
		return err
	}
	if err := r.print(p.stdout, c.json()); err != nil {
		return err
	}
	if len(r.Unknown) > 0 {
		return fmt.Errorf("%s could not be asked: what is missing is shown as unknown", count(len(r.Unknown), "part"))
	}
	return nil
}

// survey asks for the tables, and for who fills them.
func (j *rebuildJob) survey(ctx context.Context, r *rebuildResult) error {
	reads, ok, err := j.reads(ctx)
	if err != nil {
		return err
	}
	if ok {
		r.Reads = &reads
	}
	list, err := rebuild.Generations(ctx, j.conn, j.table)
	if err != nil {
		return err
	}
	for _, g := range list {
		s := generationStatus{Generation: g, Group: groupOf(j.cfg, *j.projection, g.Number)}
		if s.Members, err = j.members(ctx, s.Group); err == nil {
			s.Lag, err = j.behind(ctx, s.Group)
		}
		if err != nil {
			r.Unknown = append(r.Unknown, fmt.Sprintf("group %s: %v", s.Group, err))
		}
		r.Generations = append(r.Generations, s)
	}
	return nil
}

// behind is a group's lag over all partitions.
func (j *rebuildJob) behind(ctx context.Context, group string) (*int64, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	lags, err := j.admin.Lag(ctx, group, j.projection.Topics...)
	if err != nil {
		return nil, err
	}
	var total int64
	for _, l := range lags {
		total += l.Lag()
	}
	return &total, nil
}

func (r rebuildResult) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, r)
	}
	if r.Operation == "" {
		fmt.Fprintf(w, "projection %s has no rebuild\n", printable(r.Projection))
		return r.printGenerations(w)
	}
	t := newTable(w)
	t.row("rebuild", r.Operation+" ("+string(r.State)+")")
	t.row("projection", fmt.Sprintf("%s, generation %d to %d", r.Projection, r.Scope.From, r.Scope.To))
	t.row("asked by", strings.TrimSuffix(r.Actor+": "+r.Reason, ": "))
	if r.Error != "" {
		t.row("error", r.Error)
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := r.printSteps(w); err != nil {
		return err
	}
	if err := r.printCopied(w); err != nil {
		return err
	}
	if c, ok := compared(r.Progress); ok {
		if err := c.print(w); err != nil {
			return err
		}
	}
	if err := r.printGenerations(w); err != nil {
		return err
	}
	switch {
	case r.Next == "":
		fmt.Fprintln(w, "\nnothing is left to be done")
	case r.Progress.Next() == rebuild.CatchUp:
		fmt.Fprintln(w, "\nnext: `projector run` with this configuration, beside the deployment that serves; then `"+r.Next+"`")
	default:
		fmt.Fprintln(w, "\nnext: `"+r.Next+"`")
	}
	return nil
}

func (r rebuildResult) printSteps(w io.Writer) error {
	t := newTable(w, "STEP", "", "DONE AT", "BY")
	for s := rebuild.Create; s <= rebuild.Confirm; s++ {
		at, by := "-", ""
		if s < r.Progress.Next() {
			at, by = instant(r.Steps[s-1].At), r.Steps[s-1].By
		}
		t.row(fmt.Sprint(int(s)), s.String(), at, by)
	}
	for _, d := range r.Dropped {
		at := "-"
		if d.At != nil {
			at = instant(*d.At)
		}
		t.row("", fmt.Sprintf("drop %s, %d rows", d.Table, d.Rows), at, "")
	}
	return t.flush()
}

func (r rebuildResult) printCopied(w io.Writer) error {
	if c := r.Copied.Counts; r.Copied.Done || c.Rows > 0 {
		fmt.Fprintf(w, "\ncopied: %s, %d rows and %d deletions read, %d written, %d refused, %d not unique\n",
			count(int(c.Campaigns), "campaign"), c.Rows, c.Deletions, c.Written, c.Refused, c.Repeated)
		return printRefusals(w, c.Refusals, c.Refused+c.Repeated)
	}
	return nil
}

// print says what the last comparison found, and what readers see change.
func (c comparison) print(w io.Writer) error {
	fmt.Fprintf(w, "\ncompared with the source: %d of %s equal, %d live and %d deleted records\n", c.Equal, count(c.Campaigns, "campaign"), c.Live, c.Deleted)
	if c.FromOld == nil {
		fmt.Fprintln(w, "the old generation has other keys, or is gone: what readers see change was not counted")
		return nil
	}
	d := c.FromOld
	fmt.Fprintf(w, "compared with the old generation: %d records, were %d; %d added, %d removed, %d at another version, %d with another content\n",
		d.New, d.Old, d.Added, d.Removed, d.Versions, d.Contents)
	if len(c.ByCampaign) == 0 {
		return nil
	}
	t := newTable(w, "  CAMPAIGN", "ADDED", "REMOVED", "VERSIONS", "CONTENTS", "COLUMNS")
	for _, d := range c.ByCampaign[:min(len(c.ByCampaign), 20)] {
		var columns []string
		for name, n := range d.Columns {
			columns = append(columns, fmt.Sprintf("%s %d", name, n))
		}
		slices.Sort(columns)
		t.row("  "+d.Campaign, fmt.Sprint(d.Added), fmt.Sprint(d.Removed), fmt.Sprint(d.Versions), fmt.Sprint(d.Contents), strings.Join(columns, ", "))
	}
	return t.flush()
}

func (r rebuildResult) printGenerations(w io.Writer) error {
	if len(r.Generations) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := newTable(w, "TABLE", "ROWS", "READERS", "MEMBERS", "LAG")
	for _, g := range r.Generations {
		readers, behind := "", "unknown"
		if r.Reads != nil && *r.Reads == g.Number {
			readers = "views"
		}
		if g.Lag != nil {
			behind = fmt.Sprint(*g.Lag)
		}
		t.row(g.Table, fmt.Sprint(g.Rows), readers, fmt.Sprint(len(g.Members)), behind)
	}
	return errors.Join(t.flush(), printUnknown(w, r.Unknown))
}

func printUnknown(w io.Writer, list []string) error {
	for _, u := range list {
		if _, err := fmt.Fprintf(w, "unknown: %s\n", printable(u)); err != nil {
			return err
		}
	}
	return nil
}
