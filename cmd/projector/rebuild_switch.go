package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/rebuild"
)

type rebuildSwitch struct {
	requester
	output
	Projection string        `help:"Which projection; needed when there are several." placeholder:"NAME"`
	Wait       time.Duration `help:"How long to wait for the stream." default:"1m" placeholder:"DURATION"`
	Yes        bool          `help:"Do not ask."`
}

func (rebuildSwitch) Help() string {
	return `Step 7: lets every view read the new generation, each in one statement, without a moment in
which it does not exist. Refused unless "projector rebuild verify" found everything equal,
the new generation is consumed, and its group has passed what is in the topics now. To go
back before "close", execute what "projector schema print" prints with the old
configuration; "rebuild switch" can then be given again.

Then stop the old deployment, and give "projector rebuild close".

Examples:

    projector --config g2.yaml rebuild switch
    projector --config g2.yaml rebuild switch --yes`
}

// Validate is called by kong.
func (c rebuildSwitch) Validate() error {
	if c.Wait <= 0 {
		return errors.New("--wait must be positive")
	}
	return nil
}

func (c rebuildSwitch) Run(ctx context.Context, p *program) error {
	j, err := newRebuildJob(p, c.Projection, c.requester)
	if err != nil {
		return err
	}
	defer j.close()
	if err := j.find(ctx, rebuild.Switch, rebuild.Switch); err != nil {
		if j.progress.Next() != rebuild.Close {
			return err
		}
		reads, ok, asked := j.reads(ctx)
		if asked != nil || ok && reads == j.scope.To {
			return errors.Join(err, asked)
		}
		j.progress = j.progress.Until(rebuild.Switch) // somebody has switched them back
	}
	if !c.Yes {
		at := j.progress.Steps[rebuild.Compare-1].At
		question := fmt.Sprintf("Let readers of %s see generation %d instead of %d? It was verified %s ago.", j.table.Name, j.scope.To, j.scope.From, time.Since(at).Round(time.Second))
		if found, ok := compared(j.progress); ok && found.FromOld != nil && found.FromOld.Removed > 0 {
			question += fmt.Sprintf(" %s that they see are not in it.", count(int(found.FromOld.Removed), "record"))
		}
		if err := p.confirm(question); err != nil {
			return err
		}
	}
	err = j.hold(ctx, func(ctx context.Context) error {
		return j.step(ctx, rebuild.Switch, func(ctx context.Context) (any, error) { return j.switchViews(ctx, c.Wait) })
	})
	return j.finish(c.json(), err)
}

func (j *rebuildJob) switchViews(ctx context.Context, wait time.Duration) (any, error) {
	if err := chschema.Check(ctx, j.conn, j.table); err != nil {
		return nil, err
	}
	if _, err := j.caughtUp(ctx, wait); err != nil {
		return nil, err
	}
	if err := chschema.Apply(ctx, j.conn, chschema.SwitchViews(j.table), nil); err != nil {
		return nil, err
	}
	reads, ok, err := j.reads(ctx)
	if err == nil && (!ok || reads != j.scope.To) {
		err = fmt.Errorf("%s still reads generation %d: something else has replaced it; give the command again", j.table.Current(), reads)
	}
	return map[string]any{"views": len(j.table.Definitions()), "from": j.scope.From, "to": j.scope.To}, err
}

// holdTime is how long closed tables are kept, so that what no comparison has
// found can still be looked up, unless --hold says otherwise.
const holdTime = 7 * 24 * time.Hour

type rebuildClose struct {
	requester
	output
	Projection string         `help:"Which projection; needed when there are several." placeholder:"NAME"`
	Drop       bool           `help:"Drop the closed tables, after the hold time."`
	Hold       *time.Duration `help:"With --drop: how long the tables must have been closed (default 168h)." placeholder:"DURATION"`
	Yes        bool           `help:"Do not ask."`
}

func (rebuildClose) Help() string {
	return `Step 8: gives every older table of the projection a constraint that none of its writers can
meet. A deployment that still writes to it ends with exit code 1 (ClickHouse error 469) and
commits nothing more. Rows stay; the views no longer read them.

With --drop, after "projector rebuild verify" has compared the new generation once more and
the hold time is over, it drops these tables, and records how many rows each had.

Examples:

    projector --config g2.yaml rebuild close
    projector --config g2.yaml rebuild close --drop --hold 336h`
}

// Validate is called by kong.
func (c rebuildClose) Validate() error {
	switch {
	case c.Hold == nil:
	case *c.Hold < 0:
		return errors.New("--hold must not be negative")
	case !c.Drop: // or somebody believes that the close itself waits
		return errors.New("--hold says when --drop may drop; give --drop as well, or leave it out")
	}
	return nil
}

