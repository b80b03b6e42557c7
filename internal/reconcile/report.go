package reconcile

import (
	"slices"
	"time"

	"github.com/chprojector/projector/internal/contract"
)

// Verdict is the answer for one campaign.
type Verdict string

// The verdicts.
const (
	Equal        Verdict = "equal"        // every record compared was found equal
	Different    Verdict = "different"    // at least one difference is confirmed, or one version has several contents
	Inconclusive Verdict = "inconclusive" // no difference is confirmed, and some records never stood still
	Failed       Verdict = "failed"       // a side could not be read
)

// Totals are the records of one side.
type Totals struct {
	Live    uint64 `json:"live"`
	Deleted uint64 `json:"deleted"`
}

// LevelResult is one level's answer at the first scan of both sides, before
// anything was confirmed.
type LevelResult struct {
	Level     string `json:"level"`
	Differing int    `json:"differing_buckets"`
}

// FieldDifference is one field of a content conflict, as a person reads it.
type FieldDifference struct {
	Column string `json:"column"`
	Source string `json:"source"`
	Target string `json:"target"`
}

// State is one side's state of a record.
type State struct {
	Version uint64 `json:"version"`
	Deleted bool   `json:"deleted"`
	Place   string `json:"place,omitempty"`
}

// Finding is a confirmed difference of one record.
type Finding struct {
	Kind   Kind              `json:"kind"`
	ID     string            `json:"id"`
	Key    string            `json:"-"` // canonical identity
	Source *State            `json:"source"`
	Target *State            `json:"target"`
	Fields []FieldDifference `json:"fields,omitempty"`
}

// Report is what is known of one campaign.
type Report struct {
	Projection string        `json:"projection"`
	Table      string        `json:"table"`
	Campaign   string        `json:"campaign"`
	Against    string        `json:"against"` // mysql or topic
	Level      string        `json:"level"`
	Verdict    Verdict       `json:"verdict"`
	Error      string        `json:"error,omitempty"`
	Buckets    uint32        `json:"buckets"`
	Compared   uint32        `json:"compared_buckets"` // fewer than Buckets in a sample
	Source     Totals        `json:"source"`
	Target     Totals        `json:"target"`
	Levels     []LevelResult `json:"levels"`
	Kinds      map[Kind]int  `json:"kinds"`
	Findings   []Finding     `json:"findings"`
	// Unresolved records differed and did not stand still, or may have an event
	// under way; Reason says which.
	Unresolved int    `json:"unresolved"`
	Reason     string `json:"unresolved_reason,omitempty"`
	// Unopened buckets differ too and were left closed because the limit of
	// findings was reached.
	Unopened int `json:"unopened_buckets"`
	// Forgotten are deletions in the table of which the source keeps no record.
	Forgotten int `json:"forgotten_deletions"`
	// Conflicts are contradictions within the table or the topic. One that no newer version hides makes the campaign
	// different: what was compared depends on which of the contents a merge keeps.
	Conflicts []Conflict `json:"conflicts"`
	// ConflictsCut is that there may be more conflicts than are listed.
	ConflictsCut bool `json:"conflicts_cut,omitempty"`
	// Partial is that the source has lost records, so that the run settles nothing.
	Partial bool `json:"partial,omitempty"`
	// Unread are events of the topic that the contract cannot read, Unreadable the first of them.
	Unread     int64        `json:"unreadable_events,omitempty"`
	Unreadable []Unreadable `json:"unreadable_examples,omitempty"`
	Parts      []Part       `json:"source_parts"`
	Rounds     int          `json:"rounds"`
	Started    time.Time    `json:"started_at"`
	Seconds    float64      `json:"seconds"`

	only []uint32        // the compared buckets; empty = all
	open map[string]bool // canonical identities that are not known to be equal
}

// contradict notes contradictions. A record that has one at its newest version is
// not known to be equal, whichever of the contents was compared.
func (r *Report) contradict(list []Conflict, cut bool) {
	r.Conflicts, r.ConflictsCut = append(r.Conflicts, list...), r.ConflictsCut || cut
	for _, c := range list {
		if !c.Superseded {
			r.open[c.Key] = true
		}
	}
}

// Contradicted is how many of the listed contradictions no newer version hides.
func (r *Report) Contradicted() (n int) {
	for _, c := range r.Conflicts {
		if !c.Superseded {
			n++
		}
	}
	return n
}

// Covers reports whether the run has compared the record, and found it equal.
// A partial source may have lost the record, and then nothing was compared.
func (r *Report) Covers(id string) bool {
	if r.Verdict == Failed || r.Partial || r.open[id] || r.Unopened > 0 {
		return false
	}
	return len(r.only) == 0 || slices.Contains(r.only, contract.Bucket(id, r.Buckets))
}

func (r *Report) conclude() {
	for _, f := range r.Findings {
		r.Kinds[f.Kind]++
	}
	switch {
	case r.Error != "":
		r.Verdict = Failed
	case len(r.Findings) > 0 || r.Contradicted() > 0 || r.ConflictsCut: // a list that was cut says nothing of the rest
		r.Verdict = Different
	case r.Unresolved > 0 || r.Unopened > 0:
		r.Verdict = Inconclusive
	default:
		r.Verdict = Equal
	}
}
