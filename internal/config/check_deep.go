package config

import (
	"fmt"
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
	if _, err := mapping.Compile(p.spec()); err != nil {
		for _, e := range parts(err) {
			key, message := p.key(e.Error())
			r.add(join(path, key), "%s", message)
		}
	}
}

// jsonHint is for those who write JSON; in YAML the value is already one.
const jsonHint = " (JSON text is needed: a string between quotes)"

// parts takes a joined error apart.
func parts(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // errors.Join itself, not what it wraps
		return joined.Unwrap()
	}
	return []error{err}
}

// key finds the key that a complaint is about: "column result: zone: …" is
// columns[5].zone.
func (p *Projection) key(message string) (key, rest string) {
	subject, rest, ok := strings.Cut(message, ": ")
	if !ok {
		return "", message
	}
	if name, ok := strings.CutPrefix(subject, "column "); ok {
		i := slices.IndexFunc(p.Columns, func(c Column) bool { return c.Name == name })
		if i < 0 {
			return "columns", message
		}
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
	for _, known := range []string{"identity", "version", "deleted", "schema_version", "columns", "order_by", "partition_by", "campaign"} {
		if subject == known {
			return known, rest
		}
	}
	return "", message
}
