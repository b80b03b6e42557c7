package main

import (
	"fmt"
	"slices"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/chprojector/projector/internal/fitness"
)

// block is one insert of the sample projection, prepared once and sent again and again.
type block struct {
	rows   int
	dataID proto.ColUInt64
	input  proto.Input // data_id first
}

// from returns a copy whose rows are of the record firstID and those after it. It shares all other columns.
func (b *block) from(firstID uint64) *block {
	c := &block{rows: b.rows, dataID: make(proto.ColUInt64, b.rows), input: slices.Clone(b.input)}
	for i := range c.dataID {
		c.dataID[i] = firstID + uint64(i)
	}
	c.input[0].Data = &c.dataID
	return c
}

// next makes the rows other records than those of the last insert, as a real stream's rows are: otherwise merges would
// throw nearly all of them away and the server would have less to do for the limit than for the others.
func (b *block) next() {
	for i := range b.dataID {
		b.dataID[i] += uint64(b.rows)
	}
}

// newBlock fills a block with the sample domain's events. Every column but data_id is frozen.
func newBlock(rows int) (*block, error) {
	g, err := fitness.New(fitness.Config{Records: rows})
	if err != nil {
		return nil, err
	}
	var (
		detectID, userID, version proto.ColUInt64
		projectID, generation     proto.ColUInt32
		result                    proto.ColDecimal64
		isDeleted                 proto.ColBool
		eventID                   proto.ColStr
		partition                 proto.ColInt32
		offset                    proto.ColInt64
	)
	unit, topic, origin := lowCardinality(), lowCardinality(), lowCardinality()
	b := &block{rows: rows, dataID: make(proto.ColUInt64, 0, rows)}
	for i := range rows {
		e := g.At(i)
		b.dataID.Append(e.DataID)
		detectID.Append(e.DetectID)
		userID.Append(e.UserID)
		projectID.Append(e.ProjectID)
		version.Append(e.Version)
		result.Append(proto.Decimal64(e.Result))
		unit.Append(e.Unit)
		isDeleted.Append(e.IsDeleted)
		eventID.Append(fmt.Sprintf("fitness-result-%d-v%d", e.DataID, e.Version))
		topic.Append("fitness-results")
		partition.Append(int32(i % 4))
		offset.Append(int64(i))
		origin.Append("stream")
		generation.Append(1)
	}
	b.input = proto.Input{
		{Name: "data_id", Data: &b.dataID},
		{Name: "detect_id", Data: freeze("UInt64", &detectID)},
		{Name: "user_id", Data: freeze("UInt64", &userID)},
		{Name: "project_id", Data: freeze("UInt32", &projectID)},
		{Name: "version", Data: freeze("UInt64", &version)},
		{Name: "result", Data: freeze("Decimal(18, 3)", &result)},
		{Name: "unit", Data: freeze("LowCardinality(String)", unit)},
		{Name: "is_deleted", Data: freeze("Bool", &isDeleted)},
		{Name: "event_id", Data: freeze("String", &eventID)},
		{Name: "_topic", Data: freeze("LowCardinality(String)", topic)},
		{Name: "_partition", Data: freeze("Int32", &partition)},
		{Name: "_offset", Data: freeze("Int64", &offset)},
		{Name: "_origin", Data: freeze("LowCardinality(String)", origin)},
		{Name: "_generation", Data: freeze("UInt32", &generation)},
	}
	return b, nil
}

func lowCardinality() *proto.ColLowCardinality[string] { return new(proto.ColStr).LowCardinality() }

// frozen is a column in its wire form. ch-go would look every value of a LowCardinality up again for each insert and
// copy every string; a frozen column costs one entry of the write vector.
type frozen struct {
	columnType  proto.ColumnType
	rows        int
	state, body []byte
}

func freeze(columnType proto.ColumnType, c proto.ColInput) *frozen {
	f := &frozen{columnType: columnType, rows: c.Rows()}
	var buffer proto.Buffer
	if p, ok := c.(proto.Preparable); ok {
		if err := p.Prepare(); err != nil {
			panic(err) // only an Enum with an unknown name
		}
	}
	if s, ok := c.(proto.StateEncoder); ok {
		s.EncodeState(&buffer)
		f.state = slices.Clone(buffer.Buf)
	}
	buffer.Reset()
	c.EncodeColumn(&buffer)
	f.body = buffer.Buf
	return f
}

// Type implements [proto.ColInput].
func (f *frozen) Type() proto.ColumnType { return f.columnType }

// Rows implements [proto.ColInput].
func (f *frozen) Rows() int { return f.rows }

// EncodeState implements [proto.StateEncoder].
func (f *frozen) EncodeState(b *proto.Buffer) { b.Buf = append(b.Buf, f.state...) }

// EncodeColumn implements [proto.ColInput]; ch-go calls it when it compresses.
func (f *frozen) EncodeColumn(b *proto.Buffer) { b.Buf = append(b.Buf, f.body...) }

// WriteColumn implements [proto.ColInput]; ch-go calls it when it does not compress.
func (f *frozen) WriteColumn(w *proto.Writer) { w.ChainWrite(f.body) }
