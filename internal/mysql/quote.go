package mysql

import "strings"

// QuoteName returns an identifier as MySQL reads it in a statement.
func QuoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// QuoteString returns a string literal with exactly these bytes, under any sql_mode but NO_BACKSLASH_ESCAPES, which
// [Shard.Open] rules out.
func QuoteString(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
}
