package repair

import (
	"context"
	"fmt"
	"slices"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/reconcile"
)

// Remover removes exactly the physical rows that the plan has recorded, of
// records that the source knows nothing of. It belongs to one goroutine.
type Remover struct {
	Source *Source
	Table  *reconcile.Table
	Conn   chschema.Conn
	Record Recorder
}

var _ Worker = (*Remover)(nil)

// Work implements [Worker].
func (r *Remover) Work(ctx context.Context, campaign string, items []audit.Item) ([]audit.Item, error) {
	found, err := look(ctx, r.Source, r.Table, campaign, items)
	if err != nil {
		return nil, err
	}
	done := make([]audit.Item, len(items))
	var intent []audit.Item
	var rows []contract.PhysicalRow
	for i, item := range items {
		f := found[i]
		to, note := judgeRemoval(item, f.was, now(f.table), f.source)
		if to == Removing {
			item = become(item, Removing, "")
			intent = append(intent, item)
			for _, p := range f.table {
				rows = append(rows, p.PhysicalRow)
			}
			to, note = Applied, fmt.Sprintf("%d physical rows removed", len(f.table))
		}
		done[i] = become(item, to, note)
	}
	if len(rows) == 0 {
		return done, nil
	}
	// The intention is on record before the rows are gone: whoever goes on after a kill can tell its own work from a
	// record that somebody else has removed.
	if err := r.Record.Add(ctx, intent...); err != nil {
		return nil, err
	}
	for chunk := range slices.Chunk(rows, 200) {
		if err := r.Conn.Exec(ctx, r.Table.Contract.Removal(r.Table.Name, campaign, chunk)); err != nil {
			return nil, fmt.Errorf("remove %d rows from %s (this takes the right ALTER DELETE on it): %w", len(chunk), r.Table.Name, err)
		}
	}
	return done, nil
}

// judgeRemoval looks whether both sides are as planned. Removing says that the
// record's rows are to be removed.
func judgeRemoval(item audit.Item, was, is []Row, c *current) (to, note string) {
	switch {
	case c != nil:
		return Skipped, "the source has it now: compare again"
	case len(is) == 0 && item.State == Removing:
		return Applied, "removed by an earlier process of this repair"
	case len(is) == 0:
		return Skipped, "the table does not have it any more"
	}
	for _, row := range is { // merges may have taken some away; none may have come
		if !recorded(was, row) {
			return Skipped, fmt.Sprintf("the table has changed: it has %s now, which nobody has approved the removal of", state(row, true))
		}
	}
	return Removing, ""
}
