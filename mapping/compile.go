package mapping

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/chprojector/projector/chschema"
)

// maxColumns bounds the columns, and so the fields of one object that are
// read, whose numbers are kept in 16 bits.
const maxColumns = 10_000

// Compile checks a Spec and returns its Plan. The error holds every problem
// found ([errors.Join]), each naming the column and the remedy.
func Compile(spec Spec) (*Plan, error) {
	spec.Columns = slices.Clone(spec.Columns)
	spec.Identity = slices.Clone(spec.Identity)
	spec.SchemaVersion.Accept = slices.Clone(spec.SchemaVersion.Accept)
	c := &compiler{plan: &Plan{spec: spec, version: -1}, tree: &branch{}}
	if n := len(spec.Columns); n == 0 || n > maxColumns {
		c.problem("columns: a projection has 1 to %d, not %d", maxColumns, n)
	}
	for i := range spec.Columns {
		c.column(&spec.Columns[i])
	}
	c.schemaVersion()
	c.identity()
	c.version()
	c.deleted()
	if len(c.problems) == 0 {
		c.plan.root = c.node(c.tree, "")
		c.defaults()
	}
	if err := errors.Join(c.problems...); err != nil {
		return nil, err
	}
	return c.plan, nil
}

type compiler struct {
	plan     *Plan
	tree     *branch
	problems []error
}

func (c *compiler) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf(format, args...))
}

func (c *compiler) column(spec *Column) {
	p := c.plan
	c.name(spec.Name)
	if spec.Type.Kind == chschema.KindInvalid {
		c.problem("column %s: no type", spec.Name)
		return
	}
	if _, err := chschema.ParseType(spec.Type.String()); err != nil {
		c.problem("column %s: %w", spec.Name, err)
		return
	}
	index := len(p.columns)
	p.columns = append(p.columns, planColumn{
		name:     spec.Name,
		typ:      spec.Type,
		options:  c.options(spec),
		fallback: spec.Default,
	})
	c.mapKeys(spec.Name, spec.Type)
	c.typeZones(spec.Name, spec.Type)
	if leaf := c.leaf(spec.From, "column "+spec.Name); leaf != nil {
		leaf.columns = append(leaf.columns, index)
	}
}

func (c *compiler) name(name string) {
	switch {
	case name == "":
		c.problem("column without a name (of %d columns, number %d)", len(c.plan.spec.Columns), len(c.plan.columns)+1)
	case name[0] == '_':
		c.problem("column %s: names that begin with _ are kept for the lineage columns; use another name", name)
	case !isIdentifier(name):
		c.problem("column %q: a name consists of letters, digits and _ and begins with a letter", name)
	case slices.ContainsFunc(c.plan.columns, func(o planColumn) bool { return o.name == name }):
		c.problem("column %s: there are two columns of this name", name)
	}
}

func isIdentifier(name string) bool {
	for i := range len(name) {
		b := name[i]
		if !(b|0x20 >= 'a' && b|0x20 <= 'z' || b == '_' || i > 0 && b >= '0' && b <= '9') {
			return false
		}
	}
	return name != ""
}

// defaults refuses a default that its column would refuse in an event.
func (c *compiler) defaults() {
	for i := range c.plan.columns {
		column := &c.plan.columns[i]
		if column.fallback == nil {
			continue
		}
		column.fallback = bytes.TrimLeft(column.fallback, " \t\r\n")
		s := &scanner{}
		s.begin(column.fallback)
		switch ok := newColumn(column.typ, column.options).appendJSON(s) && s.end(); {
		case !ok:
			c.problem("column %s: default %q: %s (JSON text is needed: a string between quotes)", column.name, column.fallback, s.reason)
		case s.unknownFields > 0:
			c.problem("column %s: default %q: it has fields that %s has not", column.name, column.fallback, column.typ)
		}
	}
}
