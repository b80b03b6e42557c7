package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/reconcile"
	"github.com/chprojector/projector/internal/repair"
)

type repairPlan struct {
	Campaign   []string      `help:"Compare these campaigns, and plan for all that differs." placeholder:"ID" xor:"scope"`
	Finding    []string      `help:"Plan for these records alone, as projector reconcile has found and named them." placeholder:"ID" xor:"scope"`
	Projection string        `help:"Which projection; needed when there are several." placeholder:"NAME"`
	Settle     time.Duration `help:"How long to wait for events under way before a difference counts." default:"15s" placeholder:"DURATION"`
	requester
	output
}

func (repairPlan) Help() string {
	return `Compares campaigns with MySQL and says for each difference what is done about it, or why
nothing is. What can be done is recorded as a repair, with every record's key, the source's
version and what the table has now. Nothing is changed.

    missing, stale      the source's row or deletion is written with its own version
    undeleted           a tombstone is written with the version of the deletion record
    unexpected          quarantined: shown with topic, partition, offset and origin of every
                        physical row; removed only when a second person applies the plan
    content_conflict    not repaired: rebuild
    version_conflict    not repaired: rebuild, unless the source has a newer version
    ahead, moved_key    not repaired: investigate

Exit codes: 0 all that differs is planned, or nothing differs; 3 some differences need
something else; 4 records did not come to rest.

Examples:

    projector repair plan --campaign 10001 --reason "ticket 4711"
    projector repair plan --finding 501,502
    projector repair plan --campaign 10001 -o json`
}

// plan is what repair plan prints.
type plan struct {
	Projection  string        `json:"projection"`
	Table       string        `json:"table"`
	Repairs     []plannedPart `json:"repairs"`
	Quarantined []quarantined `json:"quarantined"`
	Left        []leftPart    `json:"not_repaired"`
	Unresolved  int           `json:"unresolved"`

	items map[repair.Action][]audit.Item
}

// plannedPart is one recorded repair.
type plannedPart struct {
	Operation string         `json:"operation"`
	Action    repair.Action  `json:"action"`
	State     audit.State    `json:"state"`
	Kinds     map[string]int `json:"kinds"`
	Records   int            `json:"records"`
}

// quarantined is a record of which the source knows nothing, and where its rows
// come from.
type quarantined struct {
	Campaign string       `json:"campaign"`
	ID       string       `json:"id"`
	Rows     []repair.Row `json:"rows"`
}

// leftPart are differences that no repair cures.
type leftPart struct {
	Kind   reconcile.Kind `json:"kind"`
	Count  int            `json:"count"`
	IDs    []string       `json:"ids"` // the first ones
	Advice string         `json:"advice"`
}

func (c repairPlan) Run(ctx context.Context, p *program) error {
	if len(c.Campaign) == 0 && len(c.Finding) == 0 { // an empty variable of a script, too: nothing compared is no answer
		return usageError{errors.New("say what to repair: --campaign ID, or --finding ID"), "projector repair plan"}
	}
	if c.Settle <= 0 {
		return usageError{errors.New("--settle must be positive"), "projector repair plan"}
	}
	r, err := openRepairs(p)
	if err != nil {
		return err
	}
	defer r.close()
	pr, err := projection(r.cfg, c.Projection)
	if err != nil {
		return err
	}
	rules, err := r.cfg.Contract(pr)
	if err != nil {
		return usageError{err, ""}
	}
	if err := repair.CheckIdentity(rules); err != nil {
		return usageError{err, ""}
	}
	for _, campaign := range c.Campaign {
		if err := rules.CheckCampaign(campaign); err != nil {
			return usageError{err, "projector repair plan"}
		}
	}
	how := comparing
	how.Settle = c.Settle
	s, err := how.open(ctx, p, r.cfg, pr, rules)
	if err != nil {
		return err
	}
	defer s.close()
	result := &plan{Projection: pr.Name, Table: r.cfg.Table(pr).Physical(), Repairs: []plannedPart{}, Quarantined: []quarantined{}, Left: []leftPart{}, items: map[repair.Action][]audit.Item{}}
	reports, err := c.compare(ctx, s)
	if err != nil {
		return err
	}
	for _, report := range reports {
		if err := result.add(ctx, s, report); err != nil {
			return err
		}
	}
	for _, action := range []repair.Action{repair.Replay, repair.Remove} {
		if err := c.begin(ctx, p, r, s, result, action); err != nil {
			return err
		}
	}
	if err := result.print(p.stdout, c.json()); err != nil {
		return err
	}
	left := 0
	for _, l := range result.Left {
		left += l.Count
	}
	switch {
	case left > 0:
		return answerNo{fmt.Sprintf("%s cannot be repaired record by record", count(left, "difference"))}
	case result.Unresolved > 0:
		return inconclusive{fmt.Sprintf("%s did not come to rest and are not in a plan; run it again", count(result.Unresolved, "record"))}
	}
	return nil
}

