package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/chprojector/projector/internal/contract"
)

// Physical is one row as it is stored, whichever version readers see.
type Physical struct {
	contract.PhysicalRow
	Deleted  bool
	At       time.Time // when it was inserted, by the server's clock
	OrderKey string
	JSON     string // the whole row
}

// Physical returns every physical row of some records of a campaign, by
// canonical identity.
func (t *Table) Physical(ctx context.Context, campaign string, ids []string) (map[string][]Physical, error) {
	found := map[string][]Physical{}
	err := t.Reader.Each(ctx, t.Contract.PhysicalRows(t.Name, campaign, ids), func(scan func(...any) error) error {
		var p Physical
		var deleted uint8
		if err := scan(&p.ID, &p.Version, &deleted, &p.Topic, &p.Partition, &p.Offset, &p.Origin, &p.At, &p.OrderKey, &p.JSON); err != nil {
			return err
		}
		p.Deleted = deleted != 0
		found[p.ID] = append(found[p.ID], p)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %d records of campaign %s in %s: %w", len(ids), campaign, t.Name, err)
	}
	return found, nil
}
