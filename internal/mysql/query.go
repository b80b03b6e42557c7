package mysql

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Query is a SELECT of the configuration, of which the rows of one campaign are
// read in the order of a key.
type Query struct {
	SQL      string
	Campaign any      // what stands for each question mark: a text or an integer
	Key      []string // the columns of the result that say which record a row is about
	Numbers  []bool   // by column of the key: a number, whatever its notation; nil = none but those whose type says so
}

// Column is one column of a query's result.
type Column struct {
	Name string
	// Type is the server's: BIGINT, UNSIGNED BIGINT, DECIMAL, DATETIME,
	// TIMESTAMP, VARCHAR, …
	Type string
}

// IsInteger reports whether the values are integers of up to 64 bits.
func (c Column) IsInteger() bool {
	switch strings.TrimPrefix(c.Type, "UNSIGNED ") {
	case "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "YEAR":
		return true
	}
	return false
}

// IsText reports whether the values are characters and not bytes.
func (c Column) IsText() bool {
	switch c.Type {
	case "CHAR", "VARCHAR", "TEXT", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET", "JSON":
		return true
	}
	return false
}

// Layout is what a query's result looks like.
type Layout struct {
	Columns []Column
	key     []int // indices of the key's columns
	marks   int   // question marks
}

// Find returns the index of the column of that name, -1 if there is none. Case
// matters, as it does in an event.
func (l *Layout) Find(name string) int {
	return slices.IndexFunc(l.Columns, func(c Column) bool { return c.Name == name })
}

// KeyColumn returns the first column of the key.
func (l *Layout) KeyColumn() Column { return l.Columns[l.key[0]] }

// KeyColumns returns the columns of the key.
func (l *Layout) KeyColumns() []Column {
	list := make([]Column, len(l.key))
	for i, c := range l.key {
		list[i] = l.Columns[c]
	}
	return list
}

