package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/reconcile"
)

// A campaign is divided finely to compare few of its records, so many of them
// at once as their buckets fit into a statement.
const (
	verifyBuckets = 1 << 16
	verifyItems   = 5000
	verifyLimit   = 100_000 // findings, of other records in the same buckets too
)

// ErrUnsettled is returned, wrapped, when records kept moving, so that nothing
// is known of them.
var ErrUnsettled = errors.New("did not come to rest")

// Verify compares the items' records, and only reads. It returns the items as
// they are now, and the comparisons that they rest on. Records that a repair
// has skipped are compared too: a repair is verified when all that it was about
// is right.
func Verify(ctx context.Context, c *reconcile.Comparison, items []audit.Item) (_ []audit.Item, reports []*reconcile.Report, err error) {
	done := slices.Clone(items)
	for from := 0; from < len(done); {
		to := from
		for to < len(done) && to-from < verifyItems && done[to].Campaign == done[from].Campaign {
			to++
		}
		r, err := verify(ctx, *c, done[from:to])
		if r != nil {
			reports = append(reports, r)
		}
		if err != nil {
			return nil, reports, fmt.Errorf("campaign %s: %w", done[from].Campaign, err)
		}
		from = to
	}
	return done, reports, nil
}

// verify compares items of one campaign.
func verify(ctx context.Context, c reconcile.Comparison, items []audit.Item) (*reconcile.Report, error) {
	ids, err := identities(items)
	if err != nil {
		return nil, err
	}
	r := Compare(ctx, c, items[0].Campaign, ids)
	if r.Verdict == reconcile.Failed {
		return r, errors.New(r.Error)
	}
	different := map[string]reconcile.Finding{}
	for _, f := range r.Findings {
		different[f.Key] = f
	}
	contradicted := map[string]reconcile.Conflict{}
	for _, c := range r.Conflicts {
		if !c.Superseded {
			contradicted[c.Key] = c
		}
	}
	unsettled := 0
	for i, id := range ids {
		f, found := different[id]
		c, several := contradicted[id]
		switch {
		case found:
			items[i] = become(items[i], Refuted, fmt.Sprintf("it is %s", f.Kind))
		case several:
			items[i] = become(items[i], Refuted, fmt.Sprintf("the %s has several contents at version %d", c.In, c.Version))
		case r.Covers(id):
			items[i] = become(items[i], Verified, items[i].Note)
		default:
			unsettled++
		}
	}
	if unsettled > 0 {
		return r, fmt.Errorf("%d of %d records %w: %s", unsettled, len(items), ErrUnsettled, r.Reason)
	}
	return r, nil
}

// Compare compares the records of a campaign with these canonical identities,
// and those that happen to share a bucket with them.
func Compare(ctx context.Context, c reconcile.Comparison, campaign string, ids []string) *reconcile.Report {
	c.Options.Level, c.Options.Buckets, c.Options.Only, c.Options.Limit = contract.Fields, verifyBuckets, nil, verifyLimit
	for _, id := range ids {
		c.Options.Only = append(c.Options.Only, contract.Bucket(id, verifyBuckets))
	}
	c.Options.Listed = true // a removal may have left nothing of the campaign
	slices.Sort(c.Options.Only)
	c.Options.Only = slices.Compact(c.Options.Only)
	return c.Campaign(ctx, campaign)
}
