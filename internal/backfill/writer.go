package backfill

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

// patience is how long an insert is repeated that fails for a reason which
// passes. A stream waits for ever; a command says in the end that it failed,
// and can be resumed.
const patience = 5 * time.Minute

// Writer inserts rows under one origin and reads each back. It belongs to one
// goroutine.
type Writer struct {
	inserter projector.Inserter
	conn     chschema.Conn
	table    chschema.Table
	origin   string
	run      uint32
	token    string
	blocks   int
}

// NewWriter makes a writer of rows of a table. origin is what they carry in
// _origin, such as backfill:ID; run tells the processes apart that have worked
// on one operation, from 1, and is what they carry in _partition. The inserter
// must be for the same table.
func NewWriter(inserter projector.Inserter, conn chschema.Conn, table chschema.Table, origin string, run uint32) *Writer {
	// The server may answer OK to a block that it has seen before and drop it, and a row that replaces a bad one is
	// often equal to one that was inserted long ago. So the token of a block is one that nobody has used.
	var b [8]byte
	_, _ = rand.Read(b[:])
	return &Writer{inserter: inserter, conn: conn, table: table, origin: origin, run: run, token: hex.EncodeToString(b[:])}
}

// Lineage is what a row must be appended with for this writer to find it again:
// the shard that it comes from, and a number that no other row of this writer has.
func (w *Writer) Lineage(shard string, sequence int64) mapping.Lineage {
	return mapping.Lineage{Topic: shard, Partition: int32(w.run), Offset: sequence, Origin: w.origin}
}

// Write inserts the rows, in blocks as small as the server asks for, and
// returns when each was found in the table, or a version of its record that is
// not older. Rows that the server itself refuses, by a constraint for example,
// go to refuse. The rows must be in the order of their sequence.
func (w *Writer) Write(ctx context.Context, rows *mapping.Rows, span Span, refuse func(row int, reason error)) (ReadBack, error) {
	var back ReadBack
	refused := map[int]bool{}
	reject := func(i int, reason *projector.InsertError) error {
		if !refused[i] {
			refused[i] = true
			refuse(i, reason)
		}
		return nil
	}
	for attempt := 0; ; attempt++ {
		w.blocks++
		block := w.blocks
		err := projector.Bisect(0, rows.Len(), func(from, to int) error {
			return w.insert(ctx, projector.Batch{Rows: rows, From: from, To: to, Token: fmt.Sprintf("%s-%d-%d-%d", w.token, block, from, to)})
		}, reject)
		if err != nil {
			return back, fmt.Errorf("insert %d rows into %s: %w", rows.Len(), w.table.Physical(), err)
		}
		missing, err := w.readBack(ctx, rows, span, refused, &back)
		if err != nil {
			return back, fmt.Errorf("read back %d rows of %s: %w", rows.Len(), w.table.Physical(), err)
		}
		if missing < 0 {
			return back, nil
		}
		if attempt > 0 {
			return back, fmt.Errorf("the server answered OK to %d rows, twice, and does not have row %s, version %s, in %s: is the answer that of a replica which does not replicate?",
				rows.Len(), rows.Identity(missing), rows.Format(missing, w.table.Version), w.table.Physical())
		}
		back.Resent++
	}
}

// insert repeats one block until it is answered.
func (w *Writer) insert(ctx context.Context, b projector.Batch) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := w.inserter.Insert(ctx, b)
		if e, ok := errors.AsType[*projector.InsertError](err); ok && e.Class != projector.Transient && e.Class != projector.Unknown {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(backoff.NewExponentialBackOff()), backoff.WithMaxElapsedTime(patience))
	return err
}
