package mapping

import (
	"slices"

	"github.com/chprojector/projector/chschema"
)

func (c *compiler) schemaVersion() {
	v := c.plan.spec.SchemaVersion
	if v.From == "" {
		if len(v.Accept) > 0 {
			c.problem("schema_version: accept without from; name the field that holds the version")
		}
		return
	}
	if len(v.Accept) == 0 {
		c.problem("schema_version: from without accept; list the versions that this mapping reads")
	}
	if leaf := c.leaf(v.From, "schema_version"); leaf != nil {
		leaf.schema = true
	}
}

// find returns the index of a column that must exist, -1 after a problem.
func (c *compiler) find(role, name string) int {
	i := slices.IndexFunc(c.plan.columns, func(o planColumn) bool { return o.name == name })
	if i < 0 {
		c.problem("%s: there is no column %q", role, name)
	}
	return i
}

func (c *compiler) identity() {
	p := c.plan
	if len(p.spec.Identity) == 0 {
		c.problem("identity: name the columns that say which record a row is about")
	}
	for n, name := range p.spec.Identity {
		if slices.Contains(p.spec.Identity[:n], name) {
			c.problem("identity: column %s is named twice", name)
			continue
		}
		i := c.find("identity", name)
		if i < 0 {
			continue
		}
		switch t := p.columns[i].typ; {
		case t.IsNullable():
			c.problem("identity: column %s is %s; a record without an identity cannot be replaced, so use %s", name, t, withoutNull(t))
		case !comparesExactly(t):
			c.problem("identity: column %s is %s; use an integer, a string, a UUID or another type that compares exactly", name, t)
		}
		if name == p.spec.Version {
			c.problem("identity: column %s is the version; the versions of one record share their identity", name)
		}
		p.identity = append(p.identity, i)
	}
}

// comparesExactly excludes what has two texts for one value, and containers,
// of which the server has no order that a key should rely on.
func comparesExactly(t chschema.Type) bool {
	switch t.Kind {
	case chschema.KindFloat32, chschema.KindFloat64, chschema.KindArray, chschema.KindMap, chschema.KindTuple:
		return false
	case chschema.KindLowCardinality:
		return comparesExactly(t.Elem[0])
	}
	return true
}

func withoutNull(t chschema.Type) chschema.Type {
	if t.Kind == chschema.KindNullable {
		return t.Elem[0]
	}
	t.Elem = []chschema.Type{t.Elem[0].Elem[0]}
	return t
}

// version allows only what ReplacingMergeTree compares as a number, and of
// that only plain counters: two events within one tick of a clock would be a
// conflict.
func (c *compiler) version() {
	p := c.plan
	if p.spec.Version == "" {
		c.problem("version: name the column that says which of two rows of one record is newer")
		return
	}
	if p.version = c.find("version", p.spec.Version); p.version < 0 {
		return
	}
	switch t := p.columns[p.version].typ; t.Kind {
	case chschema.KindUInt8, chschema.KindUInt16, chschema.KindUInt32, chschema.KindUInt64:
	default:
		c.problem("version: column %s is %s; a version is a UInt64 (or UInt8, UInt16, UInt32), never NULL", p.spec.Version, t)
	}
}

func (c *compiler) deleted() {
	p := c.plan
	if p.spec.Deleted == "" {
		return
	}
	i := c.find("deleted", p.spec.Deleted)
	if i < 0 {
		return
	}
	switch t := p.columns[i].typ; t.Kind {
	case chschema.KindBool, chschema.KindUInt8:
	default:
		c.problem("deleted: column %s is %s; it must be Bool or UInt8", p.spec.Deleted, t)
	}
	if p.spec.Deleted == p.spec.Version {
		c.problem("deleted: column %s is the version; they are two columns", p.spec.Deleted)
	}
	if slices.Contains(p.spec.Identity, p.spec.Deleted) {
		c.problem("deleted: column %s is part of the identity; a deletion could then never replace the row it deletes", p.spec.Deleted)
	}
}