// Describe asks the server what a query's result looks like. No row is read.
// Columns of the key that the result does not have are an error.
func (s *Session) Describe(ctx context.Context, q Query) (*Layout, error) {
	text := "SELECT * FROM (\n" + trimmed(q.SQL) + "\n) AS source_rows LIMIT 0"
	marks, err := s.parameters(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("shard %s: %w", s.Shard, err)
	}
	if marks == 0 {
		return nil, fmt.Errorf("shard %s: the query has no question mark, so it would give the rows of all campaigns for each one: %s", s.Shard, trimmed(q.SQL))
	}
	l := &Layout{marks: marks}
	rows, err := s.conn.QueryContext(ctx, text, slices.Repeat([]any{q.Campaign}, marks)...)
	if err != nil {
		return nil, fmt.Errorf("shard %s: %w", s.Shard, err)
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err != nil {
		return nil, fmt.Errorf("shard %s: %w", s.Shard, err)
	}
	for _, t := range types {
		l.Columns = append(l.Columns, Column{Name: t.Name(), Type: t.DatabaseTypeName()})
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("shard %s: %w", s.Shard, err)
	}
	for _, name := range q.Key {
		i := l.Find(name)
		if i < 0 {
			return nil, fmt.Errorf("shard %s: the result has no column %s", s.Shard, name)
		}
		l.key = append(l.key, i)
	}
	return l, nil
}

// Count returns how many rows a query has.
func (s *Session) Count(ctx context.Context, q Query, l *Layout) (n int64, err error) {
	text := "SELECT COUNT(*) FROM (\n" + trimmed(q.SQL) + "\n) AS source_rows"
	if err := s.conn.QueryRowContext(ctx, text, slices.Repeat([]any{q.Campaign}, l.marks)...).Scan(&n); err != nil {
		return 0, fmt.Errorf("shard %s: count the rows: %w", s.Shard, err)
	}
	return n, nil
}

// Exists reports whether a query has any row.
func (s *Session) Exists(ctx context.Context, q Query, l *Layout) (bool, error) {
	text := "SELECT 1 FROM (\n" + trimmed(q.SQL) + "\n) AS source_rows LIMIT 1"
	rows, err := s.conn.QueryContext(ctx, text, slices.Repeat([]any{q.Campaign}, l.marks)...)
	if err != nil {
		return false, fmt.Errorf("shard %s: %w", s.Shard, err)
	}
	defer rows.Close()
	exists := rows.Next()
	if err := rows.Err(); err != nil {
		return false, fmt.Errorf("shard %s: %w", s.Shard, err)
	}
	return exists, nil
}

// Key is the texts of a row's key, nil for NULL. It survives JSON byte by byte.
type Key [][]byte

// Clone copies k into the memory of dst.
func (k Key) Clone(dst Key) Key {
	dst = slices.Grow(dst[:0], len(k))[:len(k)]
	for i, text := range k {
		if text == nil {
			dst[i] = nil
			continue
		}
		dst[i] = append(dst[i][:0], text...)
		if dst[i] == nil {
			dst[i] = []byte{}
		}
	}
	return dst
}

// Statement returns what reads a query's rows in key order, those after a key
// only if there is one, and of these only the given keys if there are any. Where
// a record's key may be written in several ways it finds all of them, and may
// find a few rows more: the caller looks which record they are of.
//
// The key is ordered by number where it is an integer, and by its bytes
// anywhere else: in an order that every shard, whatever its collations, and
// this program agree on. Then equal keys of several shards meet, and a read that
// was cut off goes on at the right row. Integers, which most identities are,
// come out of an index in this order; others are sorted by the server.
func (q Query) Statement(l *Layout, after Key, only []Key) (text string, args []any) {
	args = slices.Repeat([]any{q.Campaign}, l.marks)
	expressions := make([]string, len(l.key))
	for i, c := range l.key {
		expressions[i] = ordered(l.Columns[c])
	}
	var where []string
	if after != nil && !slices.ContainsFunc(after, func(b []byte) bool { return b == nil }) {
		condition, values := beyond(l, expressions, after)
		where, args = append(where, condition), append(args, values...)
	}
	if only != nil {
		var either []string
		for _, key := range only {
			var all []string
			for i, c := range l.key {
				condition, values := equal(l.Columns[c], expressions[i], i < len(q.Numbers) && q.Numbers[i], key[i])
				all, args = append(all, condition), append(args, values...)
			}
			either = append(either, "("+strings.Join(all, " AND ")+")")
		}
		where = append(where, "("+strings.Join(either, " OR ")+")")
	}
	text = "SELECT * FROM (\n" + trimmed(q.SQL) + "\n) AS source_rows"
	if len(where) > 0 {
		text += "\nWHERE " + strings.Join(where, " AND ")
	}
	return text + "\nORDER BY " + strings.Join(expressions, ", "), args
}

// beyond is "the key is after this one", written so that an index on the first
// column can be used: servers do not look into a comparison of rows.
func beyond(l *Layout, expressions []string, after Key) (condition string, args []any) {
	var either []string
	for n := range expressions {
		var all []string
		for i := range n {
			all = append(all, expressions[i]+" = ?")
			args = append(args, bound(l.Columns[l.key[i]], after[i]))
		}
		all = append(all, expressions[n]+" > ?")
		args = append(args, bound(l.Columns[l.key[n]], after[n]))
		either = append(either, strings.Join(all, " AND "))
	}
	if len(expressions) == 1 {
		return either[0], args
	}
	condition = expressions[0] + " >= ? AND ((" + strings.Join(either, ") OR (") + "))"
	return condition, append([]any{bound(l.Columns[l.key[0]], after[0])}, args...)
}

func ordered(c Column) string {
	switch name := QuoteName(c.Name); {
	case c.IsInteger():
		return name
	case c.IsText():
		return "CAST(CONVERT(" + name + " USING utf8mb4) AS BINARY)"
	default:
		return "CAST(" + name + " AS BINARY)"
	}
}

// equal is the condition that a column of the key is a value. An index can be
// used wherever one could hold the value as it is written.
func equal(c Column, ordered string, number bool, text []byte) (condition string, args []any) {
	name, value := QuoteName(c.Name), bound(c, text)
	_, written := value.([]byte)
	switch {
	case c.IsInteger() && !written:
		return name + " = ?", []any{value}
	case c.IsInteger(), c.Type == "DECIMAL": // beside a text both would become floating-point numbers
		return name + " = " + decimal("?", text), []any{value}
	case number:
		return decimal(name, text) + " = " + decimal("?", text), []any{value}
	case c.IsText() && bytes.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }): // the column's character set may lack it
		return ordered + " = ?", []any{value}
	case c.IsText(): // a collation takes A for a
		return name + " = ? AND " + ordered + " = ?", []any{value, value}
	case c.Type == "BINARY": // filled up by the server
		return "(" + name + " = ? OR TRIM(TRAILING x'00' FROM " + name + ") = ?)", []any{value, value}
	}
	return name + " = ?", []any{value}
}

// decimal is an expression as an exact number with as many decimals as text has.
func decimal(expression string, text []byte) string {
	_, decimals, _ := strings.Cut(string(text), ".")
	return fmt.Sprintf("CAST(%s AS DECIMAL(65,%d))", expression, min(30, len(strings.TrimRight(decimals, "0"))))
}

// bound is a key's text as an argument: integers as such, because a text beside
// one would be compared as a floating-point number.
func bound(c Column, text []byte) any {
	if c.IsInteger() {
		if n, err := strconv.ParseUint(string(text), 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			return n
		}
	}
	return slices.Clone(text)
}

// trimmed drops a semicolon that would end the statement within the brackets.
func trimmed(query string) string { return strings.TrimRight(query, "; \t\r\n") }
