package chschema

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// maxName keeps <name>_conflicts within what a file system takes as a name.
const maxName = 128

// Names are narrower than what the server can quote: one that needs no quotes
// works in every client, dashboard and shell.
var (
	nameRule    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	clusterRule = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
	// placeholderRule finds {word}; {id:UInt64} of a parameterized view and a
	// map literal are left alone.
	placeholderRule = regexp.MustCompile(`\{[A-Za-z_]+\}`)
)

// brokenNames are column names that 26.7 stores without the quotes that they
// need. Read again after a restart, true is then a literal, which changes what
// a view shows, and not is a syntax error, with which the server does not
// start. Found by printing and parsing the DDL with every keyword of the server.
var brokenNames = set("as", "cube", "false", "inf", "infinity", "nan", "not", "rollup", "top", "true")

// CurrentPlaceholder stands in a view's query for the view of current rows.
const CurrentPlaceholder = "{current}"

// Validate reports every problem at once (errors.Join), each with the remedy.
// A valid table can be created, and FINAL over it shows each record once, in
// its highest version, provided that order_by columns beyond the identity never
// change for a record: that one promise is the user's.
func (t Table) Validate() error {
	p := problems{}
	p.name("database", t.Database)
	p.name("table", t.Name)
	if t.Cluster != "" && !clusterRule.MatchString(t.Cluster) {
		p.add("cluster %q: use letters, digits and _ . -", t.Cluster)
	}
	if t.Generation == 0 {
		p.add("generation 0: generations start at 1")
	}
	t.checkColumns(&p)
	t.checkKeys(&p)
	t.checkVersion(&p)
	t.checkDeleted(&p)
	switch c, ok := t.Column(t.Campaign); {
	case t.Campaign == "":
	case !ok:
		p.add("campaign %q: there is no such column", t.Campaign)
	case c.Type.IsNullable():
		p.add("campaign %s: it is %s, but rows of no campaign are backfilled and compared by nobody; make the column %s", c.Name, c.Type, c.Type.withoutNull())
	}
	t.checkPartition(&p)
	t.checkViews(&p)
	t.checkSettings(&p)
	return errors.Join(p...)
}

type problems []error

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

func (p *problems) name(what, name string) bool {
	switch {
	case name == "":
		p.add("%s: a name is missing", what)
	case strings.HasPrefix(name, "_"):
		p.add("%s %q: names with a leading underscore are reserved for lineage columns", what, name)
	case !nameRule.MatchString(name):
		p.add("%s %q: use letters, digits and underscores, a letter first", what, name)
	case len(name) > maxName:
		p.add("%s %q: %d bytes are too long, at most %d are allowed", what, name, len(name), maxName)
	default:
		return true
	}
	return false
}

func (t Table) checkColumns(p *problems) {
	if len(t.Columns) == 0 {
		p.add("columns: the table has none")
	}
	for i, c := range t.Columns {
		if !p.name("column", c.Name) {
			continue
		}
		if slices.Contains(names(t.Columns[:i]), c.Name) {
			p.add("column %s: it is there twice", c.Name)
		}
		if brokenNames[strings.ToLower(c.Name)] {
			p.add("column %s: the server takes the name for a word of SQL when it restarts; choose another", c.Name)
		}
		if c.Type.Kind == KindInvalid {
			p.add("column %s: it has no type", c.Name)
		} else if err := c.Type.check(); err != nil {
			p.add("column %s: %w", c.Name, err)
		}
		if inner, ok := c.Type.suspicious(); ok {
			p.add("column %s: LowCardinality(%s) is larger and slower than %s, and the server refuses it (error 455); write %s",
				c.Name, inner, inner, inner)
		}
	}
}

// suspicious finds a LowCardinality that the server refuses unless
// allow_suspicious_low_cardinality_types is set: anything but text and UUID.
func (t Type) suspicious() (inner Type, found bool) {
	if t.Kind == KindLowCardinality {
		switch base := t.Elem[0].notNullable(); base.Kind {
		case KindString, KindFixedString, KindUUID:
			return Type{}, false
		}
		return t.Elem[0], true
	}
	for _, e := range t.Elem {
		if inner, found := e.suspicious(); found {
			return inner, true
		}
	}
	return Type{}, false
}

