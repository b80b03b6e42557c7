package repair

import (
	"context"
	"errors"
	"fmt"
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
	names := map[string]string{} // canonical identities, by the key as the source shows it
	keys := make([]mysql.Key, len(ids))
	for i, id := range ids {
		values, err := s.Contract.Values(id)
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			keys[i] = append(keys[i], []byte(v))
		}
		names[joined(keys[i])] = id
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
			id, asked := names[joined(key)]
			if other := found[id]; asked && (other == nil || c.version > other.version) {
				found[id] = c
			}
		}); err != nil {
			return nil, fmt.Errorf("campaign %s: %w", campaign, err)
		}
	}
	return found, nil
}

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
			if c.version, err = strconv.ParseUint(one.Version(0), 10, 64); err != nil {
				return fmt.Errorf("version of record %s: %w", events.Key(), err)
			}
		}
		take(events.Key(), c)
	}
}

// joined is a key as one text. Keys of one identity have the same number of
// parts, and lengths keep them apart.
func joined(key mysql.Key) string {
	var b strings.Builder
	for _, part := range key {
		fmt.Fprintf(&b, "%d:%s;", len(part), part)
	}
	return b.String()
}
