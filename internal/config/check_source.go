package config

import (
	"fmt"
	"maps"
	"slices"
)

// checkSource checks the authoritative MySQL, which is optional: without it
// there is no backfill and no comparison with the source.
func checkSource(c *Config, r *report) {
	names := map[string]string{}
	for i, s := range c.Source.Shards {
		path := fmt.Sprintf("source.shards[%d]", i)
		r.matches(path+".name", s.Name, projectionName, "letters, digits, '_' and '-', such as s0")
		r.once(names, path+".name", s.Name, "each shard needs a name of its own")
		r.twins(path+".dsn", s.DSN, s.DSNFile)
		if s.DSN == "" && s.DSNFile == "" && r.readable(path) {
			r.add(path+".dsn_file", "missing; name the file that holds the address and the password")
		}
	}
	reads := func(s SourceProjection) bool { return s.Rows != "" }
	if len(c.Source.Shards) == 0 && slices.ContainsFunc(slices.Collect(maps.Values(c.Source.Projections)), reads) && r.readable("source.shards") {
		r.add("source.shards", "missing; source.projections needs at least one shard to read from")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Source.Projections)) {
		path := "source.projections." + name
		i := slices.IndexFunc(c.Projections, func(p Projection) bool { return p.Name == name })
		if i < 0 {
			if r.readable("projections") {
				r.add(path, "there is no projection %q; use a name under projections", cut(name))
			}
			continue
		}
		checkSourceProjection(c.Source.Projections[name], &c.Projections[i], path, len(c.Source.Shards) > 0, r)
	}
}

// checkSourceProjection needs a query only where there are shards to ask: who
// has none compares with the topic.
func checkSourceProjection(s SourceProjection, p *Projection, path string, shards bool, r *report) {
	if shards {
		r.present(path+".rows", s.Rows, "the SELECT of the authoritative rows, with ? for the campaign")
	}
	if p.Campaign == "" && r.readable(path) {
		r.add(path, "projection %s names no campaign, by which the source is read; give projections[…].campaign", p.Name)
	}
	if len(s.Fields) == 0 && r.readable(path+".fields") {
		r.add(path+".fields", "missing; list what is compared, or nothing can be proved")
	}
	for j, f := range s.Fields {
		checkField(f, p, fmt.Sprintf("%s.fields[%d]", path, j), s.Rows != "" || shards, r)
	}
}

func checkField(f Field, p *Projection, path string, queried bool, r *report) {
	if f.Column == "" {
		r.present(path+".column", f.Column, "a column of the projection")
	} else {
		r.column(p, path+".column", f.Column)
	}
	if queried {
		r.present(path+".source", f.Source, "the column or expression in the source")
	} else {
		r.present(path+".event", f.Event, "where the value stands in an event, such as user.id; without rows there is nothing else to compare with")
	}
	r.oneOf(path+".class", f.Class, "integer", "decimal", "instant", "string", "bool", "enum")
	if f.Scale != 0 && f.Class != "decimal" && r.readable(path+".scale") {
		r.add(path+".scale", "class %s has no scale; remove it", f.Class)
	}
	if f.Class == "decimal" {
		between(r, path+".scale", f.Scale, 0, 76)
	}
	if (f.Precision != 0 || f.Zone != "") && f.Class != "instant" && r.readable(path) {
		r.add(path+".class", "class %s has no precision and no zone; remove them, or use class instant", f.Class)
	}
	between(r, path+".precision", f.Precision, 0, 6)
	if f.Unit != "" {
		r.oneOf(path+".unit", f.Unit, "s", "ms", "us", "ns")
		if f.Class != "instant" && r.readable(path+".unit") {
			r.add(path+".unit", "class %s has no unit; remove it", f.Class)
		}
	}
}