func (c rebuildClose) Run(ctx context.Context, p *program) error {
	j, err := newRebuildJob(p, c.Projection, c.requester)
	if err != nil {
		return err
	}
	defer j.close()
	if c.Drop {
		if err := j.find(ctx, rebuild.Confirm+1, rebuild.Confirm+1); err != nil {
			return err
		}
		return j.finish(c.json(), j.drop(ctx, c))
	}
	if err := j.find(ctx, rebuild.Close, rebuild.Close); err != nil {
		return err
	}
	reads, _, err := j.reads(ctx)
	if err != nil {
		return err
	}
	if reads != j.scope.To {
		return fmt.Errorf("the views read generation %d and not %d: somebody has switched them back; closing its table would stop what readers see", reads, j.scope.To)
	}
	list, err := j.generationsBelow(ctx)
	if err != nil {
		return err
	}
	if err := j.unread(ctx, list); err != nil {
		return err
	}
	if err := c.ask(ctx, j, list); err != nil {
		return err
	}
	err = j.hold(ctx, func(ctx context.Context) error { return j.step(ctx, rebuild.Close, j.closeOlder) })
	return j.finish(c.json(), err)
}

// ask tells whom closing would end.
func (c rebuildClose) ask(ctx context.Context, j *rebuildJob, list []rebuild.Generation) error {
	group := groupOf(j.cfg, *j.projection, j.scope.From)
	members, err := j.members(ctx, group)
	if err != nil {
		return err
	}
	warning := ""
	if len(members) > 0 {
		warning = fmt.Sprintf(" Group %s still has %s, which will fail: %v.", group, count(len(members), "member"), members)
		j.log.Warn().Str("group", group).Strs("members", members).Msg("the old generation is still consumed: its process will end with exit code 1")
	}
	if c.Yes {
		return nil
	}
	return j.p.confirm(fmt.Sprintf("Close %s to every writer?%s", tablesOf(list), warning))
}

// unread makes sure that no view reads these tables: its readers would see rows
// that never change again, and none at all after the drop.
func (j *rebuildJob) unread(ctx context.Context, list []rebuild.Generation) error {
	views, err := rebuild.Readers(ctx, j.conn, j.table, list)
	if err == nil && len(views) > 0 {
		err = fmt.Errorf("%s: still read; point them at generation %d (`projector schema print` with this configuration prints the projection's own views), or drop them, and give the command again; nothing was changed",
			strings.Join(views, ", "), j.scope.To)
	}
	return err
}

// closeOlder raises the fence of every older table that exists: also of those
// that a withdrawn rebuild has left.
func (j *rebuildJob) closeOlder(ctx context.Context) (any, error) {
	list, err := j.generationsBelow(ctx)
	if err != nil {
		return nil, err
	}
	for i, g := range list {
		if err := j.conn.Exec(ctx, j.older(g.Number).RaiseFence(j.scope.To)); err != nil {
			return nil, fmt.Errorf("close %s: %w", g.Table, err)
		}
		if i == 0 {
			reached("8 first")
		}
	}
	return map[string]any{"closed": list}, nil
}

// drop announces what it is about to remove, with its rows, and then removes
// it: a process that dies in between leaves the count.
func (j *rebuildJob) drop(ctx context.Context, c rebuildClose) error {
	if j.op.State != audit.Verified {
		return fmt.Errorf("rebuild %s is %s: nothing is dropped before `projector rebuild verify` has found the new generation right", j.op.ID, j.op.State)
	}
	hold := holdTime
	if c.Hold != nil {
		hold = *c.Hold
	}
	if closed := time.Since(j.progress.Steps[rebuild.Close-1].At); closed < hold {
		return fmt.Errorf("the old tables were closed %s ago and are held for %s: wait, or give a shorter --hold", closed.Round(time.Second), hold)
	}
	list, err := j.generationsBelow(ctx)
	if err != nil {
		return err
	}
	if err := j.unread(ctx, list); err != nil {
		return err
	}
	if len(list) > 0 && !c.Yes {
		if err := j.p.confirm(fmt.Sprintf("Drop %s for good?", tablesOf(list))); err != nil {
			return err
		}
	}
	save := func(edit func(p *rebuild.Progress)) error {
		p := j.progress
		p.Dropped = append([]rebuild.Dropped{}, p.Dropped...)
		edit(&p)
		op, err := j.record.Change(ctx, j.op.ID, j.actor, audit.Verified, func(op *audit.Operation) { op.Checkpoint = encoded(p) })
		if err == nil {
			j.op, j.progress = op, p
		}
		return err
	}
	for _, g := range list {
		err := save(func(p *rebuild.Progress) {
			for _, d := range p.Dropped {
				if d.Table == g.Table {
					return
				}
			}
			p.Dropped = append(p.Dropped, rebuild.Dropped{Table: g.Table, Rows: g.Rows})
		})
		if err != nil {
			return err
		}
		reached("drop announced")
		if err := j.conn.Exec(ctx, j.older(g.Number).Drop()); err != nil {
			return fmt.Errorf("drop %s: %w", g.Table, err)
		}
		reached("drop done")
	}
	now := time.Now().UTC()
	return save(func(p *rebuild.Progress) {
		for i := range p.Dropped {
			if p.Dropped[i].At == nil {
				p.Dropped[i].At = &now
			}
		}
	})
}
