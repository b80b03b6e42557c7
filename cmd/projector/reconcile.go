package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/reconcile"
)

type reconcileCommand struct {
	output
	chosen
	Campaign []string      `help:"These campaigns, separated by commas. May be repeated." placeholder:"ID" xor:"scope"`
	All      bool          `help:"Every campaign that the source or the table knows." xor:"scope"`
	Against  string        `help:"What to compare with: mysql, or the topic itself." enum:"mysql,topic" default:"mysql" placeholder:"SOURCE"`
	Level    string        `help:"How much to compare: counts, versions (which records at which version) or fields (their contents too)." enum:"counts,versions,fields" default:"fields" placeholder:"LEVEL"`
	Buckets  uint32        `help:"Buckets that a campaign is divided into; one that differs is read record by record." default:"1024" placeholder:"N"`
	Sample   uint32        `help:"Compare only N buckets of each campaign, and the next N the next time." placeholder:"N"`
	Settle   time.Duration `help:"How long to wait for events under way before a difference counts." default:"15s" placeholder:"DURATION"`
	Limit    int           `help:"Differences to list for a campaign; when it is reached the other buckets stay closed." default:"10000" placeholder:"N"`
	NoRecord bool          `help:"Leave no record of the result in ClickHouse."`
}

func (reconcileCommand) Help() string {
	return `Asks whether the table says what its source says, field by field, by the contract of
source.projections.NAME.fields, which the mapping has no part in. It reads both sides and
changes neither. What it finds is listed with its kind, and recorded in ClickHouse with its
first and last sighting until a later comparison finds it settled.

Sources move while they are read, so a difference counts only if the record was the same in
two readings of the source, and the projection had passed the first one. What never stood
still makes the campaign inconclusive, never equal. One version of a record with several
contents, in the table or in the topic, is a difference too, unless a newer version hides it.

Exit codes: 0 everything compared is equal; 1 something could not be read, or a signal left
campaigns over, whatever else was found; 3 differences or contradictions; 4 inconclusive.

Examples:

    projector reconcile --campaign 10001
    projector reconcile --campaign 10001,10002 --level versions -o json
    projector reconcile --all --sample 64
    projector reconcile --campaign 10001 --against topic`
}

func (c reconcileCommand) Run(ctx context.Context, p *program) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	pr, err := projection(cfg, c.Projection)
	if err != nil {
		return err
	}
	rules, err := cfg.Contract(pr)
	if err != nil {
		return usageError{err, ""}
	}
	for _, campaign := range c.Campaign {
		if err := rules.CheckCampaign(campaign); err != nil {
			return usageError{err, "projector reconcile"}
		}
	}
	if err := cfg.CheckFiles(); err != nil {
		return err
	}
	b, err := c.open(ctx, p, cfg, pr, rules)
	if err != nil {
		return err
	}
	defer b.close()
	campaigns := slices.Compact(slices.Sorted(slices.Values(c.Campaign)))
	if c.All {
		if campaigns, err = b.campaigns(ctx, b.Table); err != nil {
			return err
		}
	}
	reports, incomplete := compareEach(ctx, campaigns, func(campaign string) (*reconcile.Report, error) {
		b.log.Info().Str("campaign", campaign).Int("of", len(campaigns)).Msg("comparing")
		return b.compare(ctx, campaign)
	})
	if c.json() {
		err = printJSON(p.stdout, reports)
	} else {
		err = printReports(p.stdout, reports)
	}
	answer := verdict(reports)
	if err = errors.Join(err, incomplete); err != nil && answer != nil {
		return fmt.Errorf("%w; apart from that, %s", err, answer.Error()) // the failure decides the exit code
	}
	return cmp.Or(err, answer)
}

// compareEach compares campaigns until the context ends. The error is of what
// was not recorded, and of campaigns that are left over.
func compareEach(ctx context.Context, campaigns []string, compare func(string) (*reconcile.Report, error)) (reports []*reconcile.Report, err error) {
	for i, campaign := range campaigns {
		if ctx.Err() != nil {
			return reports, errors.Join(err, fmt.Errorf("interrupted: %d of %s were not compared", len(campaigns)-i, count(len(campaigns), "campaign")))
		}
		r, unrecorded := compare(campaign)
		reports, err = append(reports, r), errors.Join(err, unrecorded)
	}
	return reports, err
}

