package chschema

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// token is a piece of ClickHouse SQL as far as this package reads it: the
// partition expression of a configuration, and what the server prints of a
// table's engine and keys.
type token struct {
	kind tokenKind
	text string // without quotes and escapes for a name or a string
	pos  int    // byte offset
}

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenName
	tokenQuotedName // never a keyword
	tokenNumber
	tokenString
	tokenSymbol // one byte
)

// tokenize refuses what it does not know, comments included.
func tokenize(s string) ([]token, error) {
	var tokens []token
	for i := 0; i < len(s); {
		c := s[i]
		start := i
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
			continue
		case isLetter(c):
			for i < len(s) && (isLetter(s[i]) || isDigit(s[i])) {
				i++
			}
			tokens = append(tokens, token{tokenName, s[start:i], start})
		case isDigit(c):
			for i < len(s) && (isLetter(s[i]) || isDigit(s[i]) || s[i] == '.') {
				i++
			}
			tokens = append(tokens, token{tokenNumber, s[start:i], start})
		case c == '\'' || c == '`' || c == '"':
			text, n, err := unquote(s[i:])
			if err != nil {
				return nil, fmt.Errorf("at byte %d: %w", start, err)
			}
			i += n
			kind := tokenQuotedName
			if c == '\'' {
				kind = tokenString
			}
			tokens = append(tokens, token{kind, text, start})
		case strings.IndexByte("()[]{},.+-*/%=<>!?:|", c) >= 0:
			i++
			tokens = append(tokens, token{tokenSymbol, s[start:i], start})
		default:
			r, _ := utf8.DecodeRuneInString(s[i:])
			return nil, fmt.Errorf("at byte %d: %q has no place in an expression", i, r)
		}
	}
	return append(tokens, token{tokenEnd, "", len(s)}), nil
}

// unquote reads a quoted text at the start of s and returns it with its length
// in s. A quote inside is doubled or follows a backslash.
func unquote(s string) (text string, n int, err error) {
	quote := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(unescape(s[i]))
		case c == quote && i+1 < len(s) && s[i+1] == quote:
			i++
			b.WriteByte(quote)
		case c == quote:
			return b.String(), i + 1, nil
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, fmt.Errorf("the quote %c is not closed", quote)
}

func unescape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case '0':
		return 0
	}
	return c
}
