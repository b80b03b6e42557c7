package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

// ClassGone is the class of a letter without a value whose record has left its
// topic: nothing can be replayed, only backfilled from the source.
const ClassGone mapping.Class = "gone"

// Letter is a dead letter as it lies in its topic.
type Letter struct {
	Record *kgo.Record        // its timestamp is when it was parked
	Own    []kgo.RecordHeader // the headers that the record had
	Info   Info               // what the projector wrote beside them
	// Foreign is a record that no projector wrote: somebody else's, or one
	// whose headers were lost on the way.
	Foreign bool
}

// Open reads a record as a letter.
func Open(r *kgo.Record) *Letter {
	own, info, ok := Parse(r)
	return &Letter{Record: r, Own: own, Info: info, Foreign: !ok}
}

// Topic names the dead-letter topic of a source topic.
func (r *Reader) Topic(source string) string { return source + r.config.Suffix }

// Source names the topic whose letters a dead-letter topic has, and reports
// false for a name that is not one of a dead-letter topic.
func (r *Reader) Source(topic string) (string, bool) {
	source, ok := strings.CutSuffix(topic, r.config.Suffix)
	return source, ok && source != ""
}

// Scan reads the letters of one partition of a dead-letter topic, in order, from
// an offset on and before another, and hands them to each. It ends with the
// error of each, if that returns one.
func (r *Reader) Scan(ctx context.Context, topic string, partition int32, from, to int64, each func(*Letter) error) error {
	return r.records.Scan(ctx, topic, partition, from, to, func(record *kgo.Record) error { return each(Open(record)) })
}

// At reads one letter.
func (r *Reader) At(ctx context.Context, topic string, partition int32, offset int64) (*Letter, error) {
	record, err := r.records.Fetch(ctx, topic, partition, offset)
	if err != nil {
		return nil, err
	}
	return Open(record), nil
}

// Event returns the value of the record that a letter is about. That of a
// pointer is read from the record's own topic; if it is no longer there, or
// another record is in its place, the error wraps projector.ErrRecordGone.
func (r *Reader) Event(ctx context.Context, l *Letter) ([]byte, error) {
	switch {
	case l.Info.Pointer == "":
		return l.Record.Value, nil
	case l.Info.Pointer == PointerGone:
		return nil, fmt.Errorf("the record of %s/%d@%d had left its topic when it was refused: %w", l.Info.Topic, l.Info.Partition, l.Info.Offset, projector.ErrRecordGone)
	}
	record, err := r.records.Again(ctx, l.Info.Lineage())
	if err != nil {
		return nil, err
	}
	return record.Value, nil
}

// gone is the reason of a letter whose record has left its topic, nil if err is
// another error.
func gone(err error) *mapping.Error {
	if !errors.Is(err, projector.ErrRecordGone) {
		return nil
	}
	return &mapping.Error{Class: ClassGone, Reason: err.Error() + "; backfill it from the source"}
}

// Append maps the record that a letter is about, as Plan.Append would have, to
// one row whose lineage is the record's own place and the origin given. A record
// that is gone is a *mapping.Error of ClassGone.
func (r *Reader) Append(ctx context.Context, plan *mapping.Plan, rows *mapping.Rows, l *Letter, origin string) error {
	value, err := r.Event(ctx, l)
	if reason := gone(err); reason != nil {
		return reason
	}
	if err != nil {
		return err
	}
	lineage := l.Info.Lineage()
	lineage.Origin = origin
	return plan.Append(rows, value, lineage)
}

// Since lists the ranges of offsets that hold the letters of a dead-letter topic
// that were parked at or after a time; the zero time is the topic's start.
func (r *Reader) Since(ctx context.Context, topic string, from time.Time) ([]kafka.PartitionOffsets, error) {
	offsets, err := r.admin.Offsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("dead-letter topic: %w", err)
	}
	if from.IsZero() {
		return offsets, nil
	}
	starts, err := r.admin.OffsetsAt(ctx, topic, from)
	if err != nil {
		return nil, err
	}
	for i := range offsets {
		o := &offsets[i]
		o.Start = min(max(o.Start, starts[o.Partition]), o.End)
	}
	return offsets, nil
}
