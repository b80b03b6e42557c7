package chschema

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// State is what a server has under the names of a [Table].
type State struct {
	DatabaseEngine string // "" = there is no such database, or this user may not see it
	Table          *TableState
	Objects        map[string]Object     // views by name, and whatever else has the name of one
	Settings       map[string]SettingRow // the MergeTree settings that the table asks for, as this server knows them
	// Formatted is the query that each view should have, as this server prints
	// it.
	Formatted map[string]Formatted
	Replicas  []ReplicaColumn // with a cluster: every column of the table on every replica
	Shards    uint64          // with a cluster: how many it has
}

// TableState is the physical table.
type TableState struct {
	Object
	Columns []ColumnState
}

// Object is a row of system.tables.
type Object struct {
	Name         string `ch:"name"`
	Engine       string `ch:"engine"`
	EngineFull   string `ch:"engine_full"`
	PartitionKey string `ch:"partition_key"`
	SortingKey   string `ch:"sorting_key"`
	Create       string `ch:"create_table_query"`
	Query        string `ch:"as_select"`
	Comment      string `ch:"comment"`
}

// ColumnState is a row of system.columns.
type ColumnState struct {
	Name        string `ch:"name"`
	Type        string `ch:"type"`
	DefaultKind string `ch:"default_kind"` // "", DEFAULT, MATERIALIZED, ALIAS or EPHEMERAL
	Default     string `ch:"default_expression"`
}

// SettingRow is a row of system.merge_tree_settings.
type SettingRow struct {
	Name     string `ch:"name"`
	Type     string `ch:"type"`
	Value    string `ch:"value"` // for a table that does not name the setting
	ReadOnly uint8  `ch:"readonly"`
}

// ReplicaColumn is a column of the table on one replica.
type ReplicaColumn struct {
	Host string `ch:"host"`
	Name string `ch:"name"`
	Type string `ch:"type"`
}

// Formatted is a query as a server prints it, and stores it.
type Formatted struct {
	Query    *string `ch:"query"`    // nil: it does not parse
	Readable uint8   `ch:"readable"` // 0: what the server prints, it could not read again when it restarts
}

// Inspect reads what the server has under the names of t. It changes nothing.
// It needs the rights of [RoleSchema], or any on the objects and SELECT on
// system.merge_tree_settings.
func Inspect(ctx context.Context, conn Conn, t Table) (*State, error) {
	i := newInspector(ctx, conn, t)
	return i.run(i.database, i.objects, i.columns, i.settings, i.formatted, i.replicas)
}

// inspectTable leaves out what stops no consumer, so that a consumer needs
// fewer rights.
func inspectTable(ctx context.Context, conn Conn, t Table) (*State, error) {
	i := newInspector(ctx, conn, t)
	return i.run(i.database, i.objects, i.columns, i.replicas)
}

func newInspector(ctx context.Context, conn Conn, t Table) inspector {
	return inspector{ctx, conn, t, &State{
		Objects: map[string]Object{}, Settings: map[string]SettingRow{}, Formatted: map[string]Formatted{},
	}}
}

func (i inspector) run(steps ...func() error) (*State, error) {
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, fmt.Errorf("inspect %s.%s: %w", i.table.Database, i.table.Physical(), err)
		}
	}
	return i.state, nil
}

type inspector struct {
	ctx   context.Context
	conn  Conn
	table Table
	state *State
}

func (i inspector) database() error {
	var rows []struct {
		Engine string `ch:"engine"`
	}
	err := i.conn.Select(i.ctx, &rows, "SELECT engine FROM system.databases WHERE name = "+QuoteString(i.table.Database))
	if len(rows) == 1 {
		i.state.DatabaseEngine = rows[0].Engine
	}
	return err
}

// objects also finds views that an earlier configuration of this table made,
// by the mark in their comment.
func (i inspector) objects() error {
	wanted := []string{QuoteString(i.table.Physical())}
	for _, d := range i.table.Definitions() {
		wanted = append(wanted, QuoteString(d.Name))
	}
	var rows []Object
	err := i.conn.Select(i.ctx, &rows, fmt.Sprintf(`SELECT name, engine, engine_full, partition_key, sorting_key, create_table_query, as_select, comment
FROM system.tables WHERE database = %s AND (name IN (%s) OR position(comment, %s) > 0) ORDER BY name`,
		QuoteString(i.table.Database), strings.Join(wanted, ", "), QuoteString(markStart(i.table))))
	for _, row := range rows {
		if row.Name == i.table.Physical() {
			i.state.Table = &TableState{Object: row}
		} else {
			i.state.Objects[row.Name] = row
		}
	}
	return err
}

