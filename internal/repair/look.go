package repair

import (
	"context"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/reconcile"
)

// sides are what is known of a record when it is its turn.
type sides struct {
	was    []Row                // what the table had when the repair was planned
	source *current             // what the source has, nil for nothing
	table  []reconcile.Physical // what the table has
}

// look reads both sides of items of one campaign, the source first, so that a
// row that the stream writes in between is seen.
func look(ctx context.Context, source *Source, table *reconcile.Table, campaign string, items []audit.Item) ([]sides, error) {
	ids, err := identities(items)
	if err != nil {
		return nil, err
	}
	authoritative, err := source.read(ctx, campaign, ids)
	if err != nil {
		return nil, err
	}
	physical, err := table.Physical(ctx, campaign, ids)
	if err != nil {
		return nil, err
	}
	found := make([]sides, len(items))
	for i, item := range items {
		was, err := Before(item)
		if err != nil {
			return nil, err
		}
		found[i] = sides{was, authoritative[ids[i]], physical[ids[i]]}
	}
	return found, nil
}
