package config

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/chprojector/projector/chschema"
)

var (
	// projectionName becomes part of a consumer group's name and of a metric's label.
	projectionName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)
	// identifier is what a table, view or column may be called: no name needs
	// quoting in a report's SQL.
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,199}$`)
)

// generated are the ends of the names of the views that every table gets.
var generated = []string{"_current", "_versions", "_conflicts", "_freshness"}

func checkProjections(c *Config, r *report) {
	if len(c.Projections) == 0 && r.readable("projections") {
		r.add("projections", "missing; describe at least one table and the topic that fills it")
	}
	names, tables, topics, objects := map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	for i := range c.Projections {
		p := &c.Projections[i]
		path := fmt.Sprintf("projections[%d]", i)
		checkProjection(p, path, r)
		r.once(names, path+".name", p.Name, "each projection needs a name of its own")
		r.once(tables, path+".table", p.Table, "two projections must not share a table, or their rows replace each other")
		for j, t := range p.Topics {
			sub := fmt.Sprintf("%s.topics[%d]", path, j)
			r.onceIn(topics, sub, fmt.Sprint(i, " ", t), t, "name a topic once")
		}
		if p.Table != "" {
			for _, suffix := range generated {
				objects[p.Table+suffix] = path + ".table"
			}
		}
	}
	for i, p := range c.Projections {
		for j, v := range p.Views {
			r.once(objects, fmt.Sprintf("projections[%d].views[%d].name", i, j), v.Name, "each view needs a name of its own")
		}
	}
	checkLetterTopics(c, r)
	for i := range c.Projections {
		checkDeep(c, i, r)
	}
}

// checkLetterTopics refuses a dead-letter topic that is consumed as a topic of
// events: every letter would be refused again and parked in …-dlq-dlq.
func checkLetterTopics(c *Config, r *report) {
	if c.DeadLetter.Suffix == "" {
		return // reported as such: every topic would be its own dead-letter topic
	}
	letters := map[string]string{}
	for _, p := range c.Projections {
		for _, t := range p.Topics {
			letters[t+c.DeadLetter.Suffix] = t
		}
	}
	for i, p := range c.Projections {
		for j, t := range p.Topics {
			if from, ok := letters[t]; ok {
				r.add(fmt.Sprintf("projections[%d].topics[%d]", i, j), "%q is the dead-letter topic of %q, whose letters would be refused and parked again; use `projector replay` to read letters again, or another dead_letter.suffix", t, from)
			}
		}
	}
}

func checkProjection(p *Projection, path string, r *report) {
	r.matches(path+".name", p.Name, projectionName, "letters, digits, '_' and '-', such as fitness_results")
	r.matches(path+".table", p.Table, identifier, "letters, digits and '_', such as fitness_results")
	if len(p.Topics) == 0 && r.readable(path+".topics") {
		r.add(path+".topics", "missing; name the topics that hold the events")
	}
	for j, t := range p.Topics {
		r.matches(fmt.Sprintf("%s.topics[%d]", path, j), t, topicPart, "letters, digits, '.', '_' and '-'")
	}
	if p.Generation == 0 && r.readable(path+".generation") {
		r.add(path+".generation", "0 is out of range; the first generation is 1")
	}
	r.oneOf(path+".null_value", p.NullValue, "dead_letter", "ignore")
	if v := p.SchemaVersion; v.From != "" && len(v.Accept) == 0 && r.readable(path+".schema_version") {
		r.add(path+".schema_version.accept", "missing; list the versions that this mapping reads, such as [1]")
	} else if v.From == "" && len(v.Accept) > 0 && r.readable(path+".schema_version") {
		r.add(path+".schema_version.from", "missing; name the field that holds the version")
	}
	checkColumns(p, path, r)
	checkRoles(p, path, r)
	for j, v := range p.Views {
		sub := fmt.Sprintf("%s.views[%d]", path, j)
		r.matches(sub+".name", v.Name, identifier, "letters, digits and '_'")
		r.present(sub+".query", v.Query, "a SELECT that reads {current}")
	}
}

func checkColumns(p *Projection, path string, r *report) {
	if len(p.Columns) == 0 && r.readable(path+".columns") {
		r.add(path+".columns", "missing; list the table's columns")
	}
	seen := map[string]string{}
	for j, c := range p.Columns {
		sub := fmt.Sprintf("%s.columns[%d]", path, j)
		r.matches(sub+".name", c.Name, identifier, "letters, digits and '_'")
		r.present(sub+".from", c.From, "the path of the field in the event, such as dataId or user.id")
		if c.Type == "" {
			r.present(sub+".type", c.Type, "the ClickHouse type, such as UInt64")
		} else if _, err := chschema.ParseType(c.Type); err != nil {
			r.add(sub+".type", "%v", err)
		}
		r.once(seen, sub+".name", c.Name, "a table has each column once")
	}
}

// checkRoles holds that every column that has a role exists.
func checkRoles(p *Projection, path string, r *report) {
	if !r.readable(path + ".columns") {
		return
	}
	r.columns(p, path+".identity", p.Identity, "the columns that say which record a row belongs to")
	r.columns(p, path+".order_by", p.OrderBy, "the sorting key; it contains the identity")
	if p.Version == "" {
		r.present(path+".version", p.Version, "the column that orders the states of one record")
	} else {
		r.column(p, path+".version", p.Version)
	}
	if p.Deleted != "" {
		r.column(p, path+".deleted", p.Deleted)
	}
	if p.Campaign != "" {
		r.column(p, path+".campaign", p.Campaign)
	}
	if !r.readable(path+".identity") || !r.readable(path+".order_by") || len(p.OrderBy) == 0 {
		return
	}
	for j, name := range p.Identity {
		if sub := fmt.Sprintf("%s.identity[%d]", path, j); !slices.Contains(p.OrderBy, name) && r.sound(sub) {
			r.add(sub, "%q is not in order_by, so two states of one record would not replace each other; add it to order_by", cut(name))
		}
	}
}

func (r *report) columns(p *Projection, path string, names []string, what string) {
	if len(names) == 0 && r.readable(path) {
		r.add(path, "missing; name %s", what)
	}
	seen := map[string]string{}
	for j, name := range names {
		sub := fmt.Sprintf("%s[%d]", path, j)
		r.column(p, sub, name)
		r.once(seen, sub, name, "name a column once")
	}
}

func (r *report) column(p *Projection, path, name string) {
	if !r.readable(path) || slices.ContainsFunc(p.Columns, func(c Column) bool { return c.Name == name }) {
		return
	}
	var known []string
	for _, c := range p.Columns {
		known = append(known, c.Name)
	}
	if near := nearest(name, known); near != "" {
		r.add(path, "there is no column %q; did you mean %s?", cut(name), near)
		return
	}
	r.add(path, "there is no column %q; list it under columns", cut(name))
}

func (r *report) matches(path, value string, pattern *regexp.Regexp, use string) {
	switch {
	case !r.readable(path) || pattern.MatchString(value):
	case value == "":
		r.add(path, "missing; use %s", use)
	default:
		r.add(path, "%q cannot be used as a name; use %s", cut(value), use)
	}
}

// once reports a name that an earlier key has taken.
func (r *report) once(seen map[string]string, path, name, why string) {
	r.onceIn(seen, path, name, name, why)
}

func (r *report) onceIn(seen map[string]string, path, key, name, why string) {
	if name == "" {
		return
	}
	if first, ok := seen[key]; ok {
		r.add(path, "%q is taken by %s; %s", cut(name), first, why)
		return
	}
	seen[key] = path
}
