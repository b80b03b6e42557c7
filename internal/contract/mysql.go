package contract

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// SourceType is what MySQL says of an expression: the type's name as
// go-sql-driver spells it (VARCHAR, UNSIGNED BIGINT, …), and for DECIMAL its
// digits in all and after the point.
type SourceType struct {
	Name             string
	Precision, Scale int64
}

// MySQL is the contract in the SQL of one shard. It holds the types of its
// expressions, by which they are rendered.
type MySQL struct {
	*Contract
	texts, gone []string // one expression for each field: its text, or NULL
}

// Probe is the statement whose result has the types of all sources of the rows
// query, and no rows. i names one field, -1 all. It has one parameter.
func (c *Contract) Probe(i int) string { return probe(c.rows, c.sources(), i) }

// ProbeDeletions is Probe for the identity, the version and a campaign that is
// a text in the deletions query; "" without one.
func (c *Contract) ProbeDeletions() string {
	if c.deletions == nil {
		return ""
	}
	var list []string
	for _, i := range c.told() {
		list = append(list, c.fields[i].Deletion)
	}
	return probe(c.deletions, list, -1)
}

func probe(q *Query, list []string, i int) string {
	if i >= 0 {
		list = list[i : i+1]
	}
	return "SELECT " + strings.Join(list, ", ") + " " + q.from + " LIMIT 0"
}

func (c *Contract) sources() []string {
	list := make([]string, len(c.fields))
	for i, f := range c.fields {
		list[i] = f.Source
	}
	return list
}

// key is the places of the identity and the version.
func (c *Contract) key() []int { return append(append([]int(nil), c.identity...), c.version) }

// told is what deletions tell too: the key, and the campaign where its text must
// be compared by its bytes.
func (c *Contract) told() []int {
	list := c.key()
	if c.campaignText() && !slices.Contains(list, c.campaign) {
		list = append(list, c.campaign)
	}
	return list
}

// campaignText reports whether the contract lists the campaign as a text. The
// configured query compares it by the column's collation, which may take ABC and
// "abc " for abc; they are three campaigns in the table.
func (c *Contract) campaignText() bool {
	return c.campaign >= 0 && (c.fields[c.campaign].Class == String || c.fields[c.campaign].Class == Enum)
}

