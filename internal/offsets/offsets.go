// Package offsets compares what a consumer group has committed with what its
// table holds, and finds the offset from which a group that lost its commits
// can go on without losing a record.
//
// docs/decisions/restored-offsets.md has the proof.
package offsets

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

// State is how a partition's commit stands to what Kafka and the table hold.
type State string

// The states.
const (
	OK        State = "ok"
	Unread    State = "unread"    // no commit and no rows: nothing was read yet
	Forgotten State = "forgotten" // no commit, but rows of the stream
	Expired   State = "expired"   // retention removed records before they were read
	Replaced  State = "replaced"  // the commit, or a row, lies beyond the end: the topic was created anew or its log cut
)

// Judge returns the state of a partition; stored is the highest offset in the
// table, -1 without rows.
func Judge(l kafka.PartitionLag, stored int64) State {
	switch {
	case l.Ahead(), stored >= l.End:
		return Replaced
	case l.Committed < 0 && stored >= 0:
		return Forgotten
	case l.Committed < 0:
		return Unread
	case l.Expired() > 0:
		return Expired
	}
	return OK
}

// Partition is what is known of one partition.
type Partition struct {
	kafka.PartitionLag
	State    State
	Stored   int64 // the highest offset that the stream has stored, -1 without rows
	Anchor   int64 // the highest offset up to which everything is proven to be done, -1 if that is of none
	Verified bool  // the records at Stored and Anchor are those of the rows

	// Restore is where the group can go on. Everything below it that still
	// exists is stored, parked or ignored.
	Restore int64
	// Reason says in one sentence why it is not higher.
	Reason string
	// Lost is the number of offsets that are gone from the log and not proven to
	// be done. Of them Certain lie above everything stored.
	Lost, Certain int64
}

// Records reads single records.
type Records interface {
	// Fetch returns the record at an offset, or projector.ErrRecordGone.
	Fetch(ctx context.Context, topic string, partition int32, offset int64) (*kgo.Record, error)
}

// Survey asks about the topics of one projection.
type Survey struct {
	Table  chschema.Table
	Group  string
	Topics []string
	Plan   *mapping.Plan
	// Batch is the largest number of records that one batch of the group can
	// have had: batch.rows, or what it was before.
	Batch int

	Admin   *kafka.Admin
	Records Records
	Conn    chschema.Conn
	Rows    Rows
}

// Rows compares rows with the table.
type Rows interface {
	// Holds reports of each row whether the table has one with the same key,
	// version and place.
	Holds(ctx context.Context, rows *mapping.Rows, from, to int, key []string, version string) ([]bool, error)
}

// Look asks Kafka and ClickHouse about every partition, by topic and partition.
// It reads only.
func (s *Survey) Look(ctx context.Context) ([]Partition, error) {
	lags, err := s.Admin.Lag(ctx, s.Group, s.Topics...)
	if err != nil {
		return nil, err
	}
	stored, err := s.stored(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Partition, len(lags))
	for i, l := range lags {
		p := &all[i]
		*p = Partition{PartitionLag: l, Stored: -1, Anchor: -1}
		if highest, ok := stored[place{l.Topic, l.Partition}]; ok {
			p.Stored = highest
			if p.Anchor, err = s.anchor(ctx, l.Topic, l.Partition); err != nil {
				return nil, err
			}
		}
		p.State = Judge(l, p.Stored)
		if p.Verified, err = s.verify(ctx, p); err != nil {
			return nil, err
		}
		p.conclude(s.Batch)
	}
	return all, nil
}

