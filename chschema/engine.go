package chschema

import (
	"fmt"
	"strings"
)

// engineClause is the server's engine_full, taken apart.
type engineClause struct {
	name     string
	args     []expression // without the Keeper path and the replica's name
	ttl      bool
	settings map[string]string
}

// parseEngine reads engine_full as system.tables prints it, such as
//
//	ReplicatedReplacingMergeTree('/path', '{replica}', version) PARTITION BY a % 8 ORDER BY (a, b) TTL … SETTINGS x = 1, y = '2'
//
// Key expressions are skipped: the server prints them in columns of their own.
func parseEngine(s string) (engineClause, error) {
	tokens, err := tokenize(s)
	if err != nil {
		return engineClause{}, fmt.Errorf("engine %q: %w", s, err)
	}
	e := engineClause{settings: map[string]string{}}
	p := &expressionParser{tokens: tokens}
	head := p.next()
	if e.name = head.text; head.kind != tokenName {
		return engineClause{}, fmt.Errorf("engine %q: %w", s, unexpected(head))
	}
	if p.accept("(") {
		args, err := p.arguments()
		if err != nil {
			return engineClause{}, fmt.Errorf("engine %q: %w", s, err)
		}
		for _, a := range args {
			if a.kind != expressionString {
				e.args = append(e.args, a)
			}
		}
	}
	// The server prints its keywords in capitals and a column named ttl like
	// any other, so that only the place tells them apart: a clause follows a
	// whole expression.
	previous := token{kind: tokenSymbol, text: ")"}
	for depth := 0; ; {
		t := p.next()
		clause := depth == 0 && t.kind == tokenName && endsExpression(previous)
		previous = t
		switch {
		case t.kind == tokenEnd:
			return e, nil
		case t.kind == tokenSymbol && t.text == "(":
			depth++
		case t.kind == tokenSymbol && t.text == ")":
			depth--
		case clause && t.text == "TTL":
			e.ttl = true
		case clause && t.text == "SETTINGS":
			return e, p.settings(e.settings)
		}
	}
}

func endsExpression(t token) bool {
	switch t.kind {
	case tokenSymbol:
		return t.text == ")"
	case tokenName:
		return t.text != "BY" && t.text != "KEY" && t.text != "DEFAULT" && t.text != "MATERIALIZED" && t.text != "ALIAS"
	}
	return true
}

// settings reads name = value, … up to the end.
func (p *expressionParser) settings(into map[string]string) error {
	for {
		name := p.next()
		if name.kind != tokenName || !p.accept("=") {
			return unexpected(name)
		}
		value := p.next()
		text := value.text
		if value.kind == tokenSymbol && text == "-" {
			text += p.next().text
		}
		into[name.text] = text
		if !p.accept(",") {
			if t := p.peek(); t.kind != tokenEnd {
				return unexpected(t)
			}
			return nil
		}
	}
}

// sameSetting compares two spellings of a setting's value.
func sameSetting(kind, a, b string) bool {
	if kind == "Bool" {
		a, b = boolText(a), boolText(b)
	}
	return a == b
}

func boolText(s string) string {
	switch strings.ToLower(s) {
	case "true", "1":
		return "1"
	case "false", "0":
		return "0"
	}
	return s
}
