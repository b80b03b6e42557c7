package mapping

import (
	"encoding/binary"
	"time"

	"github.com/chprojector/projector/chschema"
)

// Lineage says where a row comes from.
type Lineage struct {
	Topic     string
	Partition int32
	Offset    int64
	// Timestamp is the record's own, in milliseconds; the zero time without a record. It is no column: it tells a
	// record from another one at the same place, as in a topic that was deleted and created again.
	Timestamp time.Time
	Origin    string // stream, backfill:ID, repair:ID, replay:ID, rebuild:ID
}

// Rows is a columnar batch. It belongs to one goroutine at a time and keeps
// its memory from one batch to the next.
type Rows struct {
	plan    *Plan
	data    []column // the business columns
	key     []keyed  // those of the identity, and the version
	columns []*Values
	dynamic []column // those of the columns whose values differ in size
	width   int      // bytes of a row in all others
	n       int
	unknown uint64

	topic, origin                 *lowCardinality
	partition, offset, generation *integerColumn
	timestamps                    []int64 // milliseconds since 1970; not inserted
	last                          Lineage // of the youngest row

	scan     scanner
	seen     []uint64 // by field: the event in which it was last met
	stamp    uint64   // of this event
	guess    []uint16 // by field: the one that follows
	filled   int      // columns that have a value of this event
	checking bool     // only syntax and schema version are looked at

	blameColumn int // where the failure lies: a business column or -1
	blamePath   string

	conflicts conflictTable
}

// Values is one column of a [Rows].
type Values struct {
	name string
	typ  chschema.Type
	column
}

// NewRows returns an empty batch for rows of this plan.
func (p *Plan) NewRows() *Rows {
	r := &Rows{
		plan:  p,
		seen:  make([]uint64, p.fields),
		guess: make([]uint16, p.guesses),
	}
	for _, c := range p.columns {
		column := newColumn(c.typ, c.options)
		r.data = append(r.data, column)
		r.add(c.name, c.typ, column)
	}
	for _, i := range p.identity {
		r.key = append(r.key, r.data[i].(keyed))
	}
	r.key = append(r.key, r.data[p.version].(keyed))
	plain := &options{unit: -1}
	lowString := chschema.Type{Kind: chschema.KindLowCardinality, Elem: []chschema.Type{{Kind: chschema.KindString}}}
	lineage := func(name string, t chschema.Type) column {
		c := newColumn(t, plain)
		r.add(name, t, c)
		return c
	}
	r.topic = lineage("_topic", lowString).(*lowCardinality)
	r.partition = lineage("_partition", chschema.Type{Kind: chschema.KindInt32}).(*integerColumn)
	r.offset = lineage("_offset", chschema.Type{Kind: chschema.KindInt64}).(*integerColumn)
	r.origin = lineage("_origin", lowString).(*lowCardinality)
	r.generation = lineage("_generation", chschema.Type{Kind: chschema.KindUInt32}).(*integerColumn)
	return r
}

func (r *Rows) add(name string, t chschema.Type, c column) {
	r.columns = append(r.columns, &Values{name: name, typ: t, column: c})
	if size := t.Size(); size > 0 {
		r.width += size
	} else {
		r.dynamic = append(r.dynamic, c)
	}
}

// Len returns the number of rows.
func (r *Rows) Len() int { return r.n }

// Size returns the bytes of data held, lineage included.
func (r *Rows) Size() int {
	size := r.n * (r.width + 8) // 8: the timestamp
	for _, c := range r.dynamic {
		size += c.size()
	}
	return size
}

// UnknownFields returns how many fields of the rows' events no column reads,
// counted since Reset.
func (r *Rows) UnknownFields() uint64 { return r.unknown }

// Reset forgets all rows and keeps the memory.
func (r *Rows) Reset() {
	for _, c := range r.columns {
		c.truncate(0)
	}
	r.timestamps = r.timestamps[:0]
	r.n, r.unknown, r.last = 0, 0, Lineage{}
	r.scan.names.reset(nil)
}

