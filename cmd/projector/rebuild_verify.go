package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/rebuild"
	"github.com/chprojector/projector/internal/reconcile"
)

type rebuildVerify struct {
	requester
	output
	Projection string        `help:"Which projection; needed when there are several." placeholder:"NAME"`
	Wait       time.Duration `help:"How long to wait for the stream." default:"10m" placeholder:"DURATION"`
	Settle     time.Duration `help:"How long to wait for events under way before a difference counts." default:"15s" placeholder:"DURATION"`
}

func (rebuildVerify) Help() string {
	return `Steps 5 and 6: waits until the new generation's consumer group has passed everything that
is in the topics now, compares every campaign with the source, field by field, and counts
how the new generation differs from the one that readers see. It may be repeated. Only
after it has found everything equal can the views be switched.

After "close" it is step 9: the same comparison once more, days later, say.

Exit codes: 0 all campaigns are equal; 1 something could not be read; 3 differences, which
"projector reconcile" of the named campaigns with the same configuration lists; 4 inconclusive.

Examples:

    projector --config g2.yaml rebuild verify
    projector --config g2.yaml rebuild verify --wait 1h -o json`
}

// Validate is called by kong.
func (c rebuildVerify) Validate() error {
	if c.Wait <= 0 || c.Settle <= 0 {
		return errors.New("--wait and --settle must be positive")
	}
	return nil
}

// comparison is what a verification has found.
type comparison struct {
	Campaigns    int                  `json:"campaigns"`
	Equal        int                  `json:"equal"`
	Different    []string             `json:"different"`    // the first campaigns
	Inconclusive []string             `json:"inconclusive"` // the first campaigns
	Failed       []string             `json:"failed"`       // the first campaigns
	Live         uint64               `json:"live"`         // records of the source
	Deleted      uint64               `json:"deleted"`
	FromOld      *rebuild.Difference  `json:"from_old"` // nil: the old table has another design or is gone
	ByCampaign   []rebuild.Difference `json:"by_campaign,omitempty"`
	Seconds      float64              `json:"seconds"`
}

// listed bounds the campaigns that the record names.
const listed = 100

func (c rebuildVerify) Run(ctx context.Context, p *program) error {
	j, err := newRebuildJob(p, c.Projection, c.requester)
	if err != nil {
		return err
	}
	defer j.close()
	if err := j.find(ctx, rebuild.CatchUp, rebuild.Confirm+1); err != nil {
		return err
	}
	switch j.progress.Next() {
	case rebuild.CatchUp, rebuild.Compare, rebuild.Switch:
		err = j.hold(ctx, func(ctx context.Context) error { return j.verify(ctx, c) })
	case rebuild.Close:
		return &rebuild.OrderError{Operation: j.op.ID, Asked: rebuild.Confirm, Next: rebuild.Close}
	default:
		err = j.confirm(ctx, c)
	}
	return j.finish(c.json(), err)
}

// verify is steps 5 and 6. An earlier verification counts no longer.
func (j *rebuildJob) verify(ctx context.Context, c rebuildVerify) error {
	if j.progress.Next() > rebuild.CatchUp {
		if err := j.save(ctx, j.progress.Until(rebuild.CatchUp), audit.Running); err != nil {
			return err
		}
	}
	err := j.step(ctx, rebuild.CatchUp, func(ctx context.Context) (any, error) { return j.caughtUp(ctx, c.Wait) })
	if err != nil {
		return err
	}
	return j.step(ctx, rebuild.Compare, func(ctx context.Context) (any, error) {
		found, answer := j.compare(ctx, c)
		if found == nil {
			return nil, answer
		}
		if err := j.run.Advance(ctx, func(op *audit.Operation) { op.Outcome = encoded(found) }); err != nil {
			return nil, err
		}
		return found, answer
	})
}

// confirm is step 9: it changes nothing but the record.
func (j *rebuildJob) confirm(ctx context.Context, c rebuildVerify) error {
	j.log.Info().Str("operation", j.op.ID).Int("step", int(rebuild.Confirm)).Int("of", rebuild.Steps).Msg(rebuild.Confirm.String())
	reached("9 begun")
	if _, err := j.caughtUp(ctx, c.Wait); err != nil {
		return err
	}
	found, answer := j.compare(ctx, c)
	if found == nil || len(found.Failed) > 0 || len(found.Inconclusive) > 0 && len(found.Different) == 0 {
		return answer
	}
	reached("9 done")
	state, p := audit.Verified, j.progress
	if answer != nil {
		state = audit.Refuted
		p = p.Until(rebuild.Confirm)
	} else {
		p = p.Until(rebuild.Confirm).Add(rebuild.Done{At: time.Now().UTC(), By: j.actor, Detail: encoded(found)})
	}
	op, err := j.record.Change(ctx, j.op.ID, j.actor, state, func(op *audit.Operation) {
		op.Verification, op.Checkpoint = encoded(found), encoded(p)
	})
	if err != nil {
		return errors.Join(err, answer)
	}
	reached("9 recorded")
	j.op, j.progress = op, p
	return answer
}

