package clickhouse

import (
	"fmt"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

// flushBytes is how much of a block is collected before it is written. A block
// goes out column by column, so that a connection needs memory for its largest
// column and not for all of them, and the server reads while the next column
// is encoded.
const flushBytes = 256 << 10

// block is one insert under way; its columns share it.
type block struct {
	from, to int
	conn     *bounded
	accepted bool  // the server has asked for the rows
	refused  error // the first reason not to send them
}

// column gives one of mapping's columns to ch-go, in the form ch-go asks of
// its own: it names its type, checks it against the table's, and appends its
// bytes.
type column struct {
	*mapping.Values
	block *block
}

// input is the block's columns as ch-go takes them.
func (b *block) input(rows *mapping.Rows) proto.Input {
	columns := rows.Columns()
	input := make(proto.Input, len(columns))
	for i, c := range columns {
		input[i] = proto.InputColumn{Name: c.Name(), Data: column{c, b}}
	}
	return input
}

func (c column) Type() proto.ColumnType { return proto.ColumnType(c.Values.Type().String()) }
func (c column) Rows() int              { return c.block.to - c.block.from }

// Infer is told the type of the table's column before anything is sent.
// Without this check the server converts what differs, and wraps the numbers
// that do not fit.
func (c column) Infer(table proto.ColumnType) error {
	c.block.accepted = true
	if table == c.Type() {
		return nil
	}
	own := c.Values.Type()
	if t, err := chschema.ParseType(string(table)); err == nil && (t.Equal(own) || t.ExtendsEnum(own)) {
		return nil // a longer Enum is what a roll-back of the configuration leaves
	}
	err := &projector.InsertError{
		Class: projector.Refresh,
		Message: fmt.Sprintf("column %s is %s in the table and %s in the configuration: change one of them, `projector schema plan` shows how",
			c.Name(), table, c.Type()),
	}
	if c.block.refused == nil {
		c.block.refused = err
		// The reader would wait for the server's next packet until the deadline.
		c.block.conn.expire()
	}
	return err
}

func (c column) EncodeState(b *proto.Buffer) { b.Buf = c.AppendState(b.Buf) }

// EncodeColumn appends the whole column, for a block that is compressed.
func (c column) EncodeColumn(b *proto.Buffer) {
	b.Buf = c.AppendNative(b.Buf, c.block.from, c.block.to)
}

// WriteColumn appends the column and writes what has been collected.
func (c column) WriteColumn(w *proto.Writer) {
	pending := 0
	w.ChainBuffer(func(b *proto.Buffer) {
		c.EncodeColumn(b)
		pending = len(b.Buf)
	})
	if pending >= flushBytes {
		_, _ = w.Flush() // writing to a bounded connection does not fail
	}
}
