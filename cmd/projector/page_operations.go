package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/backfill"
	"github.com/chprojector/projector/internal/rebuild"
	"github.com/chprojector/projector/internal/repair"
)

// pageOperation is an operation, and what there is to say of it in words.
type pageOperation struct {
	audit.Operation
	Progress string `json:"progress,omitempty"` // what it does, and how far it is
	Next     string `json:"next,omitempty"`     // the command that a person gives now
	Silent   bool   `json:"silent,omitempty"`   // it is running, and its process gives no sign of life
}

// tell reads an operation at the time now. What it cannot read of the fields
// that each kind writes it does not tell.
func tell(op audit.Operation, now time.Time) pageOperation {
	o := pageOperation{Operation: op, Silent: op.State == audit.Running && now.Sub(op.At) > audit.Lease}
	switch op.Kind {
	case audit.Repair:
		o.repair()
	case audit.Rebuild:
		o.rebuild()
	case audit.Backfill:
		var done backfill.Counts
		if json.Unmarshal(op.Outcome, &done) == nil {
			o.Progress = fmt.Sprintf("%s finished, %s written", count(int(done.Campaigns), "campaign"), count(int(done.Written), "record"))
		}
		o.Next = "projector backfill --resume " + op.ID
	default: // the command that was interrupted is given again, and it alone knows itself
	}
	if op.State == audit.Running && !o.Silent {
		o.Next = ""
	}
	return o
}

func (o *pageOperation) repair() {
	scope := scopeOf(o.Operation)
	o.Progress = fmt.Sprintf("%s of %s", scope.Action, count(scope.Records, "record"))
	var done repair.Counts
	if json.Unmarshal(o.Outcome, &done) == nil {
		o.Progress += fmt.Sprintf(": %d applied, %d skipped", done.Applied, done.Skipped)
	}
	if json.Unmarshal(o.Verification, &done) == nil {
		o.Progress += fmt.Sprintf(", %d verified, %d refuted", done.Verified, done.Refuted)
	}
	switch o.State {
	case audit.Applied:
		o.Next = "projector repair verify " + o.ID
	case audit.Refuted:
		o.Next = "projector repair plan, to see what differs"
	default:
		o.Next = "projector repair apply " + o.ID
		if scope.Action == repair.Remove && o.State == audit.Planned {
			o.Next += " --actor SECOND-PERSON"
		}
	}
}

func (o *pageOperation) rebuild() {
	var (
		scope rebuild.Scope
		done  rebuild.Progress
	)
	if json.Unmarshal(o.Scope, &scope) != nil || len(o.Checkpoint) > 0 && json.Unmarshal(o.Checkpoint, &done) != nil {
		return
	}
	o.Progress = fmt.Sprintf("generation %d to %d, %d of %d steps done", scope.From, scope.To, len(done.Steps), rebuild.Steps)
	if next := done.Next(); next <= rebuild.Confirm {
		o.Progress += fmt.Sprintf("; step %d: %s", next, next)
	}
	o.Next = nextOfRebuild(o.State, done)
}

// nextOfRebuild is the command to give now; "" if nothing is left.
func nextOfRebuild(state audit.State, done rebuild.Progress) string {
	switch next := done.Next(); {
	case state == audit.Refuted:
		return "projector reconcile --all, to see what differs; then projector rebuild verify"
	case next > rebuild.Confirm && len(done.Dropped) > 0 && !slices.ContainsFunc(done.Dropped, func(d rebuild.Dropped) bool { return d.At == nil }):
		return ""
	default:
		return "projector rebuild " + next.Command()
	}
}
