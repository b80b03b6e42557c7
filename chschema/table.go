package chschema

import (
	"fmt"
)

// Column is one column of a table.
type Column struct {
	Name string
	Type Type
}

// View is a report view of the configuration. Its query reads {current}, which
// stands for the table's view of current rows.
type View struct {
	Name  string
	Query string
}

// Table describes one generation of a projection's table, and its views.
type Table struct {
	Database string
	// Name is the base name: the table is [Table.Physical], the views add
	// _current, _versions, _conflicts and _freshness.
	Name       string
	Generation uint32 // from 1; raised by a rebuild, so that each has a table of its own

	Columns []Column // the business columns; chschema adds [LineageColumns]
	// Identity is what one record is. OrderBy contains it, and is the key by
	// which the server replaces rows: every further column in it must never
	// change for a record, else the record is there twice.
	Identity []string
	OrderBy  []string
	// PartitionBy is an expression over OrderBy columns; "" is no partition.
	PartitionBy string
	Version     string // an unsigned integer; the highest one of a record is its current row
	Deleted     string // Bool or UInt8, true where a version deletes its record; "" = no deletions
	Campaign    string // the column by which records are replayed and compared; "" = none
	Views       []View

	// Cluster makes the table a ReplicatedReplacingMergeTree created ON
	// CLUSTER. The cluster is one shard with any number of replicas: a record
	// whose versions are on two shards would be there twice. "" is one server.
	Cluster string
	// Settings are MergeTree settings, such as fsync_after_insert.
	Settings map[string]string
}

// Names of the lineage columns: where a row came from.
const (
	ColumnTopic      = "_topic"       // Kafka topic of the event
	ColumnPartition  = "_partition"   // its partition
	ColumnOffset     = "_offset"      // its offset
	ColumnIngestedAt = "_ingested_at" // when the server inserted the row, by its own clock
	ColumnOrigin     = "_origin"      // stream, backfill:ID, repair:ID, replay:ID or rebuild:ID
	ColumnGeneration = "_generation"  // the writer's generation, held by the fence
)

// OriginStream is the origin of a row that came from Kafka in the ordinary way.
const OriginStream = "stream"

// FenceName is the constraint that rejects the inserts (error 469) of a writer
// of an older generation.
const FenceName = "generation_fence"

// ingestedDefault fills _ingested_at: an insert does not send it, so that all
// rows carry the clock of one machine.
const ingestedDefault = "now64(3)"

// LineageColumns returns the columns that follow the business columns of every
// table. Names with a leading underscore are reserved for them.
func LineageColumns() []Column {
	text := Type{Kind: KindLowCardinality, Elem: []Type{{Kind: KindString}}}
	return []Column{
		{ColumnTopic, text},
		{ColumnPartition, Type{Kind: KindInt32}},
		{ColumnOffset, Type{Kind: KindInt64}},
		{ColumnIngestedAt, Type{Kind: KindDateTime64, Precision: 3, Zone: "UTC"}},
		{ColumnOrigin, text},
		{ColumnGeneration, Type{Kind: KindUInt32}},
	}
}

// Physical returns the name of the table that holds the rows, without the
// database.
func (t Table) Physical() string { return fmt.Sprintf("%s_g%d", t.Name, t.Generation) }

// Current returns the name of the view of current rows, without the database.
func (t Table) Current() string { return t.Name + "_current" }

// Versions returns the name of the view of all physical rows.
func (t Table) Versions() string { return t.Name + "_versions" }

// Conflicts returns the name of the view of rows that contradict each other.
func (t Table) Conflicts() string { return t.Name + "_conflicts" }

// Freshness returns the name of the view of the newest row of each partition.
func (t Table) Freshness() string { return t.Name + "_freshness" }

// Column returns the business column of that name.
func (t Table) Column(name string) (Column, bool) {
	for _, c := range t.Columns {
		if c.Name == name {
			return c, true
		}
	}
	return Column{}, false
}

// Qualified returns the name with the database, quoted for a statement.
func (t Table) Qualified(name string) string {
	return QuoteName(t.Database) + "." + QuoteName(name)
}

// allColumns returns business and lineage columns.
func (t Table) allColumns() []Column {
	return append(append([]Column(nil), t.Columns...), LineageColumns()...)
}

// onCluster is " ON CLUSTER `c`", or "".
func (t Table) onCluster() string {
	if t.Cluster == "" {
		return ""
	}
	return " ON CLUSTER " + QuoteName(t.Cluster)
}

func names(columns []Column) []string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = c.Name
	}
	return list
}
