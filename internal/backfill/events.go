package backfill

import (
	"context"
	"database/sql"

	"github.com/chprojector/projector/internal/mysql"
)

// Events are the events of one phase of one campaign, in key order. They belong
// to one goroutine.
type Events struct {
	source *Source
	phase  Phase
	merge  *mysql.Merge
	event  []byte
	shard  int
	newest []byte // the highest version so far
}

// Read begins to read: after a key if it is not nil; only the given keys if
// only is not nil. Prepare must have been called.
func (s *Source) Read(ctx context.Context, campaign string, phase Phase, after mysql.Key, only []mysql.Key) (_ *Events, err error) {
	argument, err := s.campaign(campaign)
	if err != nil {
		return nil, err
	}
	q := s.query(phase, argument)
	var readers []*mysql.Reader
	defer func() {
		if err != nil {
			for _, r := range readers {
				_ = r.Close()
			}
		}
	}()
	for i, session := range s.sessions {
		r, err := session.Read(ctx, q, s.layouts[phase][i], after, only)
		if err != nil {
			return nil, s.wrong(phase, err)
		}
		readers = append(readers, r)
	}
	merge, err := mysql.NewMerge(readers...)
	if err != nil {
		return nil, s.wrong(phase, err)
	}
	return &Events{source: s, phase: phase, merge: merge}, nil
}

// Next moves to the next event and reports whether there is one.
func (e *Events) Next(ctx context.Context) (bool, error) {
	more, err := e.merge.Next(ctx, func(shard int, values []sql.RawBytes) error {
		e.shard = shard
		form := e.source.forms[e.phase][shard]
		e.event = form.append(e.event[:0], values)
		if v := values[form.version]; len(v) > len(e.newest) || len(v) == len(e.newest) && string(v) > string(e.newest) {
			e.newest = append(e.newest[:0], v...)
		}
		return nil
	})
	if err != nil {
		return false, e.source.wrong(e.phase, err)
	}
	return more, nil
}

// Event is the JSON of the event. It is valid until the next call of Next.
func (e *Events) Event() []byte { return e.event }

// Shard is the name of the shard that has the row.
func (e *Events) Shard() string { return e.source.cfg.Shards[e.shard].Name }

// Key says which record it is. It is valid until the next call of Next.
func (e *Events) Key() mysql.Key { return e.merge.Key() }

// Repeated reports whether the source has another live row of this record: on
// another shard, or twice on one. Which one counts nobody can tell. A record
// may have been deleted any number of times.
func (e *Events) Repeated() bool { return e.phase == Live && e.merge.Repeated() }

// Whole reports whether reading may end here and go on after [Events.Key].
func (e *Events) Whole() bool { return e.merge.Whole() }

// Newest is the highest version of all events so far, "" before the first.
func (e *Events) Newest() string { return string(e.newest) }

// Close ends the reading.
func (e *Events) Close() error { return e.merge.Close() }
