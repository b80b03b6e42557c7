package contract

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/chprojector/projector/chschema"
)

// Class is what kind of value a field holds.
type Class string

// The classes, as the configuration spells them.
const (
	Integer Class = "integer"
	Decimal Class = "decimal"
	Instant Class = "instant"
	String  Class = "string"
	Bool    Class = "bool"
	Enum    Class = "enum"
)

// Field is one compared value of a record.
type Field struct {
	Column   string // in ClickHouse
	Source   string // expression over the tables of the rows query
	Deletion string // the same over the deletions query; "" = Source
	Event    string // path in an event, dots between names; "" = the rows query's name for Source
	Class    Class

	Scale     int    // Decimal: digits after the point
	Precision int    // Instant: digits of a second
	Zone      string // Instant: that of a time without one; a name, an offset such as +08:00, or "" for UTC
	Unit      string // Instant: what a number in an event counts: s, ms, us or ns
	Default   []byte // JSON of what a missing field of an event stands for; nil = null
}

// Spec is a contract before it is checked.
type Spec struct {
	Identity  []string // columns, as in the projection
	Version   string
	Deleted   string // "" = records are never deleted
	Campaign  string
	OrderBy   []string
	Columns   []chschema.Column // of the table
	Rows      string            // the configured queries; "" = there is no MySQL to compare with
	Deletions string
	Fields    []Field

	SchemaVersion string  // path of the field that tells an event's schema; "" = none
	Accept        []int64 // the schemas that are read
}

// Contract is a checked Spec. It is immutable.
type Contract struct {
	fields    []field
	identity  []int // places in fields
	version   int
	campaign  int // -1: not among the fields
	deleted   int // -1: not among the fields
	spec      Spec
	rows      *Query // nil: none
	deletions *Query
	schema    []string // path of the field that tells an event's schema; nil: none
}

// field is a Field with what was found out about it.
type field struct {
	Field
	kind     chschema.Type // of the column, without LowCardinality and Nullable
	zone     zone
	path     []string // in an event; nil: unknown
	missing  Value    // what an event says that lacks the path
	nullable bool
}

