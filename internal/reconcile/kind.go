package reconcile

import (
	"github.com/chprojector/projector/internal/contract"
)

// Kind is how a record differs.
type Kind string

// The kinds.
const (
	Missing         Kind = "missing"          // the source has it, the table has nothing
	Stale           Kind = "stale"            // the table has an older version
	Undeleted       Kind = "undeleted"        // deleted in the source, live in the table at an older version
	ContentConflict Kind = "content_conflict" // one version, two contents
	Ahead           Kind = "ahead"            // the table has a newer version than the source
	Unexpected      Kind = "unexpected"       // live in the table, and the source knows nothing of it
	MovedKey        Kind = "moved_key"        // the table has it under several order keys
)

// Kinds are all kinds, in the order in which they are shown.
func Kinds() []Kind {
	return []Kind{Missing, Stale, Undeleted, ContentConflict, Ahead, Unexpected, MovedKey}
}

// behind reports whether an event that is still under way could explain the
// difference, whatever the source keeps.
func (k Kind) behind() bool { return k == Missing || k == Stale || k == Undeleted }

// pair is one identity on both sides.
type pair struct {
	source, target *Record
	live           *Record // the source's row, also beside a newer deletion; which of two rows counts nobody knows
	rows           int     // of the table; more than one means several order keys
}

// kind classifies a pair; "" is no difference.
//
// A deletion in the table of which the source knows nothing is none: readers
// see neither, and a source may forget old deletions. The reverse is: without
// its tombstone a record that was deleted comes back with the next replay of an
// older version.
func (p pair) kind(level contract.Level) Kind {
	s, t := p.source, p.target
	switch {
	case p.rows > 1:
		return MovedKey
	case s == nil && (t == nil || t.Deleted):
		return ""
	case s == nil:
		return Unexpected
	case t == nil:
		return Missing
	case t.Version < s.Version && s.Deleted && !t.Deleted:
		return Undeleted
	case t.Version < s.Version:
		return Stale
	case t.Version > s.Version:
		return Ahead
	case t.Deleted != s.Deleted:
		return ContentConflict
	case level >= contract.Fields && !s.Deleted && t.Content != s.Content:
		return ContentConflict
	}
	return ""
}

// same reports whether two readings of the source found one state.
func same(a, b *Record) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Version == b.Version && a.Deleted == b.Deleted && a.Content == b.Content
}
