package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/backfill"
)

// backfillResult is what a backfill has done.
type backfillResult struct {
	Operation  string      `json:"operation"`
	Projection string      `json:"projection"`
	Table      string      `json:"table"`
	State      audit.State `json:"state"`
	Seconds    float64     `json:"seconds"`
	// NotCovered are campaigns that have appeared behind the place where a resumed operation went on.
	NotCovered []string `json:"not_covered"`
	backfill.Counts
}

func (r backfillResult) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, r)
	}
	t := newTable(w)
	t.row("operation", r.Operation+" ("+string(r.State)+")")
	t.row("projection", r.Projection+" into "+r.Table)
	t.row("campaigns", fmt.Sprint(r.Campaigns))
	t.row("rows read", fmt.Sprint(r.Rows))
	t.row("deletions read", fmt.Sprint(r.Deletions))
	t.row("written", fmt.Sprintf("%d in %.1fs", r.Written, r.Seconds))
	t.row("read back", fmt.Sprintf("%d stored, %d replaced by a version that is not older", r.Stored, r.Superseded))
	t.row("refused", fmt.Sprint(r.Refused))
	t.row("repeated", fmt.Sprint(r.Repeated))
	if n := len(r.NotCovered); n > 0 {
		t.row("not covered", fmt.Sprintf("%s that the operation had passed when they appeared, or of which nothing that it wrote is left: %s",
			count(n, "campaign"), shortened(r.NotCovered[:min(n, shownIDs)], n)))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if len(r.NotCovered) > 0 {
		fmt.Fprintf(w, "\nto copy those too: projector backfill --projection %s --campaign %s\n", r.Projection, strings.Join(r.NotCovered, ","))
	}
	return printRefusals(w, r.Refusals, r.Refused+r.Repeated)
}

// answer is the reason of the exit code where the work was done and rows are
// missing.
func (r backfillResult) answer() error {
	if r.Refused+r.Repeated == 0 {
		return nil
	}
	return answerNo{fmt.Sprintf("%s of the source are not in the table: %d refused, %d not unique; all others are",
		count(int(r.Refused+r.Repeated), "row"), r.Refused, r.Repeated)}
}

// shownRefusals is how many are printed for a person; JSON has all that are kept.
const shownRefusals = 20

func printRefusals(w io.Writer, list []backfill.Refusal, total int64) error {
	if len(list) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := newTable(w, "REFUSED", "CAMPAIGN", "SHARD", "CLASS", "COLUMN", "VALUE", "REASON")
	for _, r := range list[:min(len(list), shownRefusals)] {
		t.row(r.Key, r.Campaign, r.Shard, r.Class, r.Column, r.Value, r.Reason)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if rest := total - int64(min(len(list), shownRefusals)); rest > 0 {
		fmt.Fprintf(w, "… and %d more; -o json lists the first %d\n", rest, backfill.MaxRefusals)
	}
	return nil
}
