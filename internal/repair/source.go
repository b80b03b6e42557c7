package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/chprojector/projector/internal/backfill"
	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/mapping"
)

// current is what the source has of a record.
type current struct {
	phase    backfill.Phase
	shard    string
	event    []byte
	version  uint64
	repeated bool  // the source has more than one live row of it
	refused  error // the mapping does not take it, and so its version is not known
}

// Source asks the shards for single records, and gives them as events.
type Source struct {
	Contract *contract.Contract
	Rows     *backfill.Source // prepared
}

// read returns what the source has of records of a campaign, each shard in one
// snapshot: of each the live row or its deletion, whichever has the higher
// version. It is by canonical identity.
func (s *Source) read(ctx context.Context, campaign string, ids []string) (map[string]*current, error) {
	asked := map[string]bool{}
	keys := make([]mysql.Key, len(ids))
	for i, id := range ids {
		values, err := s.Contract.Values(id)
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			keys[i] = append(keys[i], []byte(v))
		}
		asked[id] = true
	}
	if err := s.Rows.Begin(ctx); err != nil {
		return nil, err
	}
	found := map[string]*current{}
	for _, phase := range []backfill.Phase{backfill.Live, backfill.Deleted} {
		if s.Rows.Plan(phase) == nil {
			continue
		}
		if err := s.phase(ctx, campaign, phase, keys, func(key mysql.Key, c *current) {
			// The source may write a number otherwise than the contract: 2.31 for 2.310.
			id, err := s.Contract.IdentityOf(key)
			if err != nil || !asked[id] {
				return // found beside what was asked for
			}
			switch other := found[id]; {
			case other == nil || c.version > other.version:
				found[id] = c
				c.repeated = c.repeated || phase == backfill.Live && other != nil
			case phase == backfill.Live:
				other.repeated = true
			}
		}); err != nil {
			return nil, fmt.Errorf("campaign %s: %w", campaign, err)
		}
	}
	return found, nil
}

// phase gives what a query has of the records, but for those of another campaign
// that the query's collation takes for this one.
func (s *Source) phase(ctx context.Context, campaign string, phase backfill.Phase, keys []mysql.Key, take func(mysql.Key, *current)) (err error) {
	events, err := s.Rows.Read(ctx, campaign, phase, nil, keys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	one := s.Rows.Plan(phase).NewRows()
	for {
		more, err := events.Next(ctx)
		if err != nil || !more {
			return err
		}
		c := &current{phase: phase, shard: events.Shard(), event: slices.Clone(events.Event()), repeated: events.Repeated()}
		one.Reset()
		if c.refused = s.Rows.Plan(phase).Append(one, c.event, mapping.Lineage{}); c.refused == nil {
			if !s.Contract.IsCampaign(one.Format(0, s.Contract.CampaignColumn()), campaign) {
				continue
			}
			if c.version, err = strconv.ParseUint(one.Version(0), 10, 64); err != nil {
				return fmt.Errorf("version of record %s: %w", events.Key(), err)
			}
		}
		take(events.Key(), c)
	}
}

// Check says why single records cannot be asked for: a record that is not found
// would pass for one that the source does not have. The contract's source is
// open, and Rows prepared.
func (s *Source) Check() error {
	if err := CheckIdentity(s.Contract); err != nil {
		return err
	}
	var errs []error
	for _, phase := range []backfill.Phase{backfill.Live, backfill.Deleted} {
		keys := s.Rows.Keys(phase)
		for _, shard := range slices.Sorted(maps.Keys(keys)) {
			for i, f := range s.Contract.IdentityFields() {
				if c := keys[shard][i]; !askable(f.Class, c) {
					errs = append(errs, fmt.Errorf("source.projections.*.%s: column %s is %s on shard %s, by which a record of class %s cannot be asked for exactly: select it as a number or as a text",
						phase, c.Name, c.Type, shard, f.Class))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// CheckIdentity says why no source can be asked for single records of a
// contract.
func CheckIdentity(rules *contract.Contract) error {
	var errs []error
	for _, f := range rules.IdentityFields() {
		switch f.Class {
		case contract.Instant, contract.Bool:
			errs = append(errs, fmt.Errorf("single records cannot be repaired: column %s is of class %s, which a source writes in many ways, and belongs to the identity; `projector backfill` writes whole campaigns", f.Column, f.Class))
		case contract.Integer, contract.Decimal, contract.String, contract.Enum:
		}
	}
	return errors.Join(errs...)
}

// askable reports whether a column can be compared exactly with a value of a
// class.
func askable(class contract.Class, c mysql.Column) bool {
	number := c.IsInteger() || c.Type == "DECIMAL"
	if class == contract.Integer || class == contract.Decimal {
		return number || c.IsText()
	}
	return number || c.IsText() || strings.HasSuffix(c.Type, "BINARY") || strings.HasSuffix(c.Type, "BLOB")
}