func (t Type) notNullable() Type {
	if t.Kind == KindNullable {
		return t.Elem[0]
	}
	return t
}

func (t Table) checkKeys(p *problems) {
	if len(t.Identity) == 0 {
		p.add("identity: name the columns that make one record")
	}
	for i, name := range t.Identity {
		if slices.Contains(t.Identity[:i], name) {
			p.add("identity: %s is there twice", name)
		}
		if !slices.Contains(t.OrderBy, name) {
			p.add("identity: %s is not in order_by: rows that differ in nothing else would replace each other; add it to order_by", name)
		}
	}
	if len(t.OrderBy) == 0 {
		p.add("order_by: name at least the columns of the identity")
	}
	for i, name := range t.OrderBy {
		c, ok := t.Column(name)
		switch {
		case slices.Contains(t.OrderBy[:i], name):
			p.add("order_by: %s is there twice", name)
		case !ok:
			p.add("order_by: there is no column %s", name)
		case name == t.Version || name == t.Deleted:
			p.add("order_by: %s differs between versions of one record, so no version would replace another; leave it out", name)
		default:
			checkKeyType(p, c)
		}
	}
}

// checkKeyType refuses what the server refuses (NULL), and what has more than
// one spelling of one value: NaN and -0.0, and the order of a Map.
func checkKeyType(p *problems, c Column) {
	switch {
	case c.Type.IsNullable():
		p.add("order_by: %s is %s, but a key is never NULL; make the column %s", c.Name, c.Type, c.Type.withoutNull())
	case c.Type.Kind == KindFloat32 || c.Type.Kind == KindFloat64:
		p.add("order_by: %s is %s, whose NaN and -0.0 break the identity of a record; use a Decimal or an integer", c.Name, c.Type)
	case c.Type.Kind == KindArray || c.Type.Kind == KindMap || c.Type.Kind == KindTuple:
		p.add("order_by: %s is %s; a key column holds one plain value", c.Name, c.Type)
	}
}

// withoutNull is the type to write instead of one that holds NULL.
func (t Type) withoutNull() Type {
	if t.Kind == KindLowCardinality {
		return Type{Kind: KindLowCardinality, Elem: []Type{t.Elem[0].notNullable()}}
	}
	return t.notNullable()
}

func (t Table) checkVersion(p *problems) {
	c, ok := t.Column(t.Version)
	switch {
	case t.Version == "":
		p.add("version: name the column by which a newer row replaces an older one")
	case !ok:
		p.add("version %q: there is no such column", t.Version)
	case !c.Type.Kind.IsUnsigned():
		p.add("version %s: it is %s; use an unsigned integer such as UInt64, which every source counts the same way", c.Name, c.Type)
	}
}

func (t Table) checkDeleted(p *problems) {
	c, ok := t.Column(t.Deleted)
	switch {
	case t.Deleted == "":
	case !ok:
		p.add("deleted %q: there is no such column", t.Deleted)
	case c.Type.Kind != KindBool && c.Type.Kind != KindUInt8:
		p.add("deleted %s: it is %s; use Bool or UInt8", c.Name, c.Type)
	}
}

func (t Table) checkViews(p *problems) {
	taken := []string{t.Current(), t.Versions(), t.Conflicts(), t.Freshness(), t.Physical()}
	for _, v := range t.Views {
		if !p.name("view", v.Name) {
			continue
		}
		if slices.Contains(taken, v.Name) {
			p.add("view %s: the name is taken; choose another", v.Name)
		}
		taken = append(taken, v.Name)
		if !strings.Contains(v.Query, CurrentPlaceholder) {
			p.add("view %s: its query does not read %s, the view of current rows", v.Name, CurrentPlaceholder)
		}
		for _, word := range placeholderRule.FindAllString(v.Query, -1) {
			if word != CurrentPlaceholder {
				p.add("view %s: %s is unknown; the only placeholder is %s", v.Name, word, CurrentPlaceholder)
			}
		}
		if strings.HasSuffix(strings.TrimSpace(v.Query), ";") {
			p.add("view %s: its query ends with a semicolon; leave it out", v.Name)
		}
	}
}

func (t Table) checkSettings(p *problems) {
	for _, name := range sortedKeys(t.Settings) {
		if !nameRule.MatchString(name) {
			p.add("settings %q: use the name of a MergeTree setting", name)
		}
	}
}
