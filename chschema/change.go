package chschema

import (
	"errors"
	"fmt"
	"strings"
)

// Verdict says what becomes of a difference.
type Verdict uint8

// The verdicts.
const (
	Online    Verdict = iota // [Apply] makes the change while writers and readers go on
	Tolerated                // left as it is; somebody may want to know
	Refused                  // would break records, or is not ours to change; Remedy names the way out
)

// String returns online, tolerated or refused.
func (v Verdict) String() string {
	return [...]string{"online", "tolerated", "refused"}[v]
}

// MarshalText makes a verdict a word in JSON.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Change is one difference between a [Table] and what the server has.
type Change struct {
	Verdict    Verdict  `json:"verdict"`
	Object     string   `json:"object"`           // name of the table or view, without the database
	Summary    string   `json:"summary"`          // what differs, or what is done about it
	Reason     string   `json:"reason,omitempty"` // why it is refused or tolerated
	Remedy     string   `json:"remedy,omitempty"` // Refused: the way out
	Statements []string `json:"statements,omitempty"`

	// Blocks reports that rows cannot be written, or not rightly, as long as
	// this difference exists: a consumer must not start.
	Blocks bool `json:"blocks"`

	seal *seal
}

// seal is the view whose comment is marked after its statements ran.
type seal struct {
	table Table
	view  Definition
}

// String reads as a line of a plan.
func (c Change) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", c.Object, c.Summary)
	if c.Reason != "" {
		fmt.Fprintf(&b, ": %s", c.Reason)
	}
	if c.Remedy != "" {
		fmt.Fprintf(&b, "; %s", c.Remedy)
	}
	return b.String()
}

// RefusedError joins the refused changes, or is nil if there is none.
func RefusedError(changes []Change) error {
	var list []error
	for _, c := range changes {
		if c.Verdict == Refused {
			list = append(list, errors.New(c.String()))
		}
	}
	return errors.Join(list...)
}
