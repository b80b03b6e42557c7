package backfill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/mapping"
)

// Phase is what is read of a campaign: first its rows, then its deletions. In
// this order a record that is deleted in between is found by one of the two.
type Phase int

// The phases.
const (
	Live Phase = iota
	Deleted
)

// String returns the name of the phase's query in the configuration.
func (p Phase) String() string { return [...]string{"rows", "deletions"}[p] }

// Config says what is read, and what it is for.
type Config struct {
	Projection string
	Spec       mapping.Spec   // of the generation that is written
	Table      chschema.Table // of that generation
	Rows       string         // the configured queries; ? is the campaign
	Deletions  string         // "" = there are none
	Campaigns  string         // "" = they cannot be listed
	Shards     []mysql.Shard
}

// Source reads the shards. It belongs to one goroutine.
type Source struct {
	cfg      Config
	plans    [2]*mapping.Plan // by phase; Deleted is nil without a query
	specs    [2]mapping.Spec
	constant [2]map[string]string // by phase: fields that the query need not give
	sessions []*mysql.Session
	layouts  [2][]*mysql.Layout // by phase and shard
	forms    [2][]*template
}

// Open compiles the mapping of both phases and connects to every shard. A shard
// that does not answer is an error: without it nothing would be complete.
func Open(ctx context.Context, cfg Config) (*Source, error) {
	s := &Source{cfg: cfg}
	if len(cfg.Shards) == 0 {
		return nil, errors.New("source.shards: no shard is configured")
	}
	s.specs[Live] = sourceSpec(cfg.Spec)
	if cfg.Deletions != "" {
		if cfg.Spec.Deleted == "" {
			return nil, fmt.Errorf("source.projections.%s.deletions: projection %s has no column that marks a deletion; name it in projections[…].deleted", cfg.Projection, cfg.Projection)
		}
		s.specs[Deleted] = tombstoneSpec(cfg.Spec, s.required())
		for _, c := range cfg.Spec.Columns {
			if c.Name == cfg.Spec.Deleted {
				s.constant[Deleted] = map[string]string{c.From: "true"}
				if c.Type.Kind != chschema.KindBool {
					s.constant[Deleted][c.From] = "1"
				}
			}
		}
	}
	for _, phase := range s.phases() {
		plan, err := mapping.Compile(s.specs[phase])
		if err != nil {
			return nil, fmt.Errorf("projection %s: %w", cfg.Projection, err)
		}
		s.plans[phase] = plan
	}
	for _, shard := range cfg.Shards {
		session, err := shard.Session(ctx)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.sessions = append(s.sessions, session)
	}
	return s, nil
}

// required are the columns without which a deletion would be another record's,
// stand elsewhere in the table, or not be the newest.
func (s *Source) required() []string {
	all := slices.Concat(s.cfg.Spec.Identity, s.cfg.Table.OrderBy, []string{s.cfg.Spec.Version})
	if s.cfg.Table.Campaign != "" {
		all = append(all, s.cfg.Table.Campaign)
	}
	return all
}

func (s *Source) phases() []Phase {
	if s.cfg.Deletions == "" {
		return []Phase{Live}
	}
	return []Phase{Live, Deleted}
}

// Close closes the connections.
func (s *Source) Close() error {
	var errs []error
	for _, session := range s.sessions {
		errs = append(errs, session.Close())
	}
	return errors.Join(errs...)
}

// Plan returns the mapping of a phase's events, nil if the source has no such
// phase.
func (s *Source) Plan(p Phase) *mapping.Plan { return s.plans[p] }

// Prepare looks at what the queries give, on every shard, and finds what they
// lack, before anything is written. No row is read.
func (s *Source) Prepare(ctx context.Context) error {
	var some any = uint64(1) // the form of a result does not depend on it
	if _, err := s.campaign("1"); err != nil {
		some = ""
	}
	for _, phase := range s.phases() {
		q := s.query(phase, some)
		s.layouts[phase], s.forms[phase] = nil, nil
		for i, session := range s.sessions {
			layout, err := session.Describe(ctx, q)
			if err != nil {
				return s.wrong(phase, err)
			}
			form, err := newTemplate(&s.specs[phase], layout, s.constant[phase])
			if err != nil {
				return s.wrong(phase, fmt.Errorf("shard %s: %w", s.cfg.Shards[i].Name, err))
			}
			s.layouts[phase] = append(s.layouts[phase], layout)
			s.forms[phase] = append(s.forms[phase], form)
		}
	}
	return nil
}

func (s *Source) wrong(phase Phase, err error) error {
	return fmt.Errorf("source.projections.%s.%s: %w", s.cfg.Projection, phase, err)
}

func (s *Source) query(phase Phase, campaign any) mysql.Query {
	q := mysql.Query{SQL: s.cfg.Rows, Campaign: campaign}
	if phase == Deleted {
		q.SQL = s.cfg.Deletions
	}
	for _, name := range s.cfg.Spec.Identity {
		for _, c := range s.cfg.Spec.Columns {
			if c.Name == name {
				kind := plain(c.Type).Kind
				q.Key, q.Numbers = append(q.Key, c.From), append(q.Numbers, kind.IsInteger() || kind == chschema.KindDecimal)
			}
		}
	}
	return q
}

