package mapping

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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

// branch is a step of the paths while the tree of fields grows.
type branch struct {
	name    string
	steps   []*branch
	columns []int
	schema  bool
	user    string // who reads it as a leaf, for errors
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

// leaf returns the branch for a path, nil after a problem.
func (c *compiler) leaf(path, user string) *branch {
	steps, err := splitPath(path)
	if err != nil {
		c.problem("%s: from %q: %v", user, path, err)
		return nil
	}
	b := c.tree
	for _, step := range steps {
		if b.user != "" {
			c.problem("%s: from %q lies within a field that %s reads as a whole; read either the whole or its parts", user, path, b.user)
			return nil
		}
		i := slices.IndexFunc(b.steps, func(s *branch) bool { return s.name == step })
		if i < 0 {
			i = len(b.steps)
			b.steps = append(b.steps, &branch{name: step})
		}
		b = b.steps[i]
	}
	if len(b.steps) > 0 {
		c.problem("%s: from %q is an object of which other columns read fields; read either the whole or its parts", user, path)
		return nil
	}
	b.user = user
	return b
}

// splitPath takes a dotted path apart.
func splitPath(path string) ([]string, error) {
	var steps []string
	var step strings.Builder
	for i := 0; i < len(path); i++ {
		switch b := path[i]; {
		case b == '.':
			steps = append(steps, step.String())
			step.Reset()
		case b == '\\' && i+1 < len(path) && (path[i+1] == '.' || path[i+1] == '\\'):
			i++
			step.WriteByte(path[i])
		case b == '\\':
			return nil, errors.New(`a backslash stands only before a dot or a backslash; write \\ for one that belongs to the name`)
		default:
			step.WriteByte(b)
		}
	}
	steps = append(steps, step.String())
	switch {
	case path == "":
		return nil, errors.New("no field is named")
	case slices.Contains(steps, ""):
		return nil, errors.New("a step of the path is empty")
	case !utf8.ValidString(path):
		return nil, errors.New("the path is not valid UTF-8, so no event can have it")
	case len(steps) >= maxDepth:
		return nil, errors.New("the path is deeper than any event may be")
	}
	return steps, nil
}

// kinds calls visit for a type and everything within it.
func kinds(t chschema.Type, visit func(chschema.Type)) {
	visit(t)
	for _, e := range t.Elem {
		kinds(e, visit)
	}
}

func (c *compiler) options(spec *Column) *options {
	o := &options{unit: -1, strict: c.plan.spec.Strict}
	times, decimals := false, false
	kinds(spec.Type, func(t chschema.Type) {
		switch t.Kind {
		case chschema.KindDateTime, chschema.KindDateTime64:
			times = true
		case chschema.KindDecimal:
			decimals = true
		}
	})
	if spec.Zone != "" {
		if !times {
			c.problem("column %s: zone is for DateTime and DateTime64, not for %s", spec.Name, spec.Type)
		}
		zone, err := loadZone(spec.Zone)
		if err != nil {
			c.problem("column %s: zone: %w", spec.Name, err)
		}
		o.zone = zone
	}
	if spec.Unit != "" {
		if !times {
			c.problem("column %s: unit is for DateTime and DateTime64, not for %s", spec.Name, spec.Type)
		}
		units := []string{"s", "", "", "ms", "", "", "us", "", "", "ns"}
		if o.unit = slices.Index(units, spec.Unit); o.unit < 0 {
			c.problem("column %s: unit %q: it is s, ms, us or ns", spec.Name, spec.Unit)
		}
	}
	switch spec.Round {
	case "":
	case "half_even":
		if !times && !decimals {
			c.problem("column %s: round is for Decimal, DateTime and DateTime64, not for %s", spec.Name, spec.Type)
		}
		o.halfEven = true
	default:
		c.problem("column %s: round %q: the only rounding is half_even", spec.Name, spec.Round)
	}
	return o
}

// loadZone refuses Local, which would make the rows depend on the machine.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("Local depends on the machine; name a zone such as Europe/Zurich")
	}
	return time.LoadLocation(name)
}

// mapKeys refuses keys that no name of a JSON object can be.
func (c *compiler) mapKeys(column string, t chschema.Type) {
	kinds(t, func(t chschema.Type) {
		if t.Kind != chschema.KindMap {
			return
		}
		switch key := t.Elem[0]; key.Kind {
		case chschema.KindArray, chschema.KindMap, chschema.KindTuple, chschema.KindFloat32, chschema.KindFloat64:
			c.problem("column %s: %s: the names of a JSON object cannot be keys of type %s", column, t, key)
		}
	})
}

func (c *compiler) typeZones(column string, t chschema.Type) {
	kinds(t, func(t chschema.Type) {
		if t.Zone == "" {
			return
		}
		if _, err := loadZone(t.Zone); err != nil {
			c.problem("column %s: %s: %w", column, t, err)
		}
	})
}

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

// node turns a branch into what the walk uses.
func (c *compiler) node(b *branch, path string) *node {
	p := c.plan
	n := &node{path: path, index: make(map[string]int, len(b.steps)), fields: make([]field, len(b.steps)), guess: p.guesses}
	p.guesses += len(b.steps) + 1
	for i, step := range b.steps {
		f := &n.fields[i]
		*f = field{token: token(step.name), name: step.name, path: path + step.name, id: p.fields, columns: step.columns, only: -1, schema: step.schema}
		if len(f.columns) == 1 && !f.schema {
			f.only = f.columns[0]
		}
		p.fields++
		n.index[step.name] = i
		if len(step.steps) > 0 {
			f.child = c.node(step, f.path+".")
		}
		if f.schema {
			p.schema = f
		}
		for _, column := range f.columns {
			p.columns[column].field = f
		}
	}
	return n
}

// token is the name and its colon as nearly every producer writes them. A name
// that needs escapes gets one that no JSON text contains.
func token(name string) string {
	if plain([]byte(name), 0) < len(name) && strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == '"' || r == '\\' }) {
		return "\x00"
	}
	return `"` + name + `":`
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
		if !newColumn(column.typ, column.options).appendJSON(s) || !s.end() {
			c.problem("column %s: default %s: %s (JSON text is needed: a string between quotes)", column.name, strconv.Quote(string(column.fallback)), s.reason)
		}
	}
}
