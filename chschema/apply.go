package chschema

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Apply executes the changes in order and calls log, if not nil, with each
// statement before it runs. It executes nothing if one of them is refused.
// Every statement can be repeated: an apply that was cut off, or that two
// deployments run at once, is completed by the next.
func Apply(ctx context.Context, conn Conn, changes []Change, log func(statement string)) error {
	if err := RefusedError(changes); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	exec := func(statement string) error {
		if log != nil {
			log(statement)
		}
		return conn.Exec(ctx, statement)
	}
	for _, c := range changes {
		for _, statement := range c.Statements {
			if err := exec(statement); err != nil {
				return fmt.Errorf("%s: %s: %w", c.Object, c.Summary, err)
			}
		}
		if c.seal == nil {
			continue
		}
		if err := c.seal.apply(ctx, conn, exec); err != nil {
			return fmt.Errorf("%s: mark the view: %w", c.Object, err)
		}
	}
	return nil
}

// sealAttempts bounds how often another apply may replace the view between
// reading it back and marking it.
const sealAttempts = 8

// apply reads back what the server made of the view and puts its hash into the
// comment. A view that another apply has replaced meanwhile is marked if it is
// the same one: the mark's first hash came with the view, in one statement.
func (s *seal) apply(ctx context.Context, conn Conn, exec func(string) error) (err error) {
	for range sealAttempts {
		var rows []Object
		err = conn.Select(ctx, &rows, fmt.Sprintf("SELECT as_select, comment FROM system.tables WHERE database = %s AND name = %s",
			QuoteString(s.table.Database), QuoteString(s.view.Name)))
		if err != nil {
			return err
		}
		if len(rows) != 1 || !strings.Contains(rows[0].Comment, s.table.wantedHash(s.view)) {
			return errors.New("something else has replaced it meanwhile; apply again")
		}
		err = exec(fmt.Sprintf("ALTER TABLE %s%s MODIFY COMMENT %s", s.table.Qualified(s.view.Name), s.table.onCluster(),
			QuoteString(s.table.mark(s.view, rows[0].Query))))
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// SwitchViews returns the changes that point all views at this generation's
// table, whichever they read now: the last step of a rebuild.
func SwitchViews(t Table) []Change {
	var changes []Change
	for _, d := range t.Definitions() {
		changes = append(changes, Change{
			Verdict: Online, Object: d.Name, Summary: fmt.Sprintf("read generation %d", t.Generation),
			Statements: []string{t.CreateView(d)}, seal: &seal{t, d},
		})
	}
	return changes
}

// ErrNoTable is what [Check] returns, wrapped, while the table does not exist:
// a consumer may wait for it.
var ErrNoTable = errors.New("does not exist; run `projector schema apply`")

// DesignError is what [Check] returns for a table that rows must not be written
// to. Waiting does not cure it.
type DesignError struct {
	Table string // with the database
	Err   error  // everything that is wrong, each with its remedy
}

func (e *DesignError) Error() string { return "table " + e.Table + ": " + e.Err.Error() }
func (e *DesignError) Unwrap() error { return e.Err }

// Check is what a consumer calls before it writes. An invalid configuration, an
// unsafe or drifted table and a replica that differs are a [DesignError], a
// missing table is [ErrNoTable], and anything else is trouble with the server.
//
// Views and settings do not stop a consumer, nor does a column or a name of an
// Enum that the configuration lacks: a deployment that is rolled back must
// start on the newer one's table.
func Check(ctx context.Context, conn Conn, t Table) error {
	name := t.Database + "." + t.Physical()
	if err := t.Validate(); err != nil {
		return &DesignError{name, err}
	}
	state, err := inspectTable(ctx, conn, t)
	if err != nil {
		return err
	}
	var wrong []error
	for _, c := range DiffTable(t, state) {
		switch {
		case !c.Blocks, c.Verdict == Online && state.Table == nil:
		case c.Verdict == Online:
			wrong = append(wrong, fmt.Errorf("%s: it needs a change: %s; run `projector schema apply`", c.Object, c.Summary))
		default:
			wrong = append(wrong, errors.New(c.String()))
		}
	}
	switch {
	case len(wrong) > 0:
		return &DesignError{name, errors.Join(wrong...)}
	case state.Table == nil:
		if t.Generation > 1 {
			return fmt.Errorf("table %s %w, or `projector rebuild start` if an older generation serves readers", name, ErrNoTable)
		}
		return fmt.Errorf("table %s %w", name, ErrNoTable)
	}
	return nil
}

// CheckKept is [Check] while rows are written: it looks for what no insert would
// tell, a table that takes rows and does not keep them as they are. Of a missing
// table or column and of a raised fence, inserts tell. A finding is a
// [DesignError], anything else is trouble with the server.
func CheckKept(ctx context.Context, conn Conn, t Table) error {
	state, err := inspectTable(ctx, conn, t)
	if err != nil || state.Table == nil {
		return err
	}
	d := &differ{table: t, state: state}
	if d.engine() {
		d.keys()
		d.columns()
	}
	var wrong []error
	for _, c := range d.changes {
		if c.Verdict == Refused {
			wrong = append(wrong, errors.New(c.String()))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return &DesignError{t.Database + "." + t.Physical(), errors.Join(wrong...)}
}
