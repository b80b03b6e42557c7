package repair

import (
	"context"
	"fmt"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/backfill"
	"github.com/chprojector/projector/internal/reconcile"
	"github.com/chprojector/projector/mapping"
)

// Replayer writes what the source has of single records, with the source's own
// versions. It belongs to one goroutine.
type Replayer struct {
	Source *Source
	Table  *reconcile.Table
	Writer *backfill.Writer
	Origin string // of what this repair writes, whichever process does

	sequence int64
}

var _ Worker = (*Replayer)(nil)

// Work implements [Worker].
func (r *Replayer) Work(ctx context.Context, campaign string, items []audit.Item) ([]audit.Item, error) {
	found, err := look(ctx, r.Source, r.Table, campaign, items)
	if err != nil {
		return nil, err
	}
	var batches [2]batch // by phase
	done := make([]audit.Item, len(items))
	for i, item := range items {
		f := found[i]
		state, note := r.judge(item, f.was, now(f.table), f.source)
		if state == Planned {
			if err := r.add(&batches[f.source.phase], f.source, i); err == nil {
				state = Applied
			} else {
				state, note = Skipped, "the mapping refuses what the source has: "+err.Error()
			}
		}
		done[i] = become(item, state, note)
	}
	for _, b := range batches {
		if b.rows == nil || b.rows.Len() == 0 {
			continue
		}
		_, err := r.Writer.Write(ctx, b.rows, backfill.Span{Campaigns: []string{campaign}}, func(row int, reason error) {
			done[b.items[row]] = become(items[b.items[row]], Skipped, "ClickHouse refuses it: "+reason.Error())
		})
		if err != nil {
			return nil, err
		}
	}
	return done, nil
}

// batch is what is written at once, and which items its rows are of.
type batch struct {
	rows  *mapping.Rows
	items []int
}

func (r *Replayer) add(b *batch, c *current, item int) error {
	plan := r.Source.Rows.Plan(c.phase)
	if b.rows == nil {
		b.rows = plan.NewRows()
	}
	if err := plan.Append(b.rows, c.event, r.Writer.Lineage(c.shard, r.sequence)); err != nil {
		return err
	}
	r.sequence++
	b.items = append(b.items, item)
	return nil
}

// judge looks whether both sides are as planned. Planned says that the record
// is to be written.
//
// A record that is already right because an earlier process of this repair has
// written it, and was killed before it could say so, is applied.
func (r *Replayer) judge(item audit.Item, was, is []Row, c *current) (to, note string) {
	switch {
	case c == nil:
		return Skipped, "the source does not have it any more: compare again"
	case c.refused != nil:
		return Skipped, "the mapping refuses what the source has: " + c.refused.Error()
	case c.repeated:
		return Skipped, "the source has more than one live row of it: only a person can say which one counts"
	case item.SourceVersion == nil || c.version != *item.SourceVersion || (c.phase == backfill.Deleted) != item.SourceDeleted:
		return Skipped, fmt.Sprintf("the source has changed: it is %s now", state(Row{Version: c.version, Deleted: c.phase == backfill.Deleted, Origin: c.shard}, true))
	}
	before, had := newest(was)
	after, has := newest(is)
	switch {
	case has && after.Version == c.version && after.Deleted == item.SourceDeleted && after.Origin == r.Origin:
		return Applied, "written by an earlier process of this repair"
	case had == has && before.Version == after.Version && before.Deleted == after.Deleted:
		return Planned, ""
	}
	return Skipped, fmt.Sprintf("the table has changed: it had %s and has %s", state(before, had), state(after, has))
}