// compare compares whole campaigns, or the records of findings.
func (c repairPlan) compare(ctx context.Context, s *scales) (reports []*reconcile.Report, err error) {
	take := func(r *reconcile.Report) error {
		if r.Verdict == reconcile.Failed {
			return fmt.Errorf("campaign %s could not be compared, so nothing is planned: %s", r.Campaign, r.Error)
		}
		reports = append(reports, r)
		return nil
	}
	for _, campaign := range slices.Compact(slices.Sorted(slices.Values(c.Campaign))) {
		s.log.Info().Str("campaign", campaign).Msg("comparing")
		r, err := s.compare(ctx, campaign)
		if err := errors.Join(take(r), err); err != nil {
			return nil, err
		}
	}
	if len(c.Finding) == 0 {
		return reports, nil
	}
	known, err := s.findings.Unresolved(ctx, audit.FindingsFilter{Projection: s.projection.Name, Generation: s.projection.Generation})
	if err != nil {
		return nil, admitted(err)
	}
	ids := map[string][]string{} // by campaign
	for _, want := range c.Finding {
		found := false
		for _, f := range known {
			key, err := hex.DecodeString(f.Key)
			if f.ID != want || err != nil {
				continue
			}
			found = true
			if !slices.Contains(ids[f.Campaign], string(key)) {
				ids[f.Campaign] = append(ids[f.Campaign], string(key))
			}
		}
		if !found {
			return nil, fmt.Errorf("no unresolved finding of projection %s is about record %s: `projector reconcile` finds and names them", s.projection.Name, want)
		}
	}
	for _, campaign := range slices.Sorted(maps.Keys(ids)) {
		r := repair.Compare(ctx, s.Comparison, campaign, ids[campaign])
		r.Findings = slices.DeleteFunc(r.Findings, func(f reconcile.Finding) bool { return !slices.Contains(ids[campaign], f.Key) })
		r.Conflicts = slices.DeleteFunc(r.Conflicts, func(f reconcile.Conflict) bool { return !slices.Contains(ids[campaign], f.Key) })
		if err := take(r); err != nil {
			return nil, err
		}
	}
	return reports, nil
}

// add sorts what a comparison has found by what is done about it.
func (p *plan) add(ctx context.Context, s *scales, r *reconcile.Report) error {
	p.Unresolved += r.Unresolved + r.Unopened
	found := map[string]bool{}
	for _, f := range r.Findings {
		found[f.Key] = true
		if repair.ActionFor(f.Kind) == repair.None {
			p.left(f.Kind, f.ID)
		}
	}
	for _, c := range r.Conflicts {
		if !c.Superseded && !found[c.Key] { // what is found is left already, or will be hidden or removed
			p.left(repair.VersionConflict, c.ID)
		}
	}
	todo := slices.DeleteFunc(slices.Clone(r.Findings), func(f reconcile.Finding) bool { return repair.ActionFor(f.Kind) == repair.None })
	for chunk := range slices.Chunk(todo, 500) {
		ids := make([]string, len(chunk))
		for i, f := range chunk {
			ids[i] = f.Key
		}
		rows, err := s.Table.Physical(ctx, r.Campaign, ids)
		if err != nil {
			return err
		}
		for _, f := range chunk {
			action, item := repair.ActionFor(f.Kind), repair.NewItem(r.Campaign, f, rows[f.Key])
			p.items[action] = append(p.items[action], item)
			if action == repair.Remove {
				before, err := repair.Before(item)
				if err != nil {
					return err
				}
				p.Quarantined = append(p.Quarantined, quarantined{r.Campaign, f.ID, before})
			}
		}
	}
	return nil
}

// shownIDs is how many records of a kind are named that are not repaired.
const shownIDs = 10

func (p *plan) left(kind reconcile.Kind, id string) {
	i := slices.IndexFunc(p.Left, func(l leftPart) bool { return l.Kind == kind })
	if i < 0 {
		i = len(p.Left)
		p.Left = append(p.Left, leftPart{Kind: kind, Advice: repair.Advice(kind)})
	}
	p.Left[i].Count++
	if len(p.Left[i].IDs) < shownIDs {
		p.Left[i].IDs = append(p.Left[i].IDs, id)
	}
}

// begin records a repair of one action. The operation is first, and its scope
// says how many records follow: a plan whose process died is known to be short.
func (c repairPlan) begin(ctx context.Context, p *program, r *repairs, s *scales, result *plan, action repair.Action) error {
	items := result.items[action]
	if len(items) == 0 {
		return nil
	}
	if err := r.items.Ensure(ctx); err != nil {
		return admitted(err)
	}
	scope := repairScope{Action: action, Table: result.Table, Kinds: map[string]int{}, Records: len(items)}
	for _, item := range items {
		scope.Kinds[item.Kind]++
		if !slices.Contains(scope.Campaigns, item.Campaign) {
			scope.Campaigns = append(scope.Campaigns, item.Campaign)
		}
	}
	run, err := r.log.Begin(ctx, audit.Operation{
		Kind: audit.Repair, Projection: s.projection.Name, State: audit.Planned, Actor: c.actor(p.environ), Reason: c.Reason,
		Digest: r.cfg.SourceDigest(s.projection), Scope: encoded(scope),
	})
	if err != nil {
		return err
	}
	op := run.Operation()
	for i := range items {
		items[i].Operation = op.ID
	}
	if err := r.items.Add(ctx, items...); err != nil {
		return err
	}
	result.Repairs = append(result.Repairs, plannedPart{op.ID, action, op.State, scope.Kinds, scope.Records})
	return nil
}