// caughtUp waits until the new group has passed what is in the topics now.
func (j *rebuildJob) caughtUp(ctx context.Context, patience time.Duration) (any, error) {
	group := j.cfg.Group(j.projection)
	asked := ctx
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream := lag{j.admin, group, j.projection.Topics}
	mark, err := stream.Mark(ctx)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var behind int64
	var members []string
	for waited := 0; ; waited++ {
		now, err := stream.Behind(ctx, mark)
		if err == nil {
			behind = now
			members, err = j.members(ctx, group)
		}
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		if behind == 0 && len(members) > 0 {
			return map[string]int{"members": len(members)}, nil
		}
		if waited%10 == 0 {
			j.log.Info().Str("group", group).Int64("behind", behind).Int("members", len(members)).Msg("waiting for the stream")
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		if asked.Err() != nil {
			return nil, context.Cause(asked)
		}
		if len(members) == 0 {
			return nil, fmt.Errorf("nobody consumes as group %s: run `projector run` with this configuration beside the deployment that serves", group)
		}
		return nil, fmt.Errorf("group %s is still %d events behind after %s: wait for longer with --wait, or see `projector status` for what holds it up", group, behind, patience)
	}
}

// members names who consumes for a group.
func (j *rebuildJob) members(ctx context.Context, group string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return j.admin.Members(ctx, group)
}

// compare compares every campaign with the source and with the old generation.
// The error is the answer; without a comparison, why there is none.
func (j *rebuildJob) compare(ctx context.Context, c rebuildVerify) (*comparison, error) {
	rules, err := j.cfg.Contract(j.projection)
	if err != nil {
		return nil, usageError{err, ""}
	}
	began := time.Now()
	how := comparing
	how.All, how.Settle = true, c.Settle
	s, err := how.open(ctx, j.p, j.cfg, j.projection, rules)
	if err != nil {
		return nil, err
	}
	defer s.close()
	older := j.older(j.scope.From)
	common, err := rebuild.Common(ctx, j.conn, older, j.table)
	if err != nil {
		return nil, err
	}
	tables := []*reconcile.Table{s.Table}
	if common != nil { // what readers see, and neither the source nor the new table has, they are about to lose
		tables = append(tables, j.olderSide(rules))
	}
	campaigns, err := s.campaigns(ctx, tables...)
	if err != nil {
		return nil, err
	}
	found := &comparison{Campaigns: len(campaigns), Different: []string{}, Inconclusive: []string{}, Failed: []string{}}
	var reports []*reconcile.Report
	var unrecorded error
	for i, campaign := range campaigns {
		j.log.Info().Str("campaign", campaign).Int("number", i+1).Int("of", len(campaigns)).Msg("comparing")
		r, err := s.compare(ctx, campaign)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		unrecorded = errors.Join(unrecorded, err)
		found.count(r)
		r.Findings = nil // recorded; only the verdict is needed here
		reports = append(reports, r)
	}
	if unrecorded != nil {
		return nil, unrecorded
	}
	if common != nil {
		if err := j.differ(ctx, found, older, common, campaigns); err != nil {
			return nil, err
		}
	}
	found.Seconds = time.Since(began).Seconds()
	answer := verdict(reports)
	if answer == nil && found.Live+found.Deleted == 0 { // an empty table is equal to an empty source
		return nil, errors.New("the source has no record of any campaign, so nothing was compared; is it the right database?")
	}
	if _, no := errors.AsType[answerNo](answer); no {
		answer = answerNo{fmt.Sprintf("%s; `projector reconcile --campaign %s` with this configuration lists how", answer.Error(), strings.Join(found.Different[:min(len(found.Different), shownIDs)], ","))}
	}
	return found, answer
}

func (c *comparison) count(r *reconcile.Report) {
	c.Live, c.Deleted = c.Live+r.Source.Live, c.Deleted+r.Source.Deleted
	list := map[reconcile.Verdict]*[]string{reconcile.Different: &c.Different, reconcile.Inconclusive: &c.Inconclusive, reconcile.Failed: &c.Failed}[r.Verdict]
	if list == nil {
		c.Equal++
	} else if len(*list) < listed {
		*list = append(*list, r.Campaign)
	}
}

// differ counts how the new generation differs from the one that it replaces.
func (j *rebuildJob) differ(ctx context.Context, found *comparison, older chschema.Table, common, campaigns []string) error {
	found.FromOld = &rebuild.Difference{}
	for _, campaign := range campaigns {
		d, err := rebuild.Differ(ctx, j.conn, older, j.table, common, campaign)
		if err != nil {
			return err
		}
		found.FromOld.Add(d)
		if d.Added+d.Removed+d.Versions+d.Contents > 0 && len(found.ByCampaign) < listed {
			found.ByCampaign = append(found.ByCampaign, d)
		}
	}
	return nil
}

// compared is what the last comparison found, if there was one.
func compared(p rebuild.Progress) (c comparison, ok bool) {
	for _, d := range slices.Backward(p.Steps) {
		if (d.Step == rebuild.Compare || d.Step == rebuild.Confirm) && json.Unmarshal(d.Detail, &c) == nil {
			return c, true
		}
	}
	return c, false
}
