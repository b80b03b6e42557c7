package chschema

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// defaultSettings apply to a table on one server unless the configuration says
// otherwise. The deduplication window, which is 0 by default there and not in
// a replicated table, lets the server drop an insert that is sent again with
// the same token after its answer was lost.
var defaultSettings = map[string]string{"non_replicated_deduplication_window": "1000"}

// MergeTreeSettings returns the settings that the table is created with.
func (t Table) MergeTreeSettings() map[string]string {
	settings := map[string]string{}
	if t.Cluster == "" {
		maps.Copy(settings, defaultSettings)
	}
	maps.Copy(settings, t.Settings)
	return settings
}

// CreateTable returns the statement that creates the physical table.
func (t Table) CreateTable() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s%s\n(\n", t.Qualified(t.Physical()), t.onCluster())
	for _, c := range t.allColumns() {
		fmt.Fprintf(&b, "    %s,\n", columnDefinition(c))
	}
	fmt.Fprintf(&b, "    CONSTRAINT %s\n)\nENGINE = %s\n", t.fence(t.Generation), t.engine())
	if t.PartitionBy != "" {
		fmt.Fprintf(&b, "PARTITION BY %s\n", t.PartitionBy)
	}
	fmt.Fprintf(&b, "ORDER BY (%s)\n", QuoteNames(t.OrderBy))
	if settings := t.MergeTreeSettings(); len(settings) > 0 {
		fmt.Fprintf(&b, "SETTINGS %s\n", settingsList(settings))
	}
	fmt.Fprintf(&b, "COMMENT %s", QuoteString(fmt.Sprintf(
		"Every version of every record, generation %d. Query %s instead.", t.Generation, t.Current())))
	return b.String()
}

func columnDefinition(c Column) string {
	s := QuoteName(c.Name) + " " + c.Type.String()
	if c.Name == ColumnIngestedAt {
		s += " DEFAULT " + ingestedDefault
	}
	return s
}

// engine leaves the Keeper path and the replica's name to the server's
// default_replica_path and default_replica_name, which contain the table's
// UUID: no path is used twice, whatever was dropped before.
func (t Table) engine() string {
	name := "ReplacingMergeTree"
	if t.Cluster != "" {
		name = "ReplicatedReplacingMergeTree"
	}
	return name + "(" + QuoteName(t.Version) + ")"
}

// fence is the constraint that refuses rows of an older generation's writer.
func (t Table) fence(generation uint32) string {
	return fmt.Sprintf("%s CHECK %s >= %d", FenceName, QuoteName(ColumnGeneration), generation)
}

// RaiseFence returns the statement that closes this generation's table: from
// then on the server refuses (error 469) every writer below generation.
func (t Table) RaiseFence(generation uint32) string {
	return fmt.Sprintf("%s DROP CONSTRAINT IF EXISTS %s, ADD CONSTRAINT %s", t.alter(), FenceName, t.fence(generation))
}

// Drop returns the statement that removes this generation's table with all its
// rows. The views are left alone.
func (t Table) Drop() string {
	return "DROP TABLE IF EXISTS " + t.Qualified(t.Physical()) + t.onCluster() + " SYNC"
}

// alter begins an ALTER TABLE of the physical table.
func (t Table) alter() string {
	return "ALTER TABLE " + t.Qualified(t.Physical()) + t.onCluster()
}

// addColumn puts a column behind the one it follows in the configuration. Old
// rows read the type's default.
func (t Table) addColumn(c Column) string {
	position := " FIRST"
	if i := slices.Index(names(t.allColumns()), c.Name); i > 0 {
		position = " AFTER " + QuoteName(t.allColumns()[i-1].Name)
	}
	return t.alter() + " ADD COLUMN IF NOT EXISTS " + columnDefinition(c) + position
}

func (t Table) modifyColumn(c Column) string {
	return t.alter() + " MODIFY COLUMN " + columnDefinition(c)
}

func (t Table) modifySettings(settings map[string]string) string {
	return t.alter() + " MODIFY SETTING " + settingsList(settings)
}

func settingsList(settings map[string]string) string {
	var list []string
	for _, name := range sortedKeys(settings) {
		list = append(list, name+" = "+settingValue(settings[name]))
	}
	return strings.Join(list, ", ")
}

// settingValue leaves a number as it is and quotes anything else; the server
// reads 'true' and '64Mi' as well as it reads 1.
func settingValue(value string) string {
	if _, err := strconv.ParseFloat(value, 64); err == nil && strings.Trim(value, "0123456789.") == "" {
		return value
	}
	return QuoteString(value)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
