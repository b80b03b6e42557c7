package backfill

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/mapping"
)

// Span is where in the table a chunk's rows are, to read little of it. The zero
// Span is anywhere.
type Span struct {
	Campaigns []string // as the column shows them
	// First and Last are the least and the greatest value of the identity's first column; "" where the order of the
	// source is not that of ClickHouse.
	First, Last string
}

// ReadBack counts what became of the rows that were inserted.
type ReadBack struct {
	Stored     int64 `json:"stored"`     // found in the table, each by its own number
	Superseded int64 `json:"superseded"` // merged away, or never needed: the table has a version of the record that is not older
	Resent     int64 `json:"resent"`     // chunks that were answered OK, not found, and inserted again
}

// lag is how long a replica may be behind the one that answered the insert.
const lag = 20 * time.Second

// readBack returns the first row that is neither in the table nor superseded,
// -1 if there is none.
//
// It proves, for each row and by reading, that the views show its version or a
// higher one. It does not prove that the row's content is right: that is
// reconcile's business, which does not ask the mapping.
func (w *Writer) readBack(ctx context.Context, rows *mapping.Rows, span Span, refused map[int]bool, back *ReadBack) (int, error) {
	n := rows.Len()
	if n == len(refused) {
		return -1, nil
	}
	deadline := time.Now().Add(lag)
	for pause := 10 * time.Millisecond; ; pause *= 2 {
		stored, superseded, missing, err := w.look(ctx, rows, span, refused)
		if err != nil {
			return -1, err
		}
		if missing < 0 || time.Now().Add(pause).After(deadline) || w.table.Cluster == "" {
			back.Stored += int64(stored)
			back.Superseded += int64(superseded)
			return missing, nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return -1, context.Cause(ctx)
		}
	}
}

func (w *Writer) look(ctx context.Context, rows *mapping.Rows, span Span, refused map[int]bool) (stored, superseded, missing int, err error) {
	where := w.where(span, rows)
	expected := rows.Len() - len(refused)
	// A count proves something only if no other chunk has a number between the first and the last of this one, as
	// happens where rows and deletions take turns.
	if first, last := bounds(rows); last-first+1 == int64(rows.Len()) {
		var count []struct {
			N uint64 `ch:"n"`
		}
		// Distinct numbers: an insert whose answer was lost was repeated, and its rows may be there twice.
		if err := w.conn.Select(ctx, &count, "SELECT uniqExact(_offset) AS n FROM "+w.name()+where+" SETTINGS final = 0"); err != nil {
			return 0, 0, -1, err
		}
		if len(count) == 1 && count[0].N == uint64(expected) {
			return expected, 0, -1, nil
		}
	}
	// Some may have been merged away already, or dropped. Which?
	var numbers []struct {
		Offset int64 `ch:"_offset"`
	}
	if err := w.conn.Select(ctx, &numbers, "SELECT DISTINCT _offset FROM "+w.name()+where+" SETTINGS final = 0"); err != nil {
		return 0, 0, -1, err
	}
	there := make(map[int64]bool, len(numbers))
	for _, n := range numbers {
		there[n.Offset] = true
	}
	var absent []int
	for i := range rows.Len() {
		if !refused[i] && !there[rows.Lineage(i).Offset] {
			absent = append(absent, i)
		}
	}
	for chunk := range slices.Chunk(absent, 1000) {
		lost, err := w.outdated(ctx, rows, chunk)
		if err != nil || lost >= 0 {
			return expected - len(absent), 0, lost, err
		}
	}
	return expected - len(absent), len(absent), -1, nil
}

// bounds are the first and the last number of the rows.
func bounds(rows *mapping.Rows) (first, last int64) {
	return rows.Lineage(0).Offset, rows.Lineage(rows.Len() - 1).Offset
}

func (w *Writer) name() string { return w.table.Qualified(w.table.Physical()) }

// where finds the rows of a chunk, and through the primary key where it can.
func (w *Writer) where(span Span, rows *mapping.Rows) string {
	first, last := bounds(rows)
	terms := []string{
		fmt.Sprintf("_offset BETWEEN %d AND %d", first, last),
		"_origin = " + chschema.QuoteString(w.origin),
		fmt.Sprintf("_partition = %d", w.run),
	}
	if len(span.Campaigns) > 0 && w.table.Campaign != "" {
		terms = append(terms, chschema.QuoteName(w.table.Campaign)+" IN ("+chschema.QuoteStrings(span.Campaigns)+")")
	}
	if span.First != "" && span.Last != "" {
		id := chschema.QuoteName(w.table.Identity[0])
		terms = append(terms, id+" >= "+chschema.QuoteString(span.First), id+" <= "+chschema.QuoteString(span.Last))
	}
	return " WHERE " + strings.Join(terms, " AND ")
}

// outdated returns the first of the rows for whose record the table has no
// version that is at least as high, -1 if it has one for each.
func (w *Writer) outdated(ctx context.Context, rows *mapping.Rows, which []int) (int, error) {
	identity := make([]string, len(w.table.Identity))
	texts := make([]string, len(w.table.Identity))
	for i, name := range w.table.Identity {
		identity[i] = chschema.QuoteName(name)
		texts[i] = "toString(" + chschema.QuoteName(name) + ")"
	}
	keys := make([]string, len(which))
	stays := slices.Contains(w.table.OrderBy, w.table.Campaign) // else a newer version may be in another campaign
	campaigns := map[string]bool{}
	var campaignList []string
	for i, row := range which {
		values := make([]string, len(w.table.Identity))
		for j, name := range w.table.Identity {
			values[j] = rows.Format(row, name)
		}
		keys[i] = "(" + chschema.QuoteStrings(values) + ")"
		if c := rows.Format(row, w.table.Campaign); stays && !campaigns[c] {
			campaigns[c] = true
			campaignList = append(campaignList, c)
		}
	}
	narrow := ""
	if len(campaignList) > 0 {
		narrow = chschema.QuoteName(w.table.Campaign) + " IN (" + chschema.QuoteStrings(campaignList) + ") AND "
	}
	var found []struct {
		Identity []string `ch:"identity"`
		Version  uint64   `ch:"version"`
	}
	err := w.conn.Select(ctx, &found, fmt.Sprintf("SELECT [%s] AS identity, toUInt64(max(%s)) AS version FROM %s WHERE %s(%s) IN (%s) GROUP BY %s SETTINGS final = 0",
		strings.Join(texts, ", "), chschema.QuoteName(w.table.Version), w.name(), narrow,
		strings.Join(identity, ", "), strings.Join(keys, ", "), strings.Join(identity, ", ")))
	if err != nil {
		return -1, err
	}
	newest := make(map[string]uint64, len(found))
	for _, f := range found {
		newest[chschema.QuoteStrings(f.Identity)] = f.Version
	}
	for i, row := range which {
		own, err := strconv.ParseUint(rows.Format(row, w.table.Version), 10, 64)
		if err != nil {
			return -1, fmt.Errorf("version of row %s: %w", rows.Identity(row), err)
		}
		if version, ok := newest[keys[i][1:len(keys[i])-1]]; !ok || version < own {
			return row, nil
		}
	}
	return -1, nil
}
