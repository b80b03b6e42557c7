package chschema

import (
	"fmt"
	"slices"
	"strings"
)

// newGeneration is the way out of every change that would touch the identity
// or the versions of rows that exist.
const newGeneration = "start a new generation: raise generation in the configuration and run `projector rebuild start`"

// Diff lists what is between the table and views as they should be and what
// the server has, in the order in which [Apply] must execute it: the table,
// then the views. No difference: an empty list. The table must be valid.
func Diff(t Table, s *State) []Change {
	d := &differ{table: t, state: s}
	d.physical()
	d.views()
	return d.changes
}

// DiffTable is [Diff] without the views: what a rebuild applies to the table
// that it fills while readers still see the generation before.
func DiffTable(t Table, s *State) []Change {
	d := &differ{table: t, state: s}
	d.physical()
	return d.changes
}

func (d *differ) physical() {
	d.cluster()
	switch {
	case !d.database():
	case d.state.Table == nil:
		d.online(d.table.CreateTable(), "create the table")
	case d.engine():
		d.keys()
		d.fence()
		d.columns()
		d.settings()
	}
}

type differ struct {
	table   Table
	state   *State
	changes []Change
}

// online adds a change of the table without which rows cannot be written.
func (d *differ) online(statement, summary string, args ...any) {
	d.changes = append(d.changes, Change{
		Verdict: Online, Object: d.table.Physical(), Summary: fmt.Sprintf(summary, args...), Statements: []string{statement}, Blocks: true,
	})
}

// refused adds a difference of the table that stops a consumer.
func (d *differ) refused(remedy, reason, summary string, args ...any) {
	d.changes = append(d.changes, Change{
		Verdict: Refused, Object: d.table.Physical(), Summary: fmt.Sprintf(summary, args...), Reason: reason, Remedy: remedy, Blocks: true,
	})
}

func (d *differ) tolerated(reason, summary string, args ...any) {
	d.changes = append(d.changes, Change{
		Verdict: Tolerated, Object: d.table.Physical(), Summary: fmt.Sprintf(summary, args...), Reason: reason,
	})
}

// database reports whether there is a database that views can be replaced in.
func (d *differ) database() bool {
	name := d.table.Database
	switch engine := d.state.DatabaseEngine; engine {
	case "":
		d.online("CREATE DATABASE IF NOT EXISTS "+QuoteName(name)+d.table.onCluster(), "create the database %s", name)
		d.online(d.table.CreateTable(), "create the table")
		return false
	case "Ordinary", "Lazy", "Memory":
		d.refused("use a database of engine Atomic or Replicated", "it cannot replace a view without a gap",
			"the database %s has the engine %s", name, engine)
		return false
	}
	return true
}

// engine reports whether the object is a table of the right family, so that
// looking further makes sense.
func (d *differ) engine() bool {
	t := d.state.Table
	have, err := parseEngine(t.EngineFull)
	family := strings.TrimSuffix(t.Engine, "ReplacingMergeTree")
	if err != nil || family != "" && family != "Replicated" && family != "Shared" {
		d.refused("move it out of the way (RENAME TABLE), or choose another table name; then create the table with `projector schema apply`",
			"only a ReplacingMergeTree replaces an old version by a new one", "it is %s", orText(t.EngineFull, t.Engine))
		return false
	}
	if d.table.Cluster != "" && family == "" {
		d.refused(newGeneration, "the configuration names the cluster "+d.table.Cluster+", and the other replicas would stay empty",
			"it is %s and not replicated", have.name)
	}
	version := "none"
	if len(have.args) > 0 {
		version = have.args[0].source()
	}
	if version != d.table.Version {
		d.refused(newGeneration, "the server would keep the row that another column calls the newest",
			"its version column is %s instead of %s", version, d.table.Version)
	}
	if len(have.args) > 1 {
		d.refused(newGeneration, "a cleanup merge would remove the deletion, and an older version of the record rises again",
			"its engine also has the is_deleted parameter %s", have.args[1].source())
	}
	if have.ttl {
		d.refused("ALTER TABLE … REMOVE TTL; to drop old rows, drop whole partitions",
			"when it removes the newest version of a record first, an older one rises again", "it has a TTL")
	}
	return true
}