// Columns returns what to insert, in order: the business columns, then
// _topic, _partition, _offset, _origin and _generation. The slice must not be
// changed; it is the same for the life of the Rows.
func (r *Rows) Columns() []*Values { return r.columns }

// Plan returns the plan whose rows these are.
func (r *Rows) Plan() *Plan { return r.plan }

// Lineage returns where row i comes from.
func (r *Rows) Lineage(i int) Lineage {
	return Lineage{
		Topic:     string(r.topic.appendText(nil, i, false)),
		Partition: int32(binary.LittleEndian.Uint32(r.partition.at(i))),
		Offset:    int64(binary.LittleEndian.Uint64(r.offset.at(i))),
		Timestamp: time.UnixMilli(r.timestamps[i]).UTC(),
		Origin:    string(r.origin.appendText(nil, i, false)),
	}
}

// Identity names the record of row i for people: "data_id=5, region=eu".
func (r *Rows) Identity(i int) string {
	var b []byte
	for k, c := range r.plan.identity {
		if k > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, r.plan.columns[c].name...), '=')
		b = r.data[c].appendText(b, i, false)
	}
	return string(b)
}

// Version returns the version of row i.
func (r *Rows) Version(i int) string { return r.columns[r.plan.version].Format(i) }

// Format returns the value of a column in row i as ClickHouse prints it, ""
// if there is no such column.
func (r *Rows) Format(i int, column string) string {
	for _, c := range r.columns {
		if c.name == column {
			return c.Format(i)
		}
	}
	return ""
}

// Name returns the column's name.
func (v *Values) Name() string { return v.name }

// Type returns the column's type.
func (v *Values) Type() chschema.Type { return v.typ }

// AppendState appends what ClickHouse's native format has before a column's
// data: the version of the keys of each LowCardinality in it, else nothing.
func (v *Values) AppendState(dst []byte) []byte { return v.appendState(dst) }

// AppendNative appends the values of rows [from,to) in ClickHouse's native
// column format, without the state.
func (v *Values) AppendNative(dst []byte, from, to int) []byte { return v.appendNative(dst, from, to) }

// Format returns the value of row i as ClickHouse prints it: NULL for NULL, a
// time in the zone of its type (UTC if that names none), and texts within
// arrays, maps and tuples between quotes.
func (v *Values) Format(i int) string { return string(v.appendText(nil, i, false)) }

// begin prepares for the next event.
func (r *Rows) begin(value []byte) {
	r.scan.begin(value)
	r.stamp++
	r.filled = 0
	r.blameColumn, r.blamePath = -1, ""
}

// blame notes where the failure lies. It returns false, for the caller to return.
func (r *Rows) blame(column int, path string) bool {
	r.blameColumn, r.blamePath = column, path
	return false
}

// undo takes back what a failed event has left in the columns.
func (r *Rows) undo() {
	for _, c := range r.data {
		c.truncate(r.n)
	}
}

// commit completes the row.
func (r *Rows) commit(at Lineage) {
	if r.n > 0 && at.Topic == r.last.Topic {
		r.topic.repeat()
	} else {
		r.topic.appendString(at.Topic)
	}
	if r.n > 0 && at.Origin == r.last.Origin {
		r.origin.repeat()
	} else {
		r.origin.appendString(at.Origin)
	}
	r.last = at
	r.partition.data = binary.LittleEndian.AppendUint32(r.partition.data, uint32(at.Partition))
	r.offset.data = binary.LittleEndian.AppendUint64(r.offset.data, uint64(at.Offset))
	r.generation.data = binary.LittleEndian.AppendUint32(r.generation.data, r.plan.spec.Generation)
	r.timestamps = append(r.timestamps, at.Timestamp.UnixMilli())
	r.unknown += r.scan.unknownFields
	r.n++
}
