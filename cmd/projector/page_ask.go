package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
)

// drift is what `schema check` finds, as far as this user may see it. A
// consumer with the least rights sees its table alone, and a view that is
// hidden from it looks as if it were missing.
func (q *questions) drift(ctx context.Context, p *config.Projection) (difference, error) {
	control, table := q.control, q.cfg.Table(p)
	d, state, err := compare(ctx, control, table)
	const accessDenied = 497
	if clickhouse.Code(err) == accessDenied {
		d = difference{Table: table.Physical(), Changes: []chschema.Change{}, Hidden: q.hidden("views and settings")}
		err = chschema.Check(ctx, control, table)
	}
	if err != nil {
		return difference{}, admitted(fmt.Errorf("ask ClickHouse: %w", err))
	}
	if d.Hidden != "" {
		return d, nil
	}
	names, err := hiddenViews(ctx, control, table, state)
	if err != nil {
		return difference{}, admitted(fmt.Errorf("ask ClickHouse: %w", err))
	}
	if len(names) > 0 {
		d.Changes = slices.DeleteFunc(d.Changes, func(c chschema.Change) bool { return slices.Contains(names, c.Object) })
		d.Hidden = q.hidden(strings.Join(names, ", "))
	}
	return d, nil
}

func (q *questions) hidden(what string) string {
	return fmt.Sprintf("%s: not visible to %s; run `projector schema check` as the user who applies the schema", what, q.cfg.ClickHouse.Username)
}

// hiddenViews are the views that are not there for this user, and would not be
// if they existed.
func hiddenViews(ctx context.Context, control control, t chschema.Table, state *chschema.State) (names []string, err error) {
	for _, v := range t.Definitions() {
		if _, ok := state.Objects[v.Name]; ok {
			continue
		}
		visible, err := granted(ctx, control, "SHOW TABLES", t.Qualified(v.Name))
		if err != nil {
			return nil, err
		}
		if !visible {
			names = append(names, v.Name)
		}
	}
	return names, nil
}

// granted reports whether this user has a right on an object, which need not
// exist.
func granted(ctx context.Context, control control, right, object string) (bool, error) {
	var rows []struct {
		Granted uint8 `ch:"result"`
	}
	err := control.Select(ctx, &rows, "CHECK GRANT "+right+" ON "+object)
	return len(rows) == 1 && rows[0].Granted == 1, err
}

// operations lists what writes to the tables beside the stream and is not
// settled: what goes on, what failed, and what waits for a person.
func (q *questions) operations(ctx context.Context) ([]pageOperation, error) {
	list, err := audit.Open(q.control, q.cfg.Audit()).List(ctx, audit.Filter{Unsettled: true})
	if err != nil {
		return nil, admitted(fmt.Errorf("ask ClickHouse: %w", err))
	}
	told, now := make([]pageOperation, len(list)), time.Now()
	for i, op := range list {
		told[i] = tell(op, now)
	}
	return told, nil
}
