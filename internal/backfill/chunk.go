package backfill

import (
	"context"
	"errors"
	"fmt"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/mapping"
)

func (f *filling) take(ctx context.Context) error {
	select {
	case f.chunk = <-f.free:
		f.seen = 0
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wrongMapping is how many rows must have been refused, and none mapped, for
// the mapping to be at fault.
const wrongMapping = 100

// handOver gives the chunk to the writer, when the rate allows it, and takes
// the next one if more is to be read.
func (c *copier) handOver(ctx context.Context, f *filling, more bool) error {
	if c.at.Sequence == 0 && c.at.Counts.Refused >= wrongMapping {
		first := c.at.Counts.Refusals[0]
		return fmt.Errorf("all of the first %d rows are refused: the mapping or the query is wrong, and nothing was written; the first: record %s of shard %s: column %s: %s: %s (%s)",
			c.at.Counts.Refused, first.Key, first.Shard, first.Column, first.Value, first.Reason, first.Class)
	}
	if c.limiter != nil {
		for n := f.len(); n > 0; n -= c.o.ChunkRows {
			if err := c.limiter.WaitN(ctx, min(n, c.o.ChunkRows)); err != nil {
				return fmt.Errorf("wait for the rate of %d rows a second: %w", c.o.Rate, err)
			}
		}
	}
	f.after = c.at
	for _, full := range f.full {
		full <- f.chunk
	}
	if !more {
		return nil
	}
	return f.take(ctx)
}

// write writes a chunk and returns what became of its rows.
func (c *copier) write(ctx context.Context, w *Writer, ch *chunk) (counts Counts, err error) {
	for _, phase := range c.source.phases() {
		rows := ch.rows[phase]
		if rows.Len() == 0 {
			continue
		}
		rejected := 0
		back, err := w.Write(ctx, rows, c.span(phase, ch), func(i int, reason error) {
			rejected++
			counts.Refused++
			counts.refuse(Refusal{
				Campaign: rows.Format(i, w.table.Campaign), Shard: rows.Lineage(i).Topic, Query: phase.String(), Key: rows.Identity(i),
				Class: "rejected", Reason: reason.Error(),
			})
		})
		if err != nil {
			return counts, err
		}
		counts.Written += int64(rows.Len() - rejected)
		counts.Stored += back.Stored
		counts.Superseded += back.Superseded
		counts.Resent += back.Resent
	}
	return counts, nil
}

// save saves, after each chunk that was written and in the order of reading,
// where reading would go on.
func (c *copier) save(ctx context.Context, order <-chan *chunk, free chan<- *chunk) error {
	for ch := range order {
		select {
		case counts := <-ch.written:
			c.written.add(&counts)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		c.done = ch.after
		c.done.Counts.add(&c.written)
		if c.o.Save != nil {
			if err := c.o.Save(ctx, c.done); err != nil {
				return err
			}
		}
		ch.reset()
		free <- ch
	}
	return nil
}

// add adds what a writer counts.
func (c *Counts) add(w *Counts) {
	c.Written += w.Written
	c.Refused += w.Refused
	c.Stored += w.Stored
	c.Superseded += w.Superseded
	c.Resent += w.Resent
	for _, r := range w.Refusals {
		c.refuse(r)
	}
}

// span is where the rows of a chunk are in the table. Within one campaign they
// are in the order of the source, which for integers and for texts is also that
// of ClickHouse.
func (c *copier) span(phase Phase, ch *chunk) Span {
	span := Span{Campaigns: ch.campaigns}
	if len(ch.campaigns) == 1 && c.source.sameOrder(phase) {
		rows, name := ch.rows[phase], c.origin.table.Identity[0]
		span.First, span.Last = rows.Format(0, name), rows.Format(rows.Len()-1, name)
	}
	return span
}

// sameOrder reports whether ClickHouse orders the first column of the identity
// as the shards do.
func (s *Source) sameOrder(phase Phase) bool {
	column, _ := s.cfg.Table.Column(s.cfg.Table.Identity[0])
	t := column.Type
	if t.Kind == chschema.KindLowCardinality {
		t = t.Elem[0]
	}
	for _, layout := range s.layouts[phase] {
		switch key := layout.KeyColumn(); {
		case key.IsInteger() && t.Kind.IsInteger():
		case key.IsText() && t.Kind == chschema.KindString:
		default:
			return false
		}
	}
	return true
}

// Map reads what a Copy would write, maps it and writes nothing. sample is
// called for the first rows of each campaign and phase.
func Map(ctx context.Context, source *Source, o Options, samples int, sample func(campaign string, phase Phase, rows *mapping.Rows)) (Counts, error) {
	o.Rate = 0
	c := newCopier(source, NewWriter(nil, nil, source.cfg.Table, "dry run", 0), o)
	ch := c.newChunk()
	f := &filling{chunk: ch}
	for i, campaign := range o.Campaigns {
		if err := source.Begin(ctx); err != nil {
			return c.at.Counts, err
		}
		c.at.Campaign = campaign
		for _, phase := range source.phases() {
			c.at.Phase = phase
			if err := c.mapPhase(ctx, f, i, campaign, phase, samples, sample); err != nil {
				return c.at.Counts, fmt.Errorf("campaign %s: %w", campaign, err)
			}
		}
		c.at.Counts.Campaigns++
	}
	c.at.Counts.Written = c.at.Sequence // what would be
	return c.at.Counts, nil
}

func (c *copier) mapPhase(ctx context.Context, f *filling, i int, campaign string, phase Phase, samples int, sample func(string, Phase, *mapping.Rows)) (err error) {
	events, err := c.source.Read(ctx, campaign, phase, nil, c.o.Only)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	shown := false
	for n := 1; ; n++ {
		more, err := events.Next(ctx)
		if err != nil {
			return err
		}
		if more {
			c.event(f, campaign, phase, events)
		}
		if n%progressEvery == 0 {
			c.report(i)
		}
		if rows := f.rows[phase]; !shown && rows.Len() > 0 && (rows.Len() >= samples || !more) {
			shown = true
			sample(campaign, phase, rows)
		}
		if f.len() >= c.o.ChunkRows || !more {
			f.reset()
		}
		if !more {
			c.report(i)
			return nil
		}
	}
}
