package mysql

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Query is a SELECT of the configuration, of which the rows of one campaign are
// read in the order of a key.
type Query struct {
	SQL      string
	Campaign any      // what stands for each question mark: a text or an integer
	Key      []string // the columns of the result that say which record a row is about
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
// only if there is one, and of these only the given keys if there are any.
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
				all = append(all, quote(l.Columns[c].Name)+" = "+typedMark(l.Columns[c]))
				args = append(args, bound(l.Columns[c], key[i]))
				if l.Columns[c].IsText() { // a collation takes A for a
					all = append(all, expressions[i]+" = ?")
					args = append(args, bound(l.Columns[c], key[i]))
				}
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
	switch name := quote(c.Name); {
	case c.IsInteger():
		return name
	case c.IsText():
		return "CAST(CONVERT(" + name + " USING utf8mb4) AS BINARY)"
	default:
		return "CAST(" + name + " AS BINARY)"
	}
}

// typedMark is a question mark that is compared as the column's type: a text
// beside a decimal would make floating-point numbers of both.
func typedMark(c Column) string {
	if c.Type == "DECIMAL" {
		return "CAST(? AS DECIMAL(65, 30))"
	}
	return "?"
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

func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
