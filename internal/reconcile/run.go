package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chprojector/projector/internal/contract"
)

// Options are how a comparison works. The zero value of a field means its
// default.
type Options struct {
	Level   contract.Level
	Buckets uint32   // DefaultBuckets
	Only    []uint32 // buckets to compare; empty = all

	Batch   int           // records that are joined in memory at once; DefaultBatch
	Limit   int           // findings of one campaign; beyond it buckets stay closed; DefaultLimit
	Rounds  int           // how often records that moved are looked at again; DefaultRounds
	Settle  time.Duration // how long a round waits for events under way; DefaultSettle
	Partial bool          // the source does not hold everything: what it lacks proves nothing
	Listed  bool          // the campaigns come from a list of either side, so one without records is equal, not a mistake
}

// The defaults of Options.
const (
	DefaultBuckets = 1024
	DefaultBatch   = 100_000
	DefaultLimit   = 10_000
	DefaultRounds  = 10
	DefaultSettle  = 15 * time.Second
)

// MaxBuckets bounds the memory of a scan.
const MaxBuckets = 1 << 20

// ErrNoCampaign is a campaign of which both sides know nothing.
var ErrNoCampaign = errors.New("neither the source nor the table has a record of it")

// Comparison compares one projection's table with one source.
type Comparison struct {
	Contract *contract.Contract
	Source   Side
	Table    *Table
	Progress Progress
	Options  Options
	Deletes  bool // the source knows deletions

	// Again, if not nil, is called after a round that has left records which are not at rest, with why, and is for
	// whoever waits: rounds may take minutes.
	Again func(campaign string, round, of, records int, reason string)
}

func (c *Comparison) withDefaults() Options {
	o := c.Options
	if o.Buckets == 0 {
		o.Buckets = DefaultBuckets
	}
	if o.Batch == 0 {
		o.Batch = DefaultBatch
	}
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	if o.Rounds == 0 {
		o.Rounds = DefaultRounds
	}
	if o.Settle == 0 {
		o.Settle = DefaultSettle
	}
	return o
}

// Campaign compares one campaign. What went wrong is in the report: a campaign
// that could not be read does not keep the next from being compared.
func (c *Comparison) Campaign(ctx context.Context, campaign string) *Report {
	o := c.withDefaults()
	r := &Report{
		Campaign: campaign, Level: o.Level.String(), Buckets: o.Buckets, Compared: o.Buckets, Started: time.Now().UTC(),
		Kinds: map[Kind]int{}, Findings: []Finding{}, Conflicts: []Conflict{}, only: o.Only, open: map[string]bool{}, Partial: o.Partial,
	}
	if len(o.Only) > 0 {
		r.Compared = uint32(len(o.Only))
	}
	j := &job{Comparison: c, o: o, campaign: campaign, report: r}
	if err := j.run(ctx); err != nil {
		r.Error = err.Error()
	}
	r.conclude()
	r.Seconds = time.Since(r.Started).Seconds()
	return r
}

// job is one campaign's comparison under way.
type job struct {
	*Comparison
	o        Options
	campaign string
	report   *Report
}

func (j *job) scan() contract.Scan {
	return contract.Scan{Level: j.o.Level, Buckets: j.o.Buckets, Only: j.o.Only, LiveOnly: !j.Deletes}
}

func (j *job) run(ctx context.Context) error {
	source, err := j.Source.Digests(ctx, j.campaign, j.scan())
	if err != nil {
		return err
	}
	// Most of what is under way arrives while the table is asked; the rest is for the rounds.
	table, err := j.Table.Digests(ctx, j.campaign, j.scan())
	if err != nil {
		return err
	}
	s, t := source.total(), table.total()
	j.report.Source, j.report.Target, j.report.Parts = Totals{s.Live, s.Deleted}, Totals{t.Live, t.Deleted}, source.Parts
	if s.Live+s.Deleted+t.Live+t.Deleted == 0 && !j.o.Listed {
		if known, err := j.known(ctx); err != nil || !known {
			return cmp.Or(err, fmt.Errorf("campaign %s: %w; is the number right?", j.campaign, ErrNoCampaign))
		}
	}
	conflicts, err := j.Table.conflicts(ctx, j.campaign)
	if err != nil {
		return err
	}
	j.report.contradict(source.Conflicts, source.ConflictsCut)
	j.report.contradict(conflicts, len(conflicts) >= maxConflicts)
	differing := j.levels(source.Buckets, table.Buckets)
	if len(differing) == 0 {
		return nil
	}
	return j.open(ctx, plan(differing, source.Buckets, table.Buckets, j.o))
}

// known reports whether either side has a record of the campaign outside of the
// buckets that were read, which held none: a few of a small campaign may be empty.
func (j *job) known(ctx context.Context) (bool, error) {
	if len(j.o.Only) == 0 {
		return false, nil
	}
	for _, side := range []Side{j.Source, j.Table} {
		sum, err := side.Digests(ctx, j.campaign, contract.Scan{Buckets: 1, LiveOnly: !j.Deletes})
		if err != nil {
			return false, err
		}
		if all := sum.total(); all.Live+all.Deleted > 0 {
			return true, nil
		}
	}
	return false, nil
}

// levels notes how many buckets differ at each level, and returns those that
// differ at any.
func (j *job) levels(source, table []Digest) (differing []uint32) {
	counts := make([]int, j.o.Level+1)
	for b := range source {
		s, t := source[b], table[b]
		unequal := [...]bool{
			s.Live != t.Live || s.Deleted != t.Deleted,
			s.VersionsHigh != t.VersionsHigh || s.VersionsLow != t.VersionsLow,
			s.FieldsHigh != t.FieldsHigh || s.FieldsLow != t.FieldsLow,
		}
		for l := range counts {
			if unequal[l] {
				counts[l]++
			}
		}
		if slices.Contains(unequal[:len(counts)], true) {
			differing = append(differing, uint32(b))
		}
	}
	for l, n := range counts {
		j.report.Levels = append(j.report.Levels, LevelResult{contract.Level(l).String(), n})
	}
	return differing
}

// plan groups differing buckets into scans of a bounded number of records. One
// that is too large by itself is split: a record of bucket b among n is in
// bucket b + k·n, for some k, among a multiple of n.
func plan(differing []uint32, source, table []Digest, o Options) (scans []contract.Scan) {
	level := max(o.Level, contract.Versions) // counts alone name no record
	var group []uint32
	inGroup := 0
	flush := func() {
		if len(group) > 0 {
			scans = append(scans, contract.Scan{Level: level, Buckets: o.Buckets, Only: group})
		}
		group, inGroup = nil, 0
	}
	for _, b := range differing {
		n := int(max(source[b].Live+source[b].Deleted, table[b].Live+table[b].Deleted))
		if parts := uint32((n + o.Batch - 1) / o.Batch); parts > 1 {
			for k := range parts {
				scans = append(scans, contract.Scan{Level: level, Buckets: o.Buckets * parts, Only: []uint32{b + k*o.Buckets}})
			}
			continue
		}
		if inGroup+n > o.Batch {
			flush()
		}
		group, inGroup = append(group, b), inGroup+n
	}
	flush()
	return scans
}