func (i inspector) columns() error {
	if i.state.Table == nil {
		return nil
	}
	return i.conn.Select(i.ctx, &i.state.Table.Columns, fmt.Sprintf(
		"SELECT name, type, default_kind, default_expression FROM system.columns WHERE database = %s AND table = %s ORDER BY position",
		QuoteString(i.table.Database), QuoteString(i.table.Physical())))
}

func (i inspector) settings() error {
	var quoted []string
	for name := range i.table.MergeTreeSettings() {
		quoted = append(quoted, QuoteString(name))
	}
	if len(quoted) == 0 {
		return nil
	}
	var rows []SettingRow
	err := i.conn.Select(i.ctx, &rows, "SELECT name, type, value, readonly FROM system.merge_tree_settings WHERE name IN ("+
		strings.Join(quoted, ", ")+")")
	for _, row := range rows {
		i.state.Settings[row.Name] = row
	}
	return err
}

// formatted lets the server print the wanted queries its own way, one at a
// time: together they may be longer than max_query_size.
func (i inspector) formatted() error {
	for _, d := range i.table.Definitions() {
		var rows []Formatted
		err := i.conn.Select(i.ctx, &rows, "SELECT formatQuerySingleLineOrNull("+QuoteString(d.Query)+") AS query, "+
			"isNotNull(formatQuerySingleLineOrNull(query)) AS readable")
		if err != nil {
			return fmt.Errorf("view %s: %w", d.Name, err)
		}
		for _, row := range rows {
			i.state.Formatted[d.Name] = row
		}
	}
	return nil
}

func (i inspector) replicas() error {
	if i.table.Cluster == "" {
		return nil
	}
	cluster := QuoteString(i.table.Cluster)
	var shards []struct {
		Count uint64 `ch:"shards"`
	}
	if err := i.conn.Select(i.ctx, &shards, "SELECT uniqExact(shard_num) AS shards FROM system.clusters WHERE cluster = "+cluster); err != nil {
		return err
	}
	if len(shards) == 1 {
		i.state.Shards = shards[0].Count
	}
	if i.state.Shards == 0 {
		return nil // said by Diff; the next query would only repeat it less clearly
	}
	return i.conn.Select(i.ctx, &i.state.Replicas, fmt.Sprintf(
		"SELECT hostName() || ':' || toString(tcpPort()) AS host, name, type FROM clusterAllReplicas(%s, system.columns) WHERE database = %s AND table = %s ORDER BY host, position",
		cluster, QuoteString(i.table.Database), QuoteString(i.table.Physical())))
}

// column returns the table's column of that name.
func (t *TableState) column(name string) (ColumnState, bool) {
	for _, c := range t.Columns {
		if c.Name == name {
			return c, true
		}
	}
	return ColumnState{}, false
}

var fenceRule = regexp.MustCompile("CONSTRAINT `?" + FenceName + "`? CHECK `?" + ColumnGeneration + "`? >= (\\d+)")

// fence returns the generation below which the server refuses rows.
func (t *TableState) fence() (generation uint64, ok bool) {
	m := fenceRule.FindStringSubmatch(t.Create)
	if m == nil {
		return 0, false
	}
	generation, err := strconv.ParseUint(m[1], 10, 64)
	return generation, err == nil
}

// expires reports whether the values of a column have a TTL of their own. The
// server tells it in the statement alone, where it prints the names of columns
// between quotes. A statement that is not understood has one if it says TTL
// anywhere: what could change values in silence is not passed over.
func (t *TableState) expires(column string) bool {
	tokens, err := tokenize(t.Create)
	if err != nil {
		return strings.Contains(t.Create, " TTL ")
	}
	depth, first := 0, token{}
	for i, k := range tokens {
		switch {
		case k.kind == tokenSymbol && k.text == "(":
			if depth++; depth == 1 {
				first = tokens[i+1]
			}
		case k.kind == tokenSymbol && k.text == ")":
			if depth--; depth == 0 {
				return false // the list of columns ends
			}
		case k.kind == tokenSymbol && k.text == "," && depth == 1:
			first = tokens[i+1]
		case k.kind == tokenName && k.text == "TTL" && depth == 1:
			if first.kind == tokenQuotedName && first.text == column && endsExpression(tokens[i-1]) {
				return true
			}
		}
	}
	return false
}
