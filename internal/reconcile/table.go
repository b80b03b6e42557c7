package reconcile

import (
	"context"
	"fmt"

	"github.com/chprojector/projector/internal/contract"
)

// Reader runs queries of ClickHouse whose results may be large.
type Reader interface {
	Each(ctx context.Context, query string, row func(scan func(dest ...any) error) error) error
}

// Table is the other side: the physical table of one generation, newest
// versions, deleted records included.
type Table struct {
	Contract *contract.Contract
	Name     string // with the database, quoted
	Reader   Reader
}

var _ Side = (*Table)(nil)

// Digests implements [Side].
func (t *Table) Digests(ctx context.Context, campaign string, s contract.Scan) (Summary, error) {
	sum := Summary{Buckets: make([]Digest, s.Buckets)}
	err := t.Reader.Each(ctx, t.Contract.TargetDigests(t.Name, campaign, s), func(scan func(...any) error) error {
		var b uint32
		var d Digest
		into := []any{&b, &d.Live, &d.Deleted, &d.Revision, &d.VersionsHigh, &d.VersionsLow, &d.FieldsHigh, &d.FieldsLow}
		if err := scan(into[:4+2*int(s.Level)]...); err != nil {
			return err
		}
		sum.Buckets[b] = d
		return nil
	})
	if err != nil {
		return sum, fmt.Errorf("sum up campaign %s of %s: %w", campaign, t.Name, err)
	}
	return sum, nil
}

// Records implements [Side].
func (t *Table) Records(ctx context.Context, campaign string, s contract.Scan, each func(Record) error) error {
	err := t.Reader.Each(ctx, t.Contract.TargetRows(t.Name, campaign, s), func(scan func(...any) error) error {
		var r Record
		var deleted uint8
		into := []any{&r.ID, &r.Version, &deleted, &r.Content}
		if s.Level < contract.Fields {
			into = into[:3]
		}
		if err := scan(into...); err != nil {
			return err
		}
		if r.Deleted = deleted != 0; r.Deleted {
			r.Content = ""
		}
		return each(r)
	})
	if err != nil {
		return fmt.Errorf("read campaign %s of %s: %w", campaign, t.Name, err)
	}
	return nil
}

// Moved returns which of the records the table holds under several order keys,
// in whatever campaign.
func (t *Table) Moved(ctx context.Context, ids []string) (map[string]bool, error) {
	moved := map[string]bool{}
	query := t.Contract.OrderKeys(t.Name, ids)
	if query == "" {
		return moved, nil
	}
	err := t.Reader.Each(ctx, query, func(scan func(...any) error) error {
		var id string
		var keys uint64
		if err := scan(&id, &keys); err != nil {
			return err
		}
		moved[id] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for order keys in %s: %w", t.Name, err)
	}
	return moved, nil
}

// Campaigns lists the campaigns in the table.
func (t *Table) Campaigns(ctx context.Context, into map[string]bool) error {
	err := t.Reader.Each(ctx, t.Contract.Campaigns(t.Name), func(scan func(...any) error) error {
		var campaign string
		if err := scan(&campaign); err != nil {
			return err
		}
		into[campaign] = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("list the campaigns of %s: %w", t.Name, err)
	}
	return nil
}
