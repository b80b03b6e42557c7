package chschema

import "strings"

// QuoteName returns an identifier as ClickHouse reads it in a statement. It is always quoted: a column may be called
// from or group.
func QuoteName(name string) string { return string(appendQuoted(nil, name, '`')) }

// QuoteNames returns identifiers, separated by commas.
func QuoteNames(names []string) string { return list(names, QuoteName) }

// QuoteString returns a string literal as ClickHouse reads it in a statement, with exactly these bytes.
func QuoteString(s string) string { return string(appendQuoted(nil, s, '\'')) }

// QuoteStrings returns string literals, separated by commas.
func QuoteStrings(literals []string) string { return list(literals, QuoteString) }

func list(texts []string, quote func(string) string) string {
	quoted := make([]string, len(texts))
	for i, s := range texts {
		quoted[i] = quote(s)
	}
	return strings.Join(quoted, ", ")
}