// Compile checks a contract by itself: queries that can be rewritten, columns
// that exist, classes that fit their types. What only MySQL knows is checked by
// [Contract.MySQL]. All that is wrong is reported, each with its place.
func Compile(spec Spec) (*Contract, error) {
	c := &Contract{spec: spec, version: -1, campaign: -1, deleted: -1}
	var errs []error
	if spec.Rows != "" {
		var err error
		if c.rows, err = parseCampaign(spec.Rows); err != nil {
			errs = append(errs, fmt.Errorf("rows: %w", err))
		}
		if spec.Deletions != "" {
			if c.deletions, err = parseCampaign(spec.Deletions); err != nil {
				errs = append(errs, fmt.Errorf("deletions: %w", err))
			}
		}
	}
	if spec.SchemaVersion != "" {
		var err error
		if c.schema, err = parsePath(spec.SchemaVersion); err != nil {
			errs = append(errs, fmt.Errorf("schema_version: %w", err))
		}
	}
	for i, f := range spec.Fields {
		compiled, err := c.compile(f)
		if err != nil {
			errs = append(errs, fmt.Errorf("fields[%d] (%s): %w", i, f.Column, err))
		}
		if slices.ContainsFunc(c.fields, func(other field) bool { return other.Column == f.Column }) {
			errs = append(errs, fmt.Errorf("fields[%d]: the column %s is listed twice", i, f.Column))
		}
		switch f.Column {
		case spec.Version:
			c.version = i
		case spec.Campaign:
			c.campaign = i
		case spec.Deleted:
			c.deleted = i
		}
		c.fields = append(c.fields, compiled)
	}
	for _, name := range spec.Identity {
		i := slices.IndexFunc(c.fields, func(f field) bool { return f.Column == name })
		if i < 0 {
			errs = append(errs, fmt.Errorf("fields: the identity column %s is missing; records cannot be told apart without it", name))
		}
		c.identity = append(c.identity, i)
	}
	if c.version < 0 {
		errs = append(errs, fmt.Errorf("fields: the version column %s is missing; without it a stale row cannot be told from a wrong one", spec.Version))
	} else if v := c.fields[c.version]; v.Class != Integer || !v.kind.Kind.IsUnsigned() || v.kind.Size() > 8 {
		errs = append(errs, fmt.Errorf("fields[%d]: the version must be of class integer, and the column %s of a type up to UInt64", c.version, spec.Version))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

// compile checks one field against the type of its column.
func (c *Contract) compile(f Field) (field, error) {
	out := field{Field: f}
	i := slices.IndexFunc(c.spec.Columns, func(col chschema.Column) bool { return col.Name == f.Column })
	if i < 0 {
		return out, fmt.Errorf("the table has no column %s", f.Column)
	}
	out.kind, out.nullable = plain(c.spec.Columns[i].Type)
	if err := out.fits(); err != nil {
		return out, err
	}
	var err error
	if out.Class == Instant {
		if out.zone, err = parseZone(f.Zone); err != nil {
			return out, err
		}
	}
	if c.rows == nil {
		if f.Event == "" {
			return out, errors.New("event is missing: without a rows query the contract must say where the value stands in an event")
		}
	} else if out.Source, err = expression(f.Source); err != nil {
		return out, fmt.Errorf("source: %w", err)
	}
	if out.Deletion == "" {
		out.Deletion = out.Source
	} else if out.Deletion, err = expression(f.Deletion); err != nil {
		return out, fmt.Errorf("deletion: %w", err)
	}
	if out.Event == "" && c.rows != nil {
		out.Event = c.rows.aliasOf(out.Source)
	}
	if out.Event != "" {
		if out.path, err = parsePath(out.Event); err != nil {
			return out, fmt.Errorf("event: %w", err)
		}
	}
	out.missing = Value{Null: true}
	if f.Default != nil {
		if out.missing, err = value(f.Default); err == nil {
			_, err = out.encode(nil, out.missing)
		}
		if err != nil {
			return out, fmt.Errorf("default: %w", err)
		}
	}
	return out, nil
}

// plain takes LowCardinality and Nullable off a type.
func plain(t chschema.Type) (_ chschema.Type, nullable bool) {
	for t.Kind == chschema.KindLowCardinality || t.Kind == chschema.KindNullable {
		nullable = nullable || t.Kind == chschema.KindNullable
		t = t.Elem[0]
	}
	return t, nullable
}

// fits says whether the column's type can hold the class without a doubt.
func (f *field) fits() error {
	t := f.kind
	name := t.String()
	switch f.Class {
	case Integer:
		if t.Kind.IsInteger() {
			return nil
		}
	case Decimal:
		switch {
		case t.Kind.IsInteger() && t.Size() <= 16:
			return nil
		case t.Kind != chschema.KindDecimal:
		case t.Scale > f.Scale:
			return fmt.Errorf("scale %d would hide decimals: the column is %s; write scale: %d", f.Scale, name, t.Scale)
		case t.Precision+f.Scale-t.Scale > chschema.MaxDecimalPrecision:
			return fmt.Errorf("scale %d is too much for %s: ClickHouse counts to %d digits", f.Scale, name, chschema.MaxDecimalPrecision)
		default:
			return nil
		}
	case Instant:
		switch t.Kind {
		case chschema.KindDateTime, chschema.KindDateTime64, chschema.KindDate, chschema.KindDate32:
			return nil
		}
	case String:
		switch t.Kind {
		case chschema.KindString, chschema.KindFixedString, chschema.KindUUID, chschema.KindIPv4, chschema.KindIPv6:
			return nil
		}
	case Bool:
		if t.Kind == chschema.KindBool || t.Kind.IsInteger() && t.Size() == 1 {
			return nil
		}
	case Enum:
		switch t.Kind {
		case chschema.KindEnum8, chschema.KindEnum16, chschema.KindString:
			return nil
		}
	}
	return fmt.Errorf("class %s does not fit the column's type %s%s", f.Class, name, f.advice())
}

// advice names the class that a type has.
func (f *field) advice() string {
	k := f.kind.Kind
	switch {
	case k == chschema.KindFloat32, k == chschema.KindFloat64:
		return ": a float is not equal to itself after a journey; make the column a Decimal"
	case k.IsInteger():
		return "; use integer"
	case k == chschema.KindDecimal:
		return "; use decimal"
	case k == chschema.KindEnum8, k == chschema.KindEnum16:
		return "; use enum"
	case k == chschema.KindBool:
		return "; use bool"
	case k == chschema.KindString, k == chschema.KindFixedString, k == chschema.KindUUID:
		return "; use string"
	case k == chschema.KindDateTime, k == chschema.KindDateTime64, k == chschema.KindDate, k == chschema.KindDate32:
		return "; use instant"
	}
	return "; leave it out of the contract"
}

// digits is how many digits of a second the column holds.
func (f *field) digits() int {
	if f.kind.Kind == chschema.KindDateTime64 {
		return f.kind.Precision
	}
	return 0
}

// Columns are the names of the compared columns, in the contract's order.
func (c *Contract) Columns() []string {
	names := make([]string, len(c.fields))
	for i, f := range c.fields {
		names[i] = f.Column
	}
	return names
}

// HasSource reports whether there are queries to compare with MySQL.
func (c *Contract) HasSource() bool { return c.rows != nil }

// HasDeletions reports whether the source keeps a record of deletions.
func (c *Contract) HasDeletions() bool { return c.deletions != nil }

// Deletes reports whether the table has a column that marks deletions.
func (c *Contract) Deletes() bool { return c.spec.Deleted != "" }

// CampaignMayChange reports whether a record may move to another campaign: the
// campaign is no part of the key by which versions replace each other.
func (c *Contract) CampaignMayChange() bool { return !slices.Contains(c.spec.OrderBy, c.spec.Campaign) }

// IntegerCampaign reports whether campaigns are numbers.
func (c *Contract) IntegerCampaign() bool {
	t, ok := c.campaignType()
	return ok && t.Kind.IsInteger()
}

// IsCampaign reports whether a value of the campaign column, as ClickHouse
// prints it, is of a campaign. Only texts are judged: a query compares them by
// their collation and may take ABC for abc, which are two campaigns in the table.
func (c *Contract) IsCampaign(value, campaign string) bool {
	t, _ := c.campaignType()
	switch t.Kind {
	case chschema.KindFixedString:
		return strings.TrimRight(value, "\x00") == strings.TrimRight(campaign, "\x00")
	case chschema.KindString, chschema.KindEnum8, chschema.KindEnum16:
		return value == campaign
	}
	return true
}

// CampaignColumn is the name of the campaign's column in the table.
func (c *Contract) CampaignColumn() string { return c.spec.Campaign }

func (c *Contract) campaignType() (chschema.Type, bool) {
	for _, col := range c.spec.Columns {
		if col.Name == c.spec.Campaign {
			t, _ := plain(col.Type)
			return t, true
		}
	}
	return chschema.Type{}, false
}

// CheckCampaign refuses a text that cannot be a campaign, or is another spelling
// of one: ClickHouse would read 12x as an error and MySQL as 12, and both read
// 2026-1-2, whose findings would be counted beside those of 2026-01-02.
func (c *Contract) CheckCampaign(campaign string) error {
	t, ok := c.campaignType()
	switch {
	case !ok:
		return errors.New("the projection names no campaign column")
	case campaign == "":
		return errors.New("a campaign is empty")
	case t.Kind == chschema.KindDate || t.Kind == chschema.KindDate32:
		if _, err := time.Parse(time.DateOnly, campaign); err != nil {
			return fmt.Errorf("campaign %q is no %s; write it as 2026-01-02", campaign, t)
		}
		return nil
	case !t.Kind.IsInteger():
		return nil
	}
	n, ok := new(big.Int).SetString(campaign, 10)
	if !ok || n.String() != campaign {
		return fmt.Errorf("campaign %q is no %s", campaign, t)
	}
	bits := 8 * t.Size()
	low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(bits))
	if t.Kind.IsSigned() {
		high.Rsh(high, 1)
		low.Neg(high)
	}
	if n.Cmp(low) < 0 || n.Cmp(high) >= 0 {
		return fmt.Errorf("campaign %q is no %s", campaign, t)
	}
	return nil
}
