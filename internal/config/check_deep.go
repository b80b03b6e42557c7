package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/chprojector/projector/mapping"
)

// checkDeep asks the packages that will work with a projection whether they
// can. They know the rules of types and tables; here only the keys are known to
// which their complaints belong. A projection that is wrong in itself is not
// passed on, or every mistake would be reported twice.
func checkDeep(c *Config, i int, r *report) {
	p, path := &c.Projections[i], fmt.Sprintf("projections[%d]", i)
	if !r.sound(path) {
		return
	}
	_, mappingErr := mapping.Compile(p.spec())
	for _, err := range []error{mappingErr, c.Table(p).Validate()} {
		for _, e := range parts(err) {
			key, message := p.key(e.Error())
			// Both know that a version is unsigned: the first to say so is enough.
			if path := where(path, key); r.sound(path) || key == "" {
				r.add(path, "%s", message)
			}
		}
	}
}

// where is the full path of a projection's key. Database and cluster are not
// the projection's own.
func where(path, key string) string {
	switch key {
	case "database", "cluster":
		return "clickhouse." + key
	}
	return join(path, key)
}

// jsonHint is for those who write JSON; in YAML the value is already one.
const jsonHint = " (JSON text is needed: a string between quotes)"

// parts takes joined errors apart, however deep they are joined.
func parts(err error) (all []error) {
	switch e := err.(type) { //nolint:errorlint // errors.Join itself, not what it wraps
	case nil:
		return nil
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			all = append(all, parts(part)...)
		}
		return all
	}
	return []error{err}
}

// subject is how a complaint begins: a key, with the name or the value that it
// is about.
var subject = regexp.MustCompile(`(?s)^(identity|order_by|partition_by|version|deleted|campaign|schema_version|columns?|views?|settings|database|cluster|table|generation)(?: ("(?:[^"\\]|\\.)*"|[^ :]+))?: (.*)$`)

// key finds the key that a complaint is about: "column result: zone: …" is
// columns[5].zone.
func (p *Projection) key(message string) (key, rest string) {
	m := subject.FindStringSubmatch(message)
	if m == nil {
		return "", message
	}
	name, rest := strings.Trim(m[2], `"`), m[3]
	switch m[1] {
	case "column":
		i := slices.IndexFunc(p.Columns, func(c Column) bool { return c.Name == name })
		if i < 0 {
			return "columns", message
		}
		return columnKey(i, rest)
	case "view":
		i := slices.IndexFunc(p.Views, func(v View) bool { return v.Name == name })
		if i < 0 {
			return "views", message
		}
		return fmt.Sprintf("views[%d]", i), rest
	case "settings":
		return "table_settings." + name, rest
	}
	if m[2] != "" { // the value
		rest = m[2] + ": " + rest
	}
	return m[1], rest
}

// columnKey finds the option of a column that a complaint is about.
func columnKey(i int, rest string) (key, message string) {
	key = fmt.Sprintf("columns[%d]", i)
	for _, option := range []string{"zone", "unit", "round", "default", "from"} {
		if strings.HasPrefix(rest, option+" ") {
			return key + "." + option, strings.TrimSuffix(rest, jsonHint)
		}
		if r, ok := strings.CutPrefix(rest, option+": "); ok {
			return key + "." + option, r
		}
	}
	return key, rest
}
