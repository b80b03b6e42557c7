package contract

import (
	"errors"
	"fmt"
	"strings"
)

// Query is a configured SELECT taken apart at FROM, so that another list can
// stand before it. The fields of a contract name columns of the tables, and the
// configured list gives those other names, so wrapping the query as a derived
// table would not do: its columns are the aliases.
type Query struct {
	items []item
	from  string // from the word FROM to the end
	marks int    // question marks in from
}

// item is one entry of the list.
type item struct {
	expr  string // normalised: one blank between tokens
	alias string // "" = none can be told
}

// errCannotRewrite ends with the remedy that always works.
func errCannotRewrite(what string) error {
	return fmt.Errorf("%s: the comparison puts its own list before FROM, which would mean something else here; "+
		"create a view of it in MySQL and SELECT … FROM that view WHERE … = ?", what)
}

// refusedWords change which rows there are or what a row is, or cannot stand
// inside a derived table.
var refusedWords = map[string]string{
	"UNION": "UNION", "EXCEPT": "EXCEPT", "INTERSECT": "INTERSECT", "MINUS": "MINUS",
	"GROUP": "GROUP BY", "HAVING": "HAVING", "ORDER": "ORDER BY", "LIMIT": "LIMIT", "OFFSET": "OFFSET", "FETCH": "FETCH",
	"WINDOW": "WINDOW", "PROCEDURE": "PROCEDURE", "INTO": "INTO", "FOR": "FOR", "LOCK": "LOCK", "SELECT": "a second SELECT",
	"WITH": "WITH", "VALUES": "VALUES", "QUALIFY": "QUALIFY", "RETURNING": "RETURNING",
}

// modifiers stand between SELECT and the list.
var modifiers = map[string]bool{
	"ALL": true, "DISTINCT": true, "DISTINCTROW": true, "HIGH_PRIORITY": true, "STRAIGHT_JOIN": true, "SQL_SMALL_RESULT": true,
	"SQL_BIG_RESULT": true, "SQL_BUFFER_RESULT": true, "SQL_NO_CACHE": true, "SQL_CACHE": true, "SQL_CALC_FOUND_ROWS": true,
}

// parseQuery takes SELECT list FROM … apart. It reads no more SQL than it must
// to find the words that stand outside of any parenthesis, and refuses what it
// cannot be sure of.
func parseQuery(text string) (*Query, error) {
	tokens, err := tokenize(text)
	if err != nil {
		return nil, err
	}
	if len(tokens) == 0 || !tokens[0].is("SELECT") {
		return nil, errCannotRewrite("the query does not begin with SELECT")
	}
	if len(tokens) > 1 && tokens[1].kind == tokenWord && modifiers[strings.ToUpper(tokens[1].text)] {
		return nil, errCannotRewrite(strings.ToUpper(tokens[1].text))
	}
	q := &Query{}
	start, from := 1, -1
	for i := 1; i < len(tokens); i++ {
		t := tokens[i]
		if t.depth > 0 {
			continue
		}
		if name := refusedWords[strings.ToUpper(t.text)]; t.kind == tokenWord && name != "" && tokens[i-1].text != "." {
			return nil, errCannotRewrite(name + " (if it is a name, quote it: `" + t.text + "`)")
		}
		if from >= 0 {
			continue
		}
		comma := t.kind == tokenSymbol && t.text == ","
		if t.is("FROM") {
			from = i
		}
		if comma || from >= 0 {
			it, err := parseItem(tokens[start:i])
			if err != nil {
				return nil, err
			}
			q.items = append(q.items, it)
			start = i + 1
		}
	}
	if from < 0 {
		return nil, errCannotRewrite("the query has no FROM")
	}
	if from == len(tokens)-1 {
		return nil, errors.New("nothing follows FROM")
	}
	for i, t := range tokens {
		if t.kind == tokenSymbol && t.text == "?" {
			if i < from {
				return nil, errCannotRewrite("a ? before FROM")
			}
			q.marks++
		}
	}
	q.from = strings.TrimSpace(text[tokens[from].pos:])
	return q, nil
}

// parseCampaign is parseQuery of a query for one campaign.
func parseCampaign(text string) (*Query, error) {
	q, err := parseQuery(text)
	if err != nil {
		return nil, err
	}
	if q.marks != 1 {
		return nil, fmt.Errorf("the query has %d question marks, want one, for the campaign", q.marks)
	}
	return q, nil
}

// parseItem reads an expression with or without an alias.
func parseItem(tokens []token) (item, error) {
	if len(tokens) == 0 {
		return item{}, errors.New("an entry of the list is empty")
	}
	last := tokens[len(tokens)-1]
	named := last.kind == tokenWord || last.kind == tokenQuoted
	if n := len(tokens); n >= 3 && tokens[n-2].is("AS") && (named || last.kind == tokenString) {
		return item{join(tokens[:n-2]), last.name()}, nil
	}
	if n := len(tokens); n >= 2 && named && last.depth == 0 && tokens[n-2].endsOperand() {
		return item{join(tokens[:n-1]), last.name()}, nil
	}
	it := item{expr: join(tokens)}
	if named && (len(tokens) == 1 || tokens[len(tokens)-2].text == ".") {
		it.alias = last.name() // a column is called what it is called
	}
	return it, nil
}

// aliasOf is the name that the list gives to an expression, "" if none.
func (q *Query) aliasOf(expr string) string {
	for _, it := range q.items {
		if it.expr == expr {
			return it.alias
		}
	}
	return ""
}

// expression checks that a text of the configuration is one expression, and
// returns it normalised.
func expression(text string) (string, error) {
	tokens, err := tokenize(text)
	if err != nil {
		return "", err
	}
	if len(tokens) == 0 {
		return "", errors.New("the expression is empty")
	}
	for _, t := range tokens {
		switch {
		case t.kind == tokenSymbol && t.text == "?":
			return "", errors.New("a ? has no place in an expression; only the query takes the campaign")
		case t.depth > 0:
		case t.kind == tokenSymbol && t.text == ",":
			return "", errors.New("a comma outside of parentheses: write one expression")
		case t.is("FROM"), t.is("AS"), t.is("SELECT"), t.is("WHERE"), t.is("UNION"):
			return "", fmt.Errorf("%s has no place in an expression; write a column, or an expression over the tables of the query", strings.ToUpper(t.text))
		}
	}
	return join(tokens), nil
}