// MySQL renders the contract for a shard. rows are the types of all fields in
// the rows query, deletions those of the fields of [Contract.ProbeDeletions]. A
// class that does not fit a type is an error that names the field.
func (c *Contract) MySQL(rows, deletions []SourceType) (*MySQL, error) {
	m := &MySQL{Contract: c}
	var errs []error
	for i := range c.fields {
		text, err := c.fields[i].mysql(c.fields[i].Source, rows[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("fields[%d] (%s): source %s: %w", i, c.fields[i].Column, c.fields[i].Source, err))
		}
		m.texts = append(m.texts, text)
	}
	if c.deletions != nil {
		for j, i := range c.told() {
			text, err := c.fields[i].mysql(c.fields[i].Deletion, deletions[j])
			if err != nil {
				errs = append(errs, fmt.Errorf("fields[%d] (%s): deletion %s: %w", i, c.fields[i].Column, c.fields[i].Deletion, err))
			}
			m.gone = append(m.gone, text)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return m, nil
}

// mysql is the expression of a field's canonical text; NULL stays NULL.
func (f *field) mysql(x string, t SourceType) (string, error) {
	x = "(" + x + ")"
	switch f.Class {
	case Integer:
		if isInteger(t) || t.Name == "DECIMAL" && t.Scale == 0 {
			return integer(x), nil
		}
	case Decimal:
		switch {
		case isInteger(t):
		case t.Name != "DECIMAL":
			return "", f.misfit(t)
		case t.Scale > int64(f.Scale):
			return "", fmt.Errorf("scale %d would hide decimals: the source is DECIMAL(%d, %d); write scale: %d, or source: ROUND(…, %d)",
				f.Scale, t.Precision, t.Scale, t.Scale, f.Scale)
		case t.Precision-t.Scale+int64(f.Scale) > mysqlDigits:
			return "", fmt.Errorf("scale %d is too much for DECIMAL(%d, %d): MySQL counts to %d digits", f.Scale, t.Precision, t.Scale, mysqlDigits)
		}
		// Adding nothing takes ZEROFILL away, and the cast back from the multiple the decimals, which are zeros.
		return fmt.Sprintf("CAST(CAST(CAST(%s AS DECIMAL(%d,%d))*1%s AS DECIMAL(%d,0)) AS CHAR)",
			x, mysqlDigits, f.Scale, strings.Repeat("0", f.Scale), mysqlDigits), nil
	case Instant:
		return f.mysqlInstant(x, t)
	case Bool:
		if isInteger(t) {
			return fmt.Sprintf("IF(%s IS NULL,NULL,IF(%[1]s<>0,'1','0'))", x), nil
		}
	case String, Enum:
		switch {
		case isText(t):
			x = fmt.Sprintf("CONVERT(%s USING utf8mb4)", x)
		case !isBytes(t) || f.Class == Enum:
			return "", f.misfit(t)
		}
		x = fmt.Sprintf("CAST(%s AS BINARY)", x)
		if f.trimsZeros() {
			x = fmt.Sprintf("TRIM(TRAILING x'00' FROM %s)", x)
		}
		return x, nil
	}
	return "", f.misfit(t)
}

// mysqlDigits is how many digits a DECIMAL of MySQL has at most.
const mysqlDigits = 65

// integer renders an integer. Adding nothing takes ZEROFILL away and turns BIT
// and YEAR into numbers; an unsigned 64-bit number stays one.
func integer(x string) string { return fmt.Sprintf("CAST(%s+0 AS CHAR)", x) }

func (f *field) mysqlInstant(x string, t SourceType) (string, error) {
	digits := int(t.Scale)
	switch t.Name {
	case "DATETIME", "DATE":
	case "TIMESTAMP":
		if !f.zone.utc() {
			return "", fmt.Errorf("zone %s has no meaning for a TIMESTAMP, which is read in UTC; remove it", f.zone.name)
		}
	default:
		return "", f.misfit(t)
	}
	if least := min(digits, f.digits(), 6); f.Precision < least {
		return "", fmt.Errorf("precision %d would hide what both sides know: the source has %d digits of a second and the column %d; write precision: %d",
			f.Precision, digits, f.digits(), least)
	}
	m := fmt.Sprintf("TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00.000000',%s)", x)
	if !f.zone.utc() {
		m = fmt.Sprintf("%s-%s", m, f.zone.mysql(m))
	}
	if unit := f.grain(); unit > 1 { // MOD has the sign of the dividend
		m = fmt.Sprintf("(%s)-MOD(MOD(%[1]s,%d)+%[2]d,%[2]d)", m, unit)
	}
	// A date such as 0000-00-00 is not null and no instant: it must differ from everything.
	return fmt.Sprintf("IF(%s IS NULL,NULL,IFNULL(CAST(%s AS CHAR),'no instant'))", x, m), nil
}

func (f *field) misfit(t SourceType) error {
	name := t.Name
	if name == "DECIMAL" {
		name = fmt.Sprintf("DECIMAL(%d, %d)", t.Precision, t.Scale)
	}
	remedy := "change the class"
	switch {
	case t.Name == "FLOAT" || t.Name == "DOUBLE":
		remedy = "a float is not equal to itself after a journey; compare CAST(… AS DECIMAL(p, s)) as class decimal, or leave it out"
	case f.Class == String || f.Class == Enum:
		remedy = "write CAST(… AS CHAR), or change the class"
	}
	return fmt.Errorf("class %s does not fit the type %s; %s", f.Class, name, remedy)
}

func isInteger(t SourceType) bool {
	return strings.HasSuffix(t.Name, "INT") || t.Name == "YEAR" || t.Name == "BIT"
}

func isText(t SourceType) bool {
	switch t.Name {
	case "CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET", "JSON":
		return true
	}
	return false
}

func isBytes(t SourceType) bool {
	switch t.Name {
	case "BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB":
		return true
	}
	return false
}
