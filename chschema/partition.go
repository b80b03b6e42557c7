package chschema

import (
	"maps"
	"slices"
	"strings"
)

// maxPartitionBy bounds the length of a partition expression, in bytes.
const maxPartitionBy = 1024

// plainFunctions give the same value for the same arguments on every server
// and for ever. The list names what is allowed, not what is forbidden: a
// server has more than a thousand functions and every release adds some, and
// one that is forgotten here costs a question, whereas one forgotten in a list
// of forbidden ones costs the reports. Left out on purpose: farmHash64 and
// everything else that may differ with the processor, dictionaries, floats,
// and functions that read a text or a number as a time, which needs a zone.
var plainFunctions = set("plus", "minus", "multiply", "modulo", "positiveModulo", "intDiv", "abs", "greatest", "least",
	"bitAnd", "bitOr", "bitXor", "bitShiftLeft", "bitShiftRight",
	"cityHash64", "sipHash64", "xxHash32", "xxHash64", "murmurHash2_32", "murmurHash2_64", "murmurHash3_32",
	"murmurHash3_64", "intHash32", "intHash64", "CRC32", "javaHash", "jumpConsistentHash",
	"substring", "left", "right", "lower", "upper", "length", "tuple",
	"toUInt8", "toUInt16", "toUInt32", "toUInt64", "toInt8", "toInt16", "toInt32", "toInt64")

// dateFunctions read a date, or a time in a zone.
var dateFunctions = set("toDate", "toYear", "toISOYear", "toQuarter", "toMonth", "toISOWeek", "toYYYYMM", "toYYYYMMDD",
	"toDayOfYear", "toDayOfMonth", "toDayOfWeek", "toMonday", "toStartOfYear", "toStartOfISOYear", "toStartOfQuarter",
	"toStartOfMonth", "toStartOfWeek")

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// valueKind is what a partition rule must know of a value.
type valueKind uint8

const (
	valuePlain valueKind = iota
	valueDate            // Date, Date32, or a time whose column names its zone
	valueNaive           // a time without a zone: its date changes with the server's
)

// checkPartition reports every way in which PartitionBy is not a function of
// the order key. Two versions of one record in different partitions are never
// merged, and do_not_merge_across_partitions_select_final, which the views
// set, would show both.
func (t Table) checkPartition(p *problems) {
	if t.PartitionBy == "" {
		return
	}
	if len(t.PartitionBy) > maxPartitionBy {
		p.add("partition_by has %d bytes; at most %d are allowed", len(t.PartitionBy), maxPartitionBy)
		return
	}
	e, err := parseExpression(t.PartitionBy)
	if err != nil {
		p.add("partition_by %q: %w; it may use order_by columns, literals, + - * %% and the functions %s",
			t.PartitionBy, err, functionNames())
		return
	}
	c := partitionChecker{table: t, problems: p}
	before := len(*p)
	c.walk(e)
	if len(*p) == before && !c.column {
		c.add("it uses no column, so there would be one partition; leave partition_by empty")
	}
}

type partitionChecker struct {
	table    Table
	column   bool
	problems *problems
}

func (c *partitionChecker) add(format string, args ...any) {
	c.problems.add("partition_by %q: "+format, append([]any{c.table.PartitionBy}, args...)...)
}

func (c *partitionChecker) walk(e expression) valueKind {
	switch e.kind {
	case expressionColumn:
		c.column = true
		return c.columnKind(e.text)
	case expressionCall:
		kinds := make([]valueKind, len(e.args))
		for i, a := range e.args {
			kinds[i] = c.walk(a)
		}
		return c.call(e, kinds)
	}
	return valuePlain
}

func (c *partitionChecker) columnKind(name string) valueKind {
	if !slices.Contains(c.table.OrderBy, name) {
		if strings.EqualFold(name, "select") {
			c.add("a sub-select is no function of the row; use order_by columns")
		} else {
			c.add("%s is not an order_by column: versions of one record could lie in different partitions, "+
				"where they are never replaced; use order_by columns or add %s to order_by if it never changes for a record", name, name)
		}
		return valuePlain
	}
	column, _ := c.table.Column(name)
	switch kind := column.Type.Kind; {
	case kind == KindDate || kind == KindDate32:
		return valueDate
	case kind != KindDateTime && kind != KindDateTime64:
		return valuePlain
	case column.Type.Zone == "":
		return valueNaive
	}
	return valueDate
}

func (c *partitionChecker) call(e expression, kinds []valueKind) valueKind {
	switch {
	case plainFunctions[e.text]:
		if (e.text == "plus" || e.text == "minus") && slices.Contains(kinds, valueNaive) {
			return valueNaive
		}
		if (e.text == "plus" || e.text == "minus") && slices.Contains(kinds, valueDate) {
			return valueDate
		}
		return valuePlain
	case !dateFunctions[e.text]:
		c.add("%s is not among the functions known to give the same value for the same row for ever; these are: %s",
			e.text, functionNames())
		return valuePlain
	case len(e.args) == 0 || kinds[0] == valuePlain && !c.unknown(e.args[0]):
		c.add("%s must read a date or a time; a number or a text becomes one by the session's time zone", e.text)
	case kinds[0] == valueNaive && (len(e.args) < 2 || e.args[len(e.args)-1].kind != expressionString):
		c.add("%s reads a time without a zone, whose date depends on the server's time zone or on that of the session that "+
			"created the table; name the zone in the column's type or as the last argument, such as %s(%s, 'UTC')", e.text, e.text, e.args[0].source())
	}
	return valueDate
}

// unknown reports whether e is a column already refused, so that one slip is
// reported once.
func (c *partitionChecker) unknown(e expression) bool {
	return e.kind == expressionColumn && !slices.Contains(c.table.OrderBy, e.text)
}

// source is how a column or a call is written, for messages.
func (e expression) source() string {
	if e.kind == expressionColumn {
		return e.text
	}
	return e.String()
}

func functionNames() string {
	list := slices.Concat(slices.Collect(maps.Keys(plainFunctions)), slices.Collect(maps.Keys(dateFunctions)))
	slices.SortFunc(list, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return strings.Join(list, ", ")
}

// samePartition reports whether two partition expressions are the same however
// they are written. One that cannot be parsed equals only its own text.
func samePartition(a, b string) bool {
	if a == b {
		return true
	}
	ea, errA := parseExpression(a)
	eb, errB := parseExpression(b)
	return errA == nil && errB == nil && ea.String() == eb.String()
}
