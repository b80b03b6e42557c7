// Package chschema holds a projection's ClickHouse table and its views as
// data: which designs are safe, their DDL as text, what a server has, what
// would have to change, and what must not.
//
// A table is a ReplacingMergeTree on the record's version. Readers use views,
// which read it with FINAL and pin the settings that make FINAL right. Both are
// right only under rules that the server does not check: [Table.Validate]
// checks them before anything is created, [Inspect] and [Diff] check them
// again on what exists, and [Check] is what a consumer calls at start.
//
// The package imports no driver: it talks to a server through [Conn].
package chschema

import "context"

// Conn is a connection to a server. clickhouse-go's driver.Conn satisfies it:
// Select appends rows to a slice of structs whose fields carry `ch` tags.
type Conn interface {
	Exec(ctx context.Context, query string, args ...any) error
	Select(ctx context.Context, dest any, query string, args ...any) error
}
