// Package audit is the record of everything that changes rows other than the
// stream: backfills, repairs, replays, rebuilds, restored offsets.
//
// The record lives in ClickHouse, in the database of the tables, and is only
// ever added to: each change of an operation's state is one more row with all
// its fields. docs/decisions/audit-store.md says why there and not in MySQL,
// and what keeps two processes from working on one operation.
package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Kind is what an operation does.
type Kind string

// The kinds. Each is also the first part of the origin of the rows it writes.
const (
	Backfill       Kind = "backfill"
	Repair         Kind = "repair"
	Replay         Kind = "replay"
	Rebuild        Kind = "rebuild"
	OffsetsRestore Kind = "offsets_restore"
	OutboxReplay   Kind = "outbox_replay" // writes no rows itself
)

// State is how far an operation has come.
type State string

// The states. Applied says that the operation's own process has finished;
// only another run that reads makes it Verified or Refuted.
const (
	Planned   State = "planned"   // shown and stored, nothing done
	Approved  State = "approved"  // a second person has agreed to the plan
	Running   State = "running"   // a process works on it, or died at it
	Waiting   State = "waiting"   // its process has done its part; a person's next command goes on
	Failed    State = "failed"    // its process gave up; it can be resumed
	Applied   State = "applied"   // done, by its own account
	Verified  State = "verified"  // another run has read what it wrote and found it right
	Refuted   State = "refuted"   // another run has read and found it wrong
	Withdrawn State = "withdrawn" // given up by a person
)

// next lists what may follow each state. A verification may be repeated, with
// whatever answer.
var next = map[State][]State{
	Planned:  {Planned, Approved, Running, Withdrawn},
	Approved: {Running, Withdrawn},
	Running:  {Running, Waiting, Failed, Applied, Withdrawn},
	Waiting:  {Running, Withdrawn},
	Failed:   {Running, Withdrawn},
	Applied:  {Verified, Refuted, Withdrawn}, // withdrawn: when nobody can verify it any more
	Verified: {Verified, Refuted},
	Refuted:  {Verified, Refuted, Withdrawn},
}

// Operation is the record of one operation in one of its states.
type Operation struct {
	ID         string          `json:"id"` // 20261130T134512-4f2a9c: when it began, and chance
	Sequence   uint64          `json:"sequence"`
	Kind       Kind            `json:"kind"`
	Projection string          `json:"projection"`
	State      State           `json:"state"`
	At         time.Time       `json:"at"`     // of this state, by the server's clock
	Began      time.Time       `json:"began"`  // of the first state, by the server's clock
	Actor      string          `json:"actor"`  // who asked for it
	By         string          `json:"by"`     // who made this change of state
	Reason     string          `json:"reason"` // as the person gave it
	Digest     string          `json:"digest"` // of the configuration it rests on; "" = of none
	Scope      json.RawMessage `json:"scope,omitempty"`
	Source     json.RawMessage `json:"source,omitempty"` // versions of the source that it read
	Before     json.RawMessage `json:"before,omitempty"` // what it found
	Outcome    json.RawMessage `json:"outcome,omitempty"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"` // where a resumed run goes on
	Error      string          `json:"error,omitempty"`
	// Verification is what another run found, with that run's own identity.
	Verification json.RawMessage `json:"verification,omitempty"`

	Run    uint32 `json:"run"`    // how many processes have worked on it, from 1
	Holder string `json:"holder"` // the process that does: host/pid/chance
}

// Origin is what the rows that the operation writes carry in _origin:
// backfill:20261130T134512-4f2a9c.
func (o Operation) Origin() string { return string(o.Kind) + ":" + o.ID }

// ErrUnknown is returned, wrapped, for an ID that the record does not have.
var ErrUnknown = errors.New("there is no such operation")

// ErrTaken is returned, wrapped, to a process that works on an operation which
// another one has taken over. It must stop.
var ErrTaken = errors.New("another process has taken the operation over")

// BusyError is why an operation cannot be taken over: its process lives.
type BusyError struct {
	ID     string
	Holder string
	Silent time.Duration // since its last sign of life
	Lease  time.Duration // silence after which it may be taken over
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("operation %s is being worked on by %s, which gave its last sign of life %s ago: stop it, or wait until it has been silent for %s",
		e.ID, e.Holder, e.Silent.Round(time.Second), e.Lease)
}

// StateError is a change that the operation's state does not admit.
type StateError struct {
	ID       string
	From, To State
}

func (e *StateError) Error() string {
	return fmt.Sprintf("operation %s is %s and cannot become %s", e.ID, e.From, e.To)
}