func (d *differ) keys() {
	t := d.state.Table
	if want := QuoteNames(d.table.OrderBy); !sameKey(t.SortingKey, want) {
		d.refused(newGeneration, "the sorting key is what makes two rows the same record, and the server cannot change it",
			"it is ordered by (%s) instead of (%s)", keyText(t.SortingKey), strings.Join(d.table.OrderBy, ", "))
	}
	if !samePartition(t.PartitionKey, d.table.PartitionBy) {
		d.refused(newGeneration, "the server cannot change it, and versions of one record must not lie in two partitions",
			"it is partitioned by %s instead of %s", orText(t.PartitionKey, "nothing"), orText(d.table.PartitionBy, "nothing"))
	}
}

// parseKey reads a sorting key as the server prints it: a, b or (a) or (a, b).
func parseKey(s string) ([]expression, error) {
	list, err := parseExpressions(s)
	if len(list) == 1 && list[0].kind == expressionCall && list[0].text == "tuple" {
		list = list[0].args
	}
	return list, err
}

// sameKey compares two sorting keys however they are written.
func sameKey(a, b string) bool {
	la, errA := parseKey(a)
	lb, errB := parseKey(b)
	return errA == nil && errB == nil &&
		slices.EqualFunc(la, lb, func(x, y expression) bool { return x.String() == y.String() })
}

// keyText is a sorting key without parentheses and needless quotes.
func keyText(key string) string {
	list, err := parseKey(key)
	if err != nil {
		return key
	}
	var columns []string
	for _, e := range list {
		columns = append(columns, e.source())
	}
	return strings.Join(columns, ", ")
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// fence is not repaired online: a table that let older writers in may hold
// their rows, and a table that was closed must stay closed.
func (d *differ) fence() {
	want := uint64(d.table.Generation)
	have, ok := d.state.Table.fence()
	switch {
	case !ok || have < want:
		count := fmt.Sprintf("SELECT count() FROM %s WHERE %s < %d", d.table.Qualified(d.table.Physical()), ColumnGeneration, want)
		found := "it has no constraint " + FenceName
		if ok {
			found = fmt.Sprintf("its constraint %s admits generation %d", FenceName, have)
		}
		d.refused("if `"+count+"` is 0, run: "+d.table.RaiseFence(d.table.Generation)+"; otherwise "+newGeneration,
			"a writer of an older generation could add rows", "%s", found)
	case have > want:
		d.refused(fmt.Sprintf("set generation: %d in the configuration", have),
			"a rebuild closed this generation", "its constraint %s admits only generation %d and later", FenceName, have)
	}
}

func (d *differ) settings() {
	have, err := parseEngine(d.state.Table.EngineFull)
	if err != nil {
		return // reported by engine
	}
	change := map[string]string{}
	for _, name := range sortedKeys(d.table.MergeTreeSettings()) {
		want := d.table.MergeTreeSettings()[name]
		known, ok := d.state.Settings[name]
		value, named := have.settings[name]
		if !named {
			value = known.Value
		}
		switch {
		case !ok:
			d.setting(Refused, "", "the setting %s is unknown to this server; remove it from the configuration", name)
		case sameSetting(known.Type, value, want):
		case known.ReadOnly != 0:
			d.setting(Refused, newGeneration, "the setting %s is %s instead of %s and cannot be changed", name, orText(value, "empty"), want)
		default:
			change[name] = want
		}
	}
	if len(change) > 0 {
		d.setting(Online, "", "set %s", settingsList(change))
		d.changes[len(d.changes)-1].Statements = []string{d.table.modifySettings(change)}
	}
}

// setting adds a change that stops no consumer: a setting alters no row, and a
// deployment that is rolled back must start under the newer one's settings.
func (d *differ) setting(verdict Verdict, remedy, summary string, args ...any) {
	d.changes = append(d.changes, Change{Verdict: verdict, Object: d.table.Physical(), Summary: fmt.Sprintf(summary, args...), Remedy: remedy})
}
