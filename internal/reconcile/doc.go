// Package reconcile answers one question: does the table say what its source
// says? It reads both sides by the field contract (internal/contract), which is
// independent of the mapping, and changes neither.
//
// One scan of each side sums up a campaign in buckets. A bucket that differs is
// opened: its records are read from both sides and joined by identity, and each
// difference gets a kind. Sources move while they are read, and events are under
// way, so a difference counts only when the source's record was the same in two
// readings and the table, read in between and after the projection had passed
// the first reading, still differed. What never stood still is reported as
// unresolved, and a campaign with unresolved records is inconclusive, never
// equal. docs/decisions/reconcile.md has the reasons.
package reconcile

import (
	"context"

	"github.com/chprojector/projector/internal/contract"
)

// Record is one record's state on one side.
type Record struct {
	ID      string // canonical identity
	Version uint64
	Deleted bool
	Content string // canonical fields; "" if deleted, or below the level fields
	Place   string // the shard or the topic's partition that holds it; "" for the table
}

// Digest sums up the records of one bucket. The sums are modulo 2^64.
type Digest struct {
	Live, Deleted             uint64
	VersionsHigh, VersionsLow uint64 // identity, version, deleted
	FieldsHigh, FieldsLow     uint64 // all fields of live records
	Revision                  uint64 // sum of versions
}

func (d *Digest) add(o Digest) {
	d.Live += o.Live
	d.Deleted += o.Deleted
	d.VersionsHigh += o.VersionsHigh
	d.VersionsLow += o.VersionsLow
	d.FieldsHigh += o.FieldsHigh
	d.FieldsLow += o.FieldsLow
	d.Revision += o.Revision
}

// Part is the share of one shard, or of one partition of a topic: what it was
// when it was read. Rows and Revision together change with every change of the
// campaign there.
type Part struct {
	Name     string `json:"name"`
	Live     uint64 `json:"live"`
	Deleted  uint64 `json:"deleted"`
	Revision uint64 `json:"revision"` // sum of versions, modulo 2^64
}

// Summary is one scan of one side.
type Summary struct {
	Buckets []Digest
	Parts   []Part // of the source only

	Conflicts    []Conflict // within the topic
	ConflictsCut bool       // there may be more
}

func (s *Summary) total() (t Digest) {
	for _, d := range s.Buckets {
		t.add(d)
	}
	return t
}

// Side is one of the two things compared. Its state of a record is the one with
// the highest version, deletions included.
type Side interface {
	// Digests sums a campaign up, by bucket.
	Digests(ctx context.Context, campaign string, s contract.Scan) (Summary, error)
	// Records calls each for every record of the scan, in any order, from one
	// goroutine at a time.
	Records(ctx context.Context, campaign string, s contract.Scan, each func(Record) error) error
}

// Progress tells how far the projection has come on its stream.
type Progress interface {
	// Mark is where the stream ends now.
	Mark(ctx context.Context) (Mark, error)
	// Behind is how many records before the mark are not yet in the table.
	Behind(ctx context.Context, m Mark) (int64, error)
}

// Mark is a position in every partition of the projection's topics.
type Mark map[Partition]int64

// Partition is one partition of a topic.
type Partition struct {
	Topic string
	ID    int32
}
