package chschema

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A view's comment ends with a mark: a hash of the definition that was asked
// for and, once [Apply] has read it back, one of the query that the server
// stored. The server rewrites a query (COUNT(*) becomes count(*), tables get
// their database, x::Int8 becomes a CAST), so its text cannot be compared with
// the configuration's; a hash of the wanted text alone would miss a view that
// somebody edited and created again with its comment.
var markRule = regexp.MustCompile(`\[projector [A-Za-z0-9_]+ ([0-9a-f]{12})(?: ([0-9a-f]{12}))?\]$`)

// markStart finds the marks of one table's views.
func markStart(t Table) string { return "[projector " + t.Name + " " }

// mark is the comment of a view whose query the server has stored as stored,
// "" if that is not known yet.
func (t Table) mark(d Definition, stored string) string {
	comment := d.Comment + " " + markStart(t) + t.wantedHash(d)
	if stored != "" {
		comment += " " + hash(stored)
	}
	return comment + "]"
}

// wantedHash covers the columns' types too: a view remembers them, and one that
// remembers fewer names of an Enum fails on the new one.
func (t Table) wantedHash(d Definition) string {
	var b strings.Builder
	for _, c := range t.Columns {
		fmt.Fprintln(&b, c.Name, c.Type)
	}
	return hash(b.String() + d.Query)
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:6])
}

func (d *differ) views() {
	if d.otherGeneration() {
		return
	}
	definitions := d.table.Definitions()
	for _, v := range definitions {
		d.view(v)
	}
	for _, name := range sortedKeys(d.state.Objects) {
		if !slices.ContainsFunc(definitions, func(v Definition) bool { return v.Name == name }) {
			d.changes = append(d.changes, Change{
				Verdict: Tolerated, Object: name, Summary: "the configuration no longer has this view",
				Reason: "a dashboard may still read it; drop it when nothing does",
			})
		}
	}
}

// otherGeneration reports that readers see another generation of the table.
// Pointing the views at this one is the last step of a rebuild, after its
// content was verified, and must not be a side effect of applying a schema.
func (d *differ) otherGeneration() bool {
	reads, ok := d.state.Reads(d.table)
	for _, v := range d.table.Definitions() { // without the view of current rows the others tell
		if !ok {
			reads, ok = d.state.reads(d.table, v.Name)
		}
	}
	if !ok || reads == d.table.Generation {
		return false
	}
	back := fmt.Sprintf("set generation: %d in the configuration", reads)
	remedy := back + ": a rebuild has switched the views"
	if reads < d.table.Generation {
		remedy = "run `projector rebuild start`, which fills the new table beside the old one, or go on where it stands (`projector rebuild status`); or " + back
	}
	d.changes = append(d.changes, Change{
		Verdict: Refused, Object: d.table.Current(),
		Summary: fmt.Sprintf("the views read generation %d and the configuration says %d", reads, d.table.Generation),
		Reason:  "readers must not be switched to a table that nobody has verified",
		Remedy:  remedy,
	})
	return true
}

// Reads returns the generation that the view of current rows reads; false
// while there is no such view, or one that reads something else.
func (s *State) Reads(t Table) (generation uint32, ok bool) { return s.reads(t, t.Current()) }

func (s *State) reads(t Table, view string) (generation uint32, ok bool) {
	rule := regexp.MustCompile("`?\\b" + regexp.QuoteMeta(t.Name) + "_g(\\d+)\\b`?")
	m := rule.FindStringSubmatch(s.Objects[view].Query)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(m[1], 10, 32)
	return uint32(n), err == nil
}

func (d *differ) view(v Definition) {
	have, exists := d.state.Objects[v.Name]
	formatted, inspected := d.state.Formatted[v.Name]
	change := Change{Verdict: Online, Object: v.Name, Statements: []string{d.table.CreateView(v)}, seal: &seal{d.table, v}}
	switch {
	case inspected && formatted.Query == nil:
		change = Change{
			Verdict: Refused, Object: v.Name, Summary: "the server cannot parse its query",
			Remedy: "correct the query of this view in the configuration; run it in a client to see where",
		}
	case inspected && formatted.Readable == 0:
		change = Change{
			Verdict: Refused, Object: v.Name, Summary: "the server could not read its query again: it would store " + *formatted.Query,
			Reason: "it would not start any more", Remedy: "avoid names that are words of SQL in the query of this view",
		}
	case !exists:
		change.Summary = "create the view"
	case have.Engine != "View":
		change = Change{
			Verdict: Refused, Object: v.Name, Summary: "the name belongs to a " + have.Engine,
			Reason: "replacing it by the view would destroy it", Remedy: "rename it, or choose another name for the table or the view",
		}
	case d.isCurrent(v, have, formatted.Query):
		return
	case v.Name == d.table.Current() && d.table.Deleted == "" && hidesDeleted.MatchString(have.Query):
		change = Change{
			Verdict: Refused, Object: v.Name, Summary: "the view hides deleted records and the configuration no longer names the column that marks them",
			Reason: "every deleted record would be shown again",
			Remedy: "set `deleted` in the configuration again; to show them on purpose, add a projection of another name and table",
		}
	default:
		change.Summary = "replace the view"
		change.Reason = "its definition differs"
	}
	d.changes = append(d.changes, change)
}

// hidesDeleted recognises the condition that [Table.Definitions] puts into the
// view of current rows when there is a column that marks deletions.
var hidesDeleted = regexp.MustCompile(`\bFINAL\s+WHERE\b`)

// isCurrent compares what the server stores now with what it stored after the
// last apply or, for a view made from printed DDL and after an upgrade of a
// server that now prints queries differently, with the wanted query as this
// server prints it.
func (d *differ) isCurrent(v Definition, have Object, formatted *string) bool {
	m := markRule.FindStringSubmatch(have.Comment)
	switch {
	case m != nil && m[1] != d.table.wantedHash(v):
		return false
	case m != nil && m[2] == hash(have.Query):
		return true
	}
	return formatted != nil && *formatted == have.Query
}
