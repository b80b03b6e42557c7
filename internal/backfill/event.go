package backfill

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/mapping"
)

// template turns the rows of one query into the JSON of events, without looking
// at anything but bytes: no value passes through a float or a time.Time.
type template struct {
	slots   []slot
	tail    string
	version int // which value the version is; it is an integer
}

// slot is the text before a value, and which value it is.
type slot struct {
	before string
	column int
	form   form
}

// form is how a value stands in JSON.
type form uint8

const (
	formText   form = iota // between quotes, escaped
	formNumber             // as it is, without leading zeros
	formBits               // the number that the bytes of a BIT are
	formJSON               // as it is: the column reads an object or an array
	formUTC                // a time without a zone that is one of UTC, because the session is
)

// newTemplate finds in a query's result what each column of the plan reads.
// constants are fields that the query does not have to give. The error names
// every column that lacks its field.
func newTemplate(spec *mapping.Spec, layout *mysql.Layout, constants map[string]string) (*template, error) {
	root := &branch{}
	var errs []error
	version := 0
	for _, c := range spec.Columns {
		if text, ok := constants[c.From]; ok {
			errs = append(errs, root.put(c.From, &leaf{text: text}))
			continue
		}
		path, i := find(layout, c.From)
		if i < 0 {
			if c.Default == nil {
				errs = append(errs, fmt.Errorf("the result has no column %s, from which column %s is filled%s; select it AS `%s`, or give the column a default",
					c.From, c.Name, nearly(layout, c.From), c.From))
			}
			continue
		}
		f, err := formOf(&c, layout.Columns[i], path == c.From)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if c.Name == spec.Version {
			version = i
			if path != c.From || !layout.Columns[i].IsInteger() {
				errs = append(errs, fmt.Errorf("the version %s is %s; it must be an integer of the result", c.From, layout.Columns[i].Type))
			}
		}
		errs = append(errs, root.put(path, &leaf{column: i, form: f}))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	t := &template{version: version}
	t.tail = t.build(root, "")
	return t, nil
}

// find returns the result's column for a field: one called like its path, or
// one that holds, as JSON, an object in which the path goes on.
func find(layout *mysql.Layout, path string) (name string, column int) {
	for name = path; ; {
		if i := layout.Find(name); i >= 0 {
			return name, i
		}
		dot := strings.LastIndexByte(name, '.')
		if dot < 0 {
			return "", -1
		}
		name = name[:dot]
	}
}

// nearly tells a name that differs by case only.
func nearly(layout *mysql.Layout, name string) string {
	for _, c := range layout.Columns {
		if strings.EqualFold(c.Name, name) {
			return fmt.Sprintf(" (it has %s; case matters)", c.Name)
		}
	}
	return ""
}

// formOf decides how a source column's values are written for the column that
// reads them. What would lose digits before anybody saw them is refused.
func formOf(c *mapping.Column, source mysql.Column, whole bool) (form, error) {
	target := c.Type
	for target.Kind == chschema.KindNullable || target.Kind == chschema.KindLowCardinality {
		target = target.Elem[0]
	}
	switch {
	case source.IsInteger(), source.Type == "DECIMAL":
		return formNumber, nil
	case source.Type == "BIT":
		return formBits, nil
	case source.Type == "FLOAT", source.Type == "DOUBLE":
		if target.Kind == chschema.KindFloat32 || target.Kind == chschema.KindFloat64 {
			return formNumber, nil // as exact as the column: the binary protocol carries the float itself
		}
		return 0, fmt.Errorf("column %s is %s and %s is a %s, whose digits are not exact; select CAST(… AS DECIMAL(p, s)) AS `%s`",
			c.Name, c.Type, source.Name, source.Type, source.Name)
	case !whole:
		return formJSON, nil
	}
	switch target.Kind {
	case chschema.KindArray, chschema.KindMap, chschema.KindTuple:
		return formJSON, nil
	case chschema.KindDateTime, chschema.KindDateTime64:
		// A TIMESTAMP is an instant, shown in the session's zone. A DATETIME is what a clock showed: that of the
		// column's zone, where the mapping names one, else that of the session.
		if source.Type == "TIMESTAMP" || source.Type == "DATETIME" && c.Zone == "" {
			return formUTC, nil
		}
	}
	return formText, nil
}

// branch is an object of the event while the template grows.
type branch struct {
	names  []string
	fields map[string]any // *branch or *leaf
}

type leaf struct {
	text   string // a constant, or
	column int
	form   form
}

// put adds a field, unless another column has added it already.
func (b *branch) put(path string, l *leaf) error {
	steps, err := mapping.SplitPath(path)
	if err != nil {
		return err
	}
	for i, step := range steps {
		if b.fields == nil {
			b.fields = map[string]any{}
		}
		next, ok := b.fields[step]
		if !ok {
			b.names = append(b.names, step)
			next = &branch{}
			if i == len(steps)-1 {
				next = l
			}
			b.fields[step] = next
		}
		object, ok := next.(*branch)
		if !ok {
			return nil
		}
		b = object
	}
	return nil
}

// build appends the slots of an object and returns the text after the last.
func (t *template) build(b *branch, before string) (after string) {
	before += "{"
	for i, name := range b.names {
		if i > 0 {
			before += ","
		}
		before += string(mapping.AppendText(nil, []byte(name))) + ":"
		switch f := b.fields[name].(type) {
		case *branch:
			before = t.build(f, before)
		case *leaf:
			if f.text != "" {
				before += f.text
				continue
			}
			t.slots = append(t.slots, slot{before, f.column, f.form})
			before = ""
		}
	}
	return before + "}"
}

// append appends the event of a row.
func (t *template) append(dst []byte, values []sql.RawBytes) []byte {
	for i := range t.slots {
		s := &t.slots[i]
		dst = append(dst, s.before...)
		value := values[s.column]
		if value == nil {
			dst = append(dst, "null"...)
			continue
		}
		switch s.form {
		case formNumber:
			dst = appendNumber(dst, value)
		case formBits:
			dst = appendBits(dst, value)
		case formJSON:
			dst = append(dst, value...)
		case formUTC:
			dst = append(append(append(dst, '"'), value...), 'Z', '"')
		default:
			dst = mapping.AppendText(dst, value)
		}
	}
	return append(dst, t.tail...)
}

// appendNumber drops the zeros that ZEROFILL puts in front, which JSON does
// not allow.
func appendNumber(dst, digits []byte) []byte {
	if len(digits) > 0 && digits[0] == '-' {
		dst, digits = append(dst, '-'), digits[1:]
	}
	for len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9' {
		digits = digits[1:]
	}
	return append(dst, digits...)
}

func appendBits(dst, value []byte) []byte {
	var n uint64
	for _, b := range value {
		n = n<<8 | uint64(b)
	}
	return strconv.AppendUint(dst, n, 10)
}

// sourceSpec is the mapping of a source row: that of an event, whose schema
// version the query itself stands for.
func sourceSpec(spec mapping.Spec) mapping.Spec {
	spec.SchemaVersion = mapping.SchemaVersion{}
	spec.Strict = false
	return spec
}

// tombstoneSpec is the mapping of a row that says only that a record is
// deleted: what the query does not give is the column's default, or its zero.
func tombstoneSpec(spec mapping.Spec, required []string) mapping.Spec {
	spec = sourceSpec(spec)
	spec.Columns = slices.Clone(spec.Columns)
	for i := range spec.Columns {
		c := &spec.Columns[i]
		switch {
		case slices.Contains(required, c.Name):
			c.Default = nil
		case c.Default == nil:
			c.Default = mapping.Zero(c.Type)
		}
	}
	return spec
}