func (c reconcileCommand) check() error {
	switch {
	case len(c.Campaign) == 0 && !c.All: // an empty variable of a script, too: nothing compared is no answer
		return usageError{errors.New("say what to compare: --campaign ID, or --all"), "projector reconcile"}
	case c.Buckets < 1 || c.Buckets > reconcile.MaxBuckets:
		return usageError{fmt.Errorf("--buckets=%d: use 1 to %d", c.Buckets, reconcile.MaxBuckets), "projector reconcile"}
	case c.Sample > c.Buckets:
		return usageError{fmt.Errorf("--sample=%d is more than the %d buckets there are", c.Sample, c.Buckets), "projector reconcile"}
	case c.Settle <= 0 || c.Limit < 1:
		return usageError{errors.New("--settle and --limit must be positive"), "projector reconcile"}
	}
	return nil
}

// verdict is the answer for all campaigns: what could not be read outweighs
// what was found, and a difference what is not known.
func verdict(reports []*reconcile.Report) error {
	n := map[reconcile.Verdict]int{}
	for _, r := range reports {
		n[r.Verdict]++
	}
	switch of := count(len(reports), "campaign"); {
	case n[reconcile.Failed] > 0:
		return fmt.Errorf("%d of %s could not be compared", n[reconcile.Failed], of)
	case n[reconcile.Different] > 0:
		return answerNo{fmt.Sprintf("%d of %s differ", n[reconcile.Different], of)}
	case n[reconcile.Inconclusive] > 0:
		return inconclusive{fmt.Sprintf("%d of %s did not come to rest; run it again", n[reconcile.Inconclusive], of)}
	}
	return nil
}

// scales are both sides of a comparison, ready.
type scales struct {
	reconcile.Comparison
	reconcileCommand
	projection *config.Projection
	query      string // of campaigns
	control    control
	findings   *audit.Findings
	log        zerolog.Logger
	closers    []func()
}

func (s *scales) close() {
	for _, f := range slices.Backward(s.closers) {
		f()
	}
}

// open connects to both sides and makes sure that they are what the
// configuration says.
func (c reconcileCommand) open(ctx context.Context, p *program, cfg *config.Config, pr *config.Projection, rules *contract.Contract) (_ *scales, err error) {
	if c.Against != "topic" {
		if err := cfg.CheckSource(); err != nil {
			return nil, err
		}
	}
	s := &scales{reconcileCommand: c, projection: pr, query: cfg.Source.Projections[pr.Name].Campaigns, log: p.logger()}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	conn, err := clickhouse.Open(cfg.Control())
	if err != nil {
		return nil, err
	}
	s.control = conn
	s.closers = append(s.closers, func() { _ = conn.Close() }) // everything it wrote was answered
	table := cfg.Table(pr)
	if err := chschema.Check(ctx, conn, table); err != nil {
		if _, differs := errors.AsType[*chschema.DesignError](err); differs {
			return nil, fmt.Errorf("the table is not what the configuration says, so nothing was compared: %w", err)
		}
		return nil, askClickHouse(cfg, err)
	}
	s.findings = audit.OpenFindings(conn, cfg.Audit())
	if !c.NoRecord {
		if err := s.findings.Ensure(ctx); err != nil {
			return nil, admitted(fmt.Errorf("%w (or give --no-record)", err))
		}
	}
	opts, err := cfg.KafkaClient().Options(s.log)
	if err != nil {
		return nil, err
	}
	admin, err := kafka.NewAdmin(opts...)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, admin.Close)
	level, _ := contract.ParseLevel(c.Level)
	s.Comparison = reconcile.Comparison{
		Contract: rules,
		Table:    &reconcile.Table{Contract: rules, Name: table.Qualified(table.Physical()), Reader: clickhouse.NewReader(conn)},
		Progress: lag{admin, cfg.Group(pr), pr.Topics},
		Again: func(campaign string, round, of, records int, reason string) {
			s.log.Info().Str("campaign", campaign).Int("round", round).Int("of", of).Int("records", records).Str("reason", reason).Msg("not at rest yet")
		},
		Options: reconcile.Options{Level: level, Buckets: c.Buckets, Settle: c.Settle, Limit: c.Limit, Listed: c.All},
	}
	if c.Against == "topic" {
		if err := rules.CheckEvents(); err != nil {
			return nil, usageError{fmt.Errorf("source.projections.%s: %w", pr.Name, err), ""}
		}
		topic := &reconcile.Topic{Contract: rules, Admin: admin, Kafka: opts, Topics: pr.Topics, Ignore: pr.NullValue == "ignore"}
		s.Source, s.Deletes = topic, rules.Deletes()
		if err := pinged(ctx, admin); err != nil {
			return nil, err
		}
		asking, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		s.Options.Partial, err = topic.Partial(asking)
		return s, err
	}
	if len(cfg.Source.Shards) == 0 || !rules.HasSource() {
		return nil, usageError{errors.New("source.shards is missing, so there is no MySQL to compare with; use --against topic"), ""}
	}
	source, err := reconcile.OpenMySQL(ctx, cfg.Shards(), rules)
	if err != nil {
		return nil, fmt.Errorf("source.projections.%s: %w", pr.Name, err)
	}
	s.closers = append(s.closers, source.Close)
	s.Source, s.Deletes = source, rules.HasDeletions()
	return s, nil
}

