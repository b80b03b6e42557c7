package chschema

import (
	"fmt"
	"strings"
)

// expression is a parsed key expression: literals, columns, calls, and the
// operators + - * %, which are calls of plus, minus, multiply and modulo, as
// the server sees them. Parsed rather than searched by pattern, because
// whatever is not understood must be refused: a partition that is not a
// function of the key brings back old versions.
type expression struct {
	kind expressionKind
	text string // column name, function name or literal
	args []expression
	pos  int
}

type expressionKind uint8

const (
	expressionColumn expressionKind = iota
	expressionCall
	expressionNumber
	expressionString
)

// maxExpressionDepth bounds the recursion on hostile text.
const maxExpressionDepth = 64

type expressionParser struct {
	tokens []token
	i      int
	depth  int
}

// parseExpression parses a whole text.
func parseExpression(s string) (expression, error) {
	list, err := parseExpressions(s)
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("%d expressions where one is expected; write (a, b) for a tuple", len(list))
	}
	if err != nil {
		return expression{}, err
	}
	return list[0], nil
}

// parseExpressions parses a list as the server prints a sorting key: a, b.
func parseExpressions(s string) ([]expression, error) {
	tokens, err := tokenize(s)
	if err != nil {
		return nil, err
	}
	p := &expressionParser{tokens: tokens}
	list, err := p.list()
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != tokenEnd {
		return nil, unexpected(t)
	}
	return list, nil
}

func (p *expressionParser) peek() token { return p.tokens[p.i] }

func (p *expressionParser) next() token {
	t := p.tokens[p.i]
	if t.kind != tokenEnd {
		p.i++
	}
	return t
}

// accept consumes the symbol if it is next.
func (p *expressionParser) accept(symbol string) bool {
	if t := p.peek(); t.kind == tokenSymbol && t.text == symbol {
		p.i++
		return true
	}
	return false
}

func (p *expressionParser) list() ([]expression, error) {
	var list []expression
	for {
		e, err := p.sum()
		if err != nil {
			return nil, err
		}
		list = append(list, e)
		if !p.accept(",") {
			return list, nil
		}
	}
}

func (p *expressionParser) sum() (expression, error) {
	return p.binary(p.product, map[string]string{"+": "plus", "-": "minus"})
}

func (p *expressionParser) product() (expression, error) {
	return p.binary(p.operand, map[string]string{"*": "multiply", "%": "modulo"})
}

func (p *expressionParser) binary(operand func() (expression, error), functions map[string]string) (expression, error) {
	left, err := operand()
	for err == nil {
		t := p.peek()
		function, ok := functions[t.text]
		if t.kind != tokenSymbol || !ok {
			return left, nil
		}
		p.i++
		var right expression
		right, err = operand()
		left = expression{expressionCall, function, []expression{left, right}, t.pos}
	}
	return expression{}, err
}

func (p *expressionParser) operand() (expression, error) {
	if p.depth++; p.depth > maxExpressionDepth {
		return expression{}, fmt.Errorf("nested deeper than %d", maxExpressionDepth)
	}
	defer func() { p.depth-- }()

	t := p.next()
	switch {
	case t.kind == tokenNumber:
		return expression{expressionNumber, t.text, nil, t.pos}, nil
	case t.kind == tokenString:
		return expression{expressionString, t.text, nil, t.pos}, nil
	case t.kind == tokenName && p.accept("("):
		args, err := p.arguments()
		return expression{expressionCall, t.text, args, t.pos}, err
	case t.kind == tokenName || t.kind == tokenQuotedName:
		return expression{expressionColumn, t.text, nil, t.pos}, nil
	case t.kind == tokenSymbol && t.text == "-" && p.peek().kind == tokenNumber:
		return expression{expressionNumber, "-" + p.next().text, nil, t.pos}, nil
	case t.kind == tokenSymbol && t.text == "(":
		args, err := p.arguments()
		if err == nil && len(args) == 1 {
			return args[0], nil // plain parentheses
		}
		return expression{expressionCall, "tuple", args, t.pos}, err
	}
	return expression{}, unexpected(t)
}

// arguments follow an opening parenthesis, which they close.
func (p *expressionParser) arguments() ([]expression, error) {
	if p.accept(")") {
		return nil, nil
	}
	list, err := p.list()
	if err != nil {
		return nil, err
	}
	if !p.accept(")") {
		return nil, unexpected(p.peek())
	}
	return list, nil
}

func unexpected(t token) error {
	if t.kind == tokenEnd {
		return fmt.Errorf("at byte %d: the expression ends too early", t.pos)
	}
	return fmt.Errorf("at byte %d: %q is not expected here", t.pos, t.text)
}

// String prints calls only, so that two spellings of one expression are equal:
// modulo(detect_id, 8) for detect_id % 8.
func (e expression) String() string {
	switch e.kind {
	case expressionNumber:
		return e.text
	case expressionString:
		return QuoteString(e.text)
	case expressionColumn:
		return QuoteName(e.text)
	}
	args := make([]string, len(e.args))
	for i, a := range e.args {
		args[i] = a.String()
	}
	return e.text + "(" + strings.Join(args, ", ") + ")"
}