// Forgotten lists the partitions for which the group has no commit although the
// stream has stored rows of them. lags are the group's; the table is asked only
// if commits are missing.
func (s *Survey) Forgotten(ctx context.Context, lags []kafka.PartitionLag) ([]Partition, error) {
	lags = slices.DeleteFunc(slices.Clone(lags), func(l kafka.PartitionLag) bool { return l.Committed >= 0 })
	if len(lags) == 0 {
		return nil, nil
	}
	stored, err := s.stored(ctx)
	if err != nil {
		return nil, err
	}
	var all []Partition
	for _, l := range lags {
		if highest, ok := stored[place{l.Topic, l.Partition}]; ok {
			p := Partition{PartitionLag: l, State: Judge(l, highest), Stored: highest, Anchor: -1}
			if p.State == Forgotten {
				p.Certain = max(0, l.Start-highest-1)
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// Skips reports whether a group that begins at the end would leave records out
// that others may count on: it has no commit at all, the topics hold records, and
// the table has rows. Those may be all of backfills although the stream has
// brought them too, because a merge keeps one of two rows with one version. lags
// are the group's; the table is asked only if commits are missing.
func (s *Survey) Skips(ctx context.Context, lags []kafka.PartitionLag) (bool, error) {
	held := false
	for _, l := range lags {
		if l.Committed >= 0 {
			return false, nil
		}
		held = held || l.End > l.Start
	}
	if !held {
		return false, nil
	}
	var rows []struct {
		One uint8 `ch:"one"`
	}
	if err := s.Conn.Select(ctx, &rows, "SELECT 1 AS one FROM "+s.Table.Qualified(s.Table.Physical())+" LIMIT 1 SETTINGS final = 0"); err != nil {
		return false, fmt.Errorf("ask whether %s has rows: %w", s.Table.Physical(), err)
	}
	return len(rows) > 0, nil
}

type place struct {
	topic     string
	partition int32
}

// stored asks for the highest offset of each partition that the stream stored.
func (s *Survey) stored(ctx context.Context) (map[place]int64, error) {
	var rows []struct {
		Topic     string `ch:"_topic"`
		Partition int32  `ch:"_partition"`
		Highest   int64  `ch:"highest"`
	}
	err := s.Conn.Select(ctx, &rows, fmt.Sprintf("SELECT _topic, _partition, max(_offset) AS highest FROM %s WHERE _origin = '%s' GROUP BY _topic, _partition SETTINGS final = 0",
		s.Table.Qualified(s.Table.Physical()), chschema.OriginStream))
	if err != nil {
		return nil, fmt.Errorf("ask for the stored offsets of %s: %w", s.Table.Physical(), err)
	}
	all := map[place]int64{}
	for _, r := range rows {
		all[place{r.Topic, r.Partition}] = r.Highest
	}
	return all, nil
}

// anchor is the offset of the row that has Batch rows of other offsets above
// it, and so cannot be of the last batch that was stored.
func (s *Survey) anchor(ctx context.Context, topic string, partition int32) (int64, error) {
	var rows []struct {
		Offset int64 `ch:"_offset"`
	}
	err := s.Conn.Select(ctx, &rows, fmt.Sprintf("SELECT DISTINCT _offset FROM %s WHERE _origin = '%s' AND _topic = ? AND _partition = ? ORDER BY _offset DESC LIMIT 1 OFFSET %d SETTINGS final = 0",
		s.Table.Qualified(s.Table.Physical()), chschema.OriginStream, s.Batch), topic, partition)
	if err != nil {
		return 0, fmt.Errorf("ask which rows of %s/%d are surely not of the last batch: %w", topic, partition, err)
	}
	if len(rows) == 0 {
		return -1, nil
	}
	return rows[0].Offset, nil
}

// verify compares the records at the two offsets that the proof rests on with
// the rows: those of a topic that was deleted and created again say nothing of
// the new one. If compaction has removed both records, nothing is shown.
func (s *Survey) verify(ctx context.Context, p *Partition) (bool, error) {
	if p.Stored < 0 || p.Anchor < 0 || p.Stored >= p.End {
		return false, nil
	}
	if p.Stored < p.Start {
		return true, nil // all of it has expired: the answer is the start in any case
	}
	rows := s.Plan.NewRows()
	for _, offset := range []int64{p.Stored, p.Anchor} {
		if offset < p.Start {
			continue // expired: nothing to compare, and nothing that could be skipped
		}
		record, err := s.Records.Fetch(ctx, p.Topic, p.Partition, offset)
		if errors.Is(err, projector.ErrRecordGone) {
			continue // compacted away
		}
		if err != nil {
			return false, err
		}
		if err := s.Plan.Append(rows, record.Value, mapping.Lineage{Topic: p.Topic, Partition: p.Partition, Offset: offset, Origin: chschema.OriginStream}); err != nil {
			return false, nil //nolint:nilerr // what is no row now is not the row that was stored
		}
	}
	if rows.Len() == 0 {
		return false, nil
	}
	holds, err := s.Rows.Holds(ctx, rows, 0, rows.Len(), s.Table.OrderBy, s.Table.Version)
	if err != nil {
		return false, err
	}
	return !slices.Contains(holds, false), nil
}

// conclude decides where the group can go on.
func (p *Partition) conclude(batch int) {
	switch {
	case p.Stored < 0:
		p.Restore, p.Reason = p.Start, "nothing of it is stored"
	case p.Stored >= p.End:
		p.Restore, p.Reason = p.Start, fmt.Sprintf("offset %d is stored and the log ends at %d: the topic was created anew or its log was cut", p.Stored, p.End)
	case p.Anchor < 0:
		p.Restore, p.Reason = p.Start, fmt.Sprintf("no more than %d of its rows are stored, which may all be of one batch that was not finished", batch)
	case !p.Verified:
		p.Restore, p.Reason = p.Start, "the stored rows are not shown to be those of the records at their offsets: the topic was created anew, the mapping reads other keys, or compaction has removed the records"
	default:
		p.Restore, p.Reason = max(p.Anchor+1, p.Start), fmt.Sprintf("the %d rows above it may be of one batch that was not finished", batch)
	}
	if p.Stored >= 0 && p.Stored < p.End && (p.Verified || p.Anchor < 0) {
		p.Certain = max(0, p.Start-p.Stored-1)
		if p.Lost = p.Certain; p.Anchor >= 0 {
			p.Lost = max(0, p.Start-p.Anchor-1)
		}
	}
	p.Restore = min(p.Restore, p.End)
}