// campaigns are those of the source and those of the tables, in order: one that
// the source does not know is a finding, too.
func (s *scales) campaigns(ctx context.Context, tables ...*reconcile.Table) ([]string, error) {
	all := map[string]bool{}
	switch source := s.Source.(type) {
	case *reconcile.MySQL:
		if s.query == "" {
			return nil, usageError{fmt.Errorf("source.projections.%s.campaigns is missing; --all needs it", s.projection.Name), ""}
		}
		var err error
		if all, err = source.Campaigns(ctx, s.query); err != nil {
			return nil, err
		}
	case *reconcile.Topic:
		if err := source.Campaigns(ctx, all); err != nil {
			return nil, err
		}
	}
	for _, t := range tables {
		if err := t.Campaigns(ctx, all); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 { // nothing compared is no answer
		return nil, fmt.Errorf("--all: neither the source nor %s has a campaign, so nothing was compared; is it the right database?", s.Table.Name)
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if n := len(a) - len(b); n != 0 && s.Contract.IntegerCampaign() {
			return n
		}
		return strings.Compare(a, b)
	}), nil
}

// compare compares one campaign and records the result. The error is of the
// record alone.
func (s *scales) compare(ctx context.Context, campaign string) (*reconcile.Report, error) {
	next, err := s.sample(ctx, campaign)
	before, unread := s.sightings(ctx, campaign)
	err = errors.Join(err, unread)
	r := s.Comparison.Campaign(ctx, campaign)
	if r.Verdict == reconcile.Failed && errors.Is(ctx.Err(), context.Canceled) {
		r.Error = "interrupted by a signal" // whatever the server says of it
	}
	r.Projection, r.Table, r.Against = s.projection.Name, s.Table.Name, s.reconcileCommand.Against
	if topic, ok := s.Source.(*reconcile.Topic); ok {
		r.Unread, r.Unreadable = topic.Unread()
	}
	if err != nil || s.NoRecord || errors.Is(ctx.Err(), context.Canceled) {
		return r, err
	}
	return r, s.record(ctx, r, next, before)
}

// sample chooses the buckets of this run, and returns the one with which the
// next sample goes on: a run of all buckets leaves it where it was.
func (s *scales) sample(ctx context.Context, campaign string) (next uint32, err error) {
	last, err := s.findings.LastComparisons(ctx, campaign)
	if err != nil {
		return 0, err
	}
	for _, l := range last {
		if l.Projection == s.projection.Name && l.Generation == s.projection.Generation && l.Against == s.reconcileCommand.Against && l.Buckets == s.Buckets {
			next = l.Next
		}
	}
	s.Options.Only = nil // all, unless this is a sample
	for range s.Sample {
		s.Options.Only = append(s.Options.Only, next)
		next = (next + 1) % s.Buckets
	}
	return next, nil
}
