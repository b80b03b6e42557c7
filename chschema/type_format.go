package chschema

import (
	"strconv"
	"strings"
)

// String returns t exactly as the column `type` of system.columns prints it
// (compared with ClickHouse 26.7), which is also valid in DDL.
func (t Type) String() string { return string(t.append(nil)) }

func (t Type) append(dst []byte) []byte {
	dst = append(dst, t.Kind.String()...)
	switch t.Kind {
	case KindDecimal:
		dst = append(dst, '(')
		dst = strconv.AppendInt(dst, int64(t.Precision), 10)
		dst = append(dst, ", "...)
		dst = strconv.AppendInt(dst, int64(t.Scale), 10)
		dst = append(dst, ')')
	case KindFixedString:
		dst = append(dst, '(')
		dst = strconv.AppendInt(dst, int64(t.Length), 10)
		dst = append(dst, ')')
	case KindDateTime:
		if t.Zone != "" {
			dst = append(appendQuoted(append(dst, '('), t.Zone, '\''), ')')
		}
	case KindDateTime64:
		dst = append(dst, '(')
		dst = strconv.AppendInt(dst, int64(t.Precision), 10)
		if t.Zone != "" {
			dst = appendQuoted(append(dst, ", "...), t.Zone, '\'')
		}
		dst = append(dst, ')')
	case KindEnum8, KindEnum16:
		dst = append(dst, '(')
		for i, v := range t.Enum {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendQuoted(dst, v.Name, '\'')
			dst = append(dst, " = "...)
			dst = strconv.AppendInt(dst, int64(v.Value), 10)
		}
		dst = append(dst, ')')
	case KindNullable, KindLowCardinality, KindArray, KindMap, KindTuple:
		dst = append(dst, '(')
		for i, e := range t.Elem {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			if i < len(t.Names) {
				dst = append(appendTupleName(dst, t.Names[i]), ' ')
			}
			dst = e.append(dst)
		}
		dst = append(dst, ')')
	}
	return dst
}

// appendTupleName quotes a name where the server does: when it is not a plain
// identifier, or one of the few keywords that would be ambiguous in a query.
func appendTupleName(dst []byte, name string) []byte {
	plain := name != ""
	for i := range len(name) {
		c := name[i]
		if !isLetter(c) && (i == 0 || !isDigit(c)) {
			plain = false
			break
		}
	}
	switch strings.ToLower(name) {
	case "all", "distinct", "from", "null", "select", "table", "values":
		plain = false
	}
	if plain {
		return append(dst, name...)
	}
	return appendQuoted(dst, name, '`')
}

// appendQuoted writes s between quotes with the escapes that the server
// prints; other control bytes stand as they are.
func appendQuoted(dst []byte, s string, quote byte) []byte {
	dst = append(dst, quote)
	for i := range len(s) {
		switch c := s[i]; c {
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case 0:
			dst = append(dst, `\0`...)
		case '\\', quote:
			dst = append(dst, '\\', c)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, quote)
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
