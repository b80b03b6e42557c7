package contract

import (
	"errors"
	"fmt"
	"strings"
)

// token is a piece of MySQL's SQL as far as queries must be read here.
type token struct {
	kind  tokenKind
	text  string // as written, quotes included
	pos   int    // byte offset
	depth int    // open parentheses around it; a parenthesis counts itself
}

type tokenKind uint8

const (
	tokenWord   tokenKind = iota // a name or a keyword
	tokenQuoted                  // a name in backquotes: never a keyword
	tokenNumber
	tokenString
	tokenSymbol // one byte
)

// is reports whether t is this keyword outside of parentheses.
func (t token) is(word string) bool {
	return t.kind == tokenWord && t.depth == 0 && strings.EqualFold(t.text, word)
}

// name is a name without its quotes.
func (t token) name() string {
	if t.kind == tokenQuoted || t.kind == tokenString {
		quote := t.text[:1]
		return strings.ReplaceAll(t.text[1:len(t.text)-1], quote+quote, quote)
	}
	return t.text
}

// endsOperand reports whether an alias may follow t.
func (t token) endsOperand() bool {
	switch t.kind {
	case tokenWord, tokenQuoted, tokenNumber, tokenString:
		return true
	case tokenSymbol:
	}
	return t.text == ")"
}

// tokenize reads the whole text. Comments are refused, because MySQL executes
// some of them; so are several statements.
func tokenize(s string) ([]token, error) {
	var tokens []token
	depth := 0
	for i := 0; i < len(s); {
		start, c := i, s[i]
		kind := tokenSymbol
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
			continue
		case c == '#', strings.HasPrefix(s[i:], "--"), strings.HasPrefix(s[i:], "/*"):
			return nil, fmt.Errorf("at byte %d: a comment; remove it", i)
		case c == ';':
			return nil, fmt.Errorf("at byte %d: a semicolon; write one statement without it", i)
		case c == '\'' || c == '"' || c == '`':
			n, err := quoted(s[i:])
			if err != nil {
				return nil, fmt.Errorf("at byte %d: %w", i, err)
			}
			i += n
			if kind = tokenString; c == '`' {
				kind = tokenQuoted
			}
		case isDigit(c):
			for i < len(s) && (isWord(s[i]) || s[i] == '.') {
				i++
			}
			kind = tokenNumber
		case isWord(c):
			for i < len(s) && isWord(s[i]) {
				i++
			}
			kind = tokenWord
		case c < ' ' || c == 0x7f || c == '\\':
			return nil, fmt.Errorf("at byte %d: %q has no place in a query", i, c)
		default:
			i++
		}
		t := token{kind, s[start:i], start, depth}
		switch {
		case kind == tokenSymbol && c == '(':
			depth++
			t.depth = depth
		case kind == tokenSymbol && c == ')':
			if depth--; depth < 0 {
				return nil, fmt.Errorf("at byte %d: a ) without its (", start)
			}
		}
		tokens = append(tokens, t)
	}
	if depth > 0 {
		return nil, errors.New("a ( without its )")
	}
	return tokens, nil
}

// quoted returns the length of the quoted text at the start of s. A quote
// inside is doubled, or follows a backslash except in a quoted name.
func quoted(s string) (int, error) {
	quote := s[0]
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote != '`':
			i++
		case s[i] != quote:
		case i+1 < len(s) && s[i+1] == quote:
			i++
		default:
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("the quote %c is not closed", quote)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) || c == '_' || c == '$' || c == '@' || c >= 0x80
}

// join writes tokens as they were, with one blank wherever there was white
// space: spelling apart, equal expressions are equal texts.
func join(tokens []token) string {
	var b strings.Builder
	for i, t := range tokens {
		if i > 0 && tokens[i-1].pos+len(tokens[i-1].text) < t.pos {
			b.WriteByte(' ')
		}
		b.WriteString(t.text)
	}
	return b.String()
}
