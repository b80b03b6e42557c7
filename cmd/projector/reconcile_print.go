package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/chprojector/projector/internal/reconcile"
)

// printed is how many differences of a campaign are shown to a person.
const printed = 50

// printReports shows each campaign: one line if it is equal, else what differs.
func printReports(w io.Writer, reports []*reconcile.Report) error {
	for _, r := range reports {
		if err := printReport(w, r); err != nil {
			return err
		}
	}
	return nil
}

func printReport(w io.Writer, r *reconcile.Report) error {
	fmt.Fprintf(w, "campaign %s of %s against %s: %s%s in %.1f s\n", printable(r.Campaign), r.Projection, r.Against, r.Verdict, coverage(r), r.Seconds)
	if r.Error != "" {
		fmt.Fprintf(w, "  %s\n", printable(strings.ReplaceAll(r.Error, "\n", "; ")))
		return nil
	}
	fmt.Fprintf(w, "  source  %d live, %d deleted\n  table   %d live, %d deleted\n", r.Source.Live, r.Source.Deleted, r.Target.Live, r.Target.Deleted)
	var levels []string
	for _, l := range r.Levels {
		answer := "equal"
		if l.Differing > 0 {
			answer = count(l.Differing, "bucket") + " differed at first sight"
		}
		levels = append(levels, l.Level+": "+answer)
	}
	fmt.Fprintf(w, "  %s\n", strings.Join(levels, "; "))
	for _, note := range notes(r) {
		fmt.Fprintf(w, "  %s\n", note)
	}
	if len(r.Findings) == 0 {
		return nil
	}
	var kinds []string
	for _, k := range reconcile.Kinds() {
		if n := r.Kinds[k]; n > 0 {
			kinds = append(kinds, fmt.Sprintf("%s %d", k, n))
		}
	}
	fmt.Fprintf(w, "  %s: %s\n\n", count(len(r.Findings), "difference"), strings.Join(kinds, ", "))
	t := newTable(w, "  KIND", "ID", "SOURCE", "TABLE", "FIELDS")
	for i, f := range r.Findings {
		if i == printed {
			break
		}
		t.row("  "+string(f.Kind), f.ID, stateText(f.Source), stateText(f.Target), fieldsText(f.Fields))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if more := len(r.Findings) - printed; more > 0 {
		fmt.Fprintf(w, "  … and %d more; -o json has them all\n", more)
	}
	fmt.Fprintln(w)
	return nil
}

// coverage says of a sample how much was compared.
func coverage(r *reconcile.Report) string {
	if r.Compared == r.Buckets {
		return ""
	}
	return fmt.Sprintf(" (%d of %d buckets)", r.Compared, r.Buckets)
}

// notes are what a person should know beside the differences.
func notes(r *reconcile.Report) (list []string) {
	if r.Unresolved > 0 {
		list = append(list, fmt.Sprintf("%s not settled in %s: %s", count(r.Unresolved, "record"), count(r.Rounds, "round"), printable(r.Reason)))
	}
	if r.Unopened > 0 {
		list = append(list, fmt.Sprintf("%s more differ and stayed closed at the limit of differences; raise --limit", count(r.Unopened, "bucket")))
	}
	if r.Forgotten > 0 {
		list = append(list, fmt.Sprintf("%s in the table of which the source keeps no record", count(r.Forgotten, "deletion")))
	}
	list = append(list, contradictions(r)...)
	if r.Unread > 0 {
		var first []string
		for _, u := range r.Unreadable {
			first = append(first, u.Place+": "+printable(u.Reason))
		}
		list = append(list, fmt.Sprintf("%s could not be read by the contract, such as %s", count(int(r.Unread), "event"), strings.Join(first, "; ")))
	}
	return list
}

// contradictions says of each place how many versions have several contents.
func contradictions(r *reconcile.Report) (list []string) {
	for _, in := range []reconcile.Contradict{reconcile.InTable, reconcile.InTopic} {
		for _, superseded := range []bool{false, true} {
			of := slices.DeleteFunc(slices.Clone(r.Conflicts), func(c reconcile.Conflict) bool { return c.In != in || c.Superseded != superseded })
			if len(of) == 0 {
				continue
			}
			meaning := "at the newest version, and which of them counts is not defined"
			if superseded {
				meaning = "at a version that a newer one hides"
			}
			list = append(list, fmt.Sprintf("%s in the %s with several contents %s, such as %s at version %d",
				count(len(of), "record"), in, meaning, printable(of[0].ID), of[0].Version))
		}
	}
	if r.ConflictsCut {
		list = append(list, "there may be more such records than are listed")
	}
	return list
}

func stateText(s *reconcile.State) string {
	if s == nil {
		return "-"
	}
	text := "version " + strconv.FormatUint(s.Version, 10)
	if s.Deleted {
		text = "deleted at " + strconv.FormatUint(s.Version, 10)
	}
	if s.Place != "" {
		text += " on " + s.Place
	}
	return text
}

func fieldsText(fields []reconcile.FieldDifference) string {
	var list []string
	for _, f := range fields {
		source, target := whereTheyDiffer(f.Source, f.Target)
		list = append(list, fmt.Sprintf("%s: %q is %q in the table", f.Column, source, target))
	}
	return strings.Join(list, "; ")
}

// whereTheyDiffer is two texts, of long ones only where they begin to differ.
func whereTheyDiffer(a, b string) (string, string) {
	const most, before = 200, 20 // bytes
	if len(a) <= most && len(b) <= most {
		return a, b
	}
	first := 0
	for first < len(a) && first < len(b) && a[first] == b[first] {
		first++
	}
	cut := func(s string) string {
		whole := func(at int) int { // not within a character
			for at > 0 && at < len(s) && !utf8.RuneStart(s[at]) {
				at--
			}
			return at
		}
		from, to := whole(max(0, first-before)), whole(min(len(s), first+most))
		text := s[from:to]
		if from > 0 {
			text = "…" + text
		}
		if to < len(s) {
			text += "…"
		}
		return text
	}
	return cut(a), cut(b)
}