// campaign is a campaign's name as an argument of the queries: an integer where
// the column is one, because MySQL takes 42x for 42 and long texts for floats.
func (s *Source) campaign(name string) (any, error) {
	column, _ := s.cfg.Table.Column(s.cfg.Table.Campaign)
	kind := plain(column.Type).Kind
	switch {
	case kind.IsUnsigned():
		if n, err := strconv.ParseUint(name, 10, 64); err == nil && strconv.FormatUint(n, 10) == name {
			return n, nil
		}
	case kind.IsSigned():
		if n, err := strconv.ParseInt(name, 10, 64); err == nil && strconv.FormatInt(n, 10) == name {
			return n, nil
		}
	default:
		return name, nil
	}
	return nil, fmt.Errorf("campaign %q: column %s is %s; write it as a plain number", name, column.Name, column.Type)
}

// plain takes LowCardinality and Nullable off a type.
func plain(t chschema.Type) chschema.Type {
	for t.Kind == chschema.KindLowCardinality || t.Kind == chschema.KindNullable {
		t = t.Elem[0]
	}
	return t
}

// Keys are the columns of the identity in a phase's query, by shard. Prepare
// must have been called.
func (s *Source) Keys(p Phase) map[string][]mysql.Column {
	keys := map[string][]mysql.Column{}
	for i, l := range s.layouts[p] {
		keys[s.cfg.Shards[i].Name] = l.KeyColumns()
	}
	return keys
}

// ErrUnknownCampaign is returned, wrapped, for a campaign of which no shard
// knows anything.
var ErrUnknownCampaign = errors.New("unknown campaign")

// Check returns an error for the first campaign of which no shard has a row or
// a deletion, and which the query for campaigns does not list. Prepare must
// have been called.
func (s *Source) Check(ctx context.Context, campaigns []string) error {
	var listed map[string]bool
	for _, name := range campaigns {
		argument, err := s.campaign(name)
		if err != nil {
			return err
		}
		exists, err := s.exists(ctx, argument)
		if err != nil {
			return err
		}
		if exists {
			continue
		}
		if listed == nil && s.cfg.Campaigns != "" {
			all, err := s.Campaigns(ctx)
			if err != nil {
				return err
			}
			listed = map[string]bool{}
			for _, known := range all {
				listed[known] = true
			}
		}
		if !listed[name] {
			return fmt.Errorf("%w %s: no shard of %s has a row, a deletion or the campaign itself", ErrUnknownCampaign, name, strings.Join(s.shardNames(), ", "))
		}
	}
	return nil
}

func (s *Source) shardNames() []string {
	names := make([]string, len(s.cfg.Shards))
	for i, shard := range s.cfg.Shards {
		names[i] = shard.Name
	}
	return names
}

func (s *Source) exists(ctx context.Context, campaign any) (bool, error) {
	for _, phase := range s.phases() {
		for i, session := range s.sessions {
			exists, err := session.Exists(ctx, s.query(phase, campaign), s.layouts[phase][i])
			if err != nil {
				return false, s.wrong(phase, err)
			}
			if exists {
				return true, nil
			}
		}
	}
	return false, nil
}

// Campaigns lists the campaigns of all shards, each once, in the order of their
// numbers where they are numbers.
func (s *Source) Campaigns(ctx context.Context) ([]string, error) {
	if s.cfg.Campaigns == "" {
		return nil, fmt.Errorf("source.projections.%s.campaigns: missing; give the SELECT of all campaigns, or name them with --campaign", s.cfg.Projection)
	}
	var all []string
	for _, session := range s.sessions {
		list, err := session.Texts(ctx, s.cfg.Campaigns)
		if err != nil {
			return nil, fmt.Errorf("source.projections.%s.campaigns: %w", s.cfg.Projection, err)
		}
		for _, name := range list {
			if _, err := s.campaign(name); err != nil {
				return nil, fmt.Errorf("source.projections.%s.campaigns: shard %s: %w", s.cfg.Projection, session.Shard, err)
			}
		}
		all = append(all, list...)
	}
	return SortCampaigns(all), nil
}

// SortCampaigns returns the campaigns in the order in which they are read, each
// once.
func SortCampaigns(list []string) []string {
	list = slices.Clone(list)
	slices.SortFunc(list, compareCampaigns)
	return slices.Compact(list)
}

// compareCampaigns orders numbers by their value and before texts.
func compareCampaigns(a, b string) int {
	x, errA := strconv.ParseUint(a, 10, 64)
	y, errB := strconv.ParseUint(b, 10, 64)
	switch {
	case errA == nil && errB == nil && x < y, errA == nil && errB != nil:
		return -1
	case errA == nil && errB == nil && x > y, errA != nil && errB == nil:
		return 1
	}
	return strings.Compare(a, b)
}

// Begin makes what follows one consistent state of each shard.
func (s *Source) Begin(ctx context.Context) error {
	for _, session := range s.sessions {
		if err := session.Begin(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Count returns how many rows a phase of a campaign has, over all shards.
func (s *Source) Count(ctx context.Context, campaign string, phase Phase) (total int64, err error) {
	argument, err := s.campaign(campaign)
	if err != nil {
		return 0, err
	}
	for i, session := range s.sessions {
		if s.plans[phase] == nil {
			continue
		}
		n, err := session.Count(ctx, s.query(phase, argument), s.layouts[phase][i])
		if err != nil {
			return 0, s.wrong(phase, err)
		}
		total += n
	}
	return total, nil
}

// Statement returns the SQL that reads a phase of a campaign on the first
// shard, for people.
func (s *Source) Statement(phase Phase) string {
	text, _ := s.query(phase, "").Statement(s.layouts[phase][0], nil, nil)
	return text
}
