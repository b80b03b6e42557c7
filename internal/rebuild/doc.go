// Package rebuild is the order of a rebuild: a table of a new generation is
// filled beside the one that serves readers, compared with the source, and
// readers are switched to it.
//
// It holds what is recorded of each step and which step may follow, and asks
// ClickHouse how two generations differ. What the steps do is the business of
// the command, which has the connections.
package rebuild

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/chprojector/projector/internal/backfill"
)

// Step is one of the nine steps of a rebuild, in their order, from 1.
type Step int

// The steps.
const (
	Create  Step = iota + 1 // the table of the new generation
	Record                  // the end of every partition, before the source is read
	Begin                   // the group of the new generation, at those offsets
	Copy                    // every row and deletion of the source
	CatchUp                 // until the group has passed what was in the topics
	Compare                 // the new generation with the source, and with the old one
	Switch                  // the views
	Close                   // the older tables, to every writer
	Confirm                 // by comparing once more
)

// Steps is how many there are.
const Steps = int(Confirm)

var names = [...]string{
	Create:  "create the table",
	Record:  "record the ends of the topics",
	Begin:   "start the consumer group",
	Copy:    "copy the source",
	CatchUp: "wait for the stream",
	Compare: "compare with the source",
	Switch:  "switch the views",
	Close:   "close the old generation",
	Confirm: "compare again",
}

// String says what the step does.
func (s Step) String() string {
	if s < Create || s > Confirm {
		return "nothing"
	}
	return names[s]
}

// Command is the subcommand of `projector rebuild` that does the step; beyond
// the last one, the one that drops what is no longer needed.
func (s Step) Command() string {
	switch {
	case s <= Copy:
		return "start"
	case s <= Compare, s == Confirm:
		return "verify"
	case s == Switch:
		return "switch"
	case s == Close:
		return "close"
	}
	return "close --drop"
}

// Scope is what the record keeps of what was asked for.
type Scope struct {
	From   uint32   `json:"from"` // the generation that the views read
	To     uint32   `json:"to"`
	Table  string   `json:"table"` // of the new generation
	Group  string   `json:"group"` // of the new generation
	Rate   int      `json:"rate,omitempty"`
	Shards []string `json:"shards"`
}

// Done is a step that was done.
type Done struct {
	Step   Step            `json:"step"`
	Name   string          `json:"name"`
	At     time.Time       `json:"at"` // by the clock of the process that did it
	By     string          `json:"by"`
	Detail json.RawMessage `json:"detail,omitempty"`
}

// Offset is where a partition ended.
type Offset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	End       int64  `json:"end"` // of the next record
}

// Dropped is a table that was removed, or is about to be.
type Dropped struct {
	Table string     `json:"table"`
	Rows  uint64     `json:"rows"`
	At    *time.Time `json:"at"` // nil: announced, and not yet known to be done
}

// Progress is how far a rebuild has come: the checkpoint of its operation.
type Progress struct {
	Steps   []Done              `json:"steps"`
	Offsets []Offset            `json:"offsets,omitempty"`
	Copied  backfill.Checkpoint `json:"copied"`
	Dropped []Dropped           `json:"dropped,omitempty"`
}

// Next is the step that has to be done now; Confirm+1 when all are.
func (p Progress) Next() Step { return Step(len(p.Steps) + 1) }

// Add returns p with the next step done.
func (p Progress) Add(d Done) Progress {
	d.Step = p.Next()
	d.Name = d.Step.String()
	p.Steps = append(p.Steps[:len(p.Steps):len(p.Steps)], d)
	return p
}

// Until returns p as it was before the step was done.
func (p Progress) Until(s Step) Progress {
	p.Steps = p.Steps[:min(len(p.Steps), int(s)-1)]
	return p
}

// OrderError is a step that was asked for when another one is due.
type OrderError struct {
	Operation string
	Asked     Step
	Next      Step
}

func (e *OrderError) Error() string {
	command := "`projector rebuild " + e.Next.Command() + "`"
	if e.Asked < e.Next {
		return fmt.Sprintf("rebuild %s has done step %d of %d (%s) already; next is %s", e.Operation, e.Asked, Steps, e.Asked, command)
	}
	return fmt.Sprintf("rebuild %s is at step %d of %d (%s), and step %d (%s) must not come before it; next is %s",
		e.Operation, e.Next, Steps, e.Next, e.Asked, e.Asked, command)
}

// Admit returns an *OrderError unless the next step is one of from to to.
func (p Progress) Admit(operation string, from, to Step) error {
	switch next := p.Next(); {
	case next < from:
		return &OrderError{operation, from, next}
	case next > to:
		return &OrderError{operation, to, next}
	}
	return nil
}
