// Package repair corrects single records that a comparison has found to differ.
//
// A plan names every record, the source's version and what the table held. It is
// of one action: [Replay] writes what the source has, with the source's own
// version; [Remove] takes rows away of which the source knows nothing. What
// neither can cure is left to a person, and [Advice] says how to go on.
//
// Applying looks again at every record, on both sides, and leaves those alone
// that have changed since. It never says that a record is right now: that is
// for another run, which only reads. docs/decisions/repair.md has the reasons.
package repair

import (
	"github.com/chprojector/projector/internal/reconcile"
)

// Action is what a repair does.
type Action string

// The actions.
const (
	Replay Action = "replay" // what the source has, live or deleted, with its version
	Remove Action = "remove" // exactly the recorded physical rows
	None   Action = "none"
)

// VersionConflict is a finding within the table: one version with two contents.
const VersionConflict reconcile.Kind = "version_conflict"

// ActionFor is what a repair does about a kind of difference.
func ActionFor(k reconcile.Kind) Action {
	switch k {
	case reconcile.Missing, reconcile.Stale, reconcile.Undeleted:
		return Replay
	case reconcile.Unexpected:
		return Remove
	case reconcile.ContentConflict, reconcile.Ahead, reconcile.MovedKey, VersionConflict:
	}
	return None
}

// Advice says what is done about a kind of difference, or why nothing is.
func Advice(k reconcile.Kind) string {
	switch k {
	case reconcile.Missing:
		return "write the source's row, or its deletion, with its own version"
	case reconcile.Stale:
		return "write the source's newer version"
	case reconcile.Undeleted:
		return "write a tombstone with the version of the deletion record"
	case reconcile.Unexpected:
		return "quarantined: trace each row by topic, partition, offset and origin; it is removed only when a second person applies the plan"
	case reconcile.ContentConflict:
		return "not repaired: a row of the same version would not win reliably; correct the mapping or whatever wrote it, and rebuild the table as a new generation"
	case VersionConflict:
		return "not repaired: the table has two contents at one version; find both writers in the _versions view, and rebuild the table as a new generation"
	case reconcile.Ahead:
		return "not repaired, never corrected downwards: was the source restored from a backup, or does somebody else write events? Look at _topic, _offset and _origin in the _versions view"
	case reconcile.MovedKey:
		return "not repaired: a column of order_by has changed for the record; find out which in the _versions view, and take it out of order_by in a new generation"
	}
	return "not repaired: unknown to this version"
}
