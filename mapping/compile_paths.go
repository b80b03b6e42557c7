package mapping

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// branch is a step of the paths while the tree of fields grows.
type branch struct {
	name    string
	steps   []*branch
	columns []int
	schema  bool
	user    string // who reads it as a leaf, for errors
}

// leaf returns the branch for a path, nil after a problem.
func (c *compiler) leaf(path, user string) *branch {
	steps, err := splitPath(path)
	if err != nil {
		c.problem("%s: from %q: %v", user, path, err)
		return nil
	}
	b := c.tree
	for _, step := range steps {
		if b.user != "" {
			c.problem("%s: from %q lies within a field that %s reads as a whole; read either the whole or its parts", user, path, b.user)
			return nil
		}
		i := slices.IndexFunc(b.steps, func(s *branch) bool { return s.name == step })
		if i < 0 {
			i = len(b.steps)
			b.steps = append(b.steps, &branch{name: step})
		}
		b = b.steps[i]
	}
	if len(b.steps) > 0 {
		c.problem("%s: from %q is an object of which other columns read fields; read either the whole or its parts", user, path)
		return nil
	}
	b.user = user
	return b
}

// SplitPath takes the path of a field apart, as Column.From has it.
func SplitPath(path string) ([]string, error) { return splitPath(path) }

// splitPath takes a dotted path apart.
func splitPath(path string) ([]string, error) {
	var steps []string
	var step strings.Builder
	for i := 0; i < len(path); i++ {
		switch b := path[i]; {
		case b == '.':
			steps = append(steps, step.String())
			step.Reset()
		case b == '\\' && i+1 < len(path) && (path[i+1] == '.' || path[i+1] == '\\'):
			i++
			step.WriteByte(path[i])
		case b == '\\':
			return nil, errors.New(`a backslash stands only before a dot or a backslash; write \\ for one that belongs to the name`)
		default:
			step.WriteByte(b)
		}
	}
	steps = append(steps, step.String())
	switch {
	case path == "":
		return nil, errors.New("no field is named")
	case slices.Contains(steps, ""):
		return nil, errors.New("a step of the path is empty")
	case !utf8.ValidString(path):
		return nil, errors.New("the path is not valid UTF-8, so no event can have it")
	case len(steps) >= maxDepth:
		return nil, errors.New("the path is deeper than any event may be")
	}
	return steps, nil
}

// node turns a branch into what the walk uses.
func (c *compiler) node(b *branch, path string) *node {
	p := c.plan
	n := &node{path: path, index: make(map[string]int, len(b.steps)), fields: make([]field, len(b.steps)), guess: p.guesses}
	p.guesses += len(b.steps) + 1
	for i, step := range b.steps {
		f := &n.fields[i]
		*f = field{token: token(step.name), name: step.name, path: path + step.name, id: p.fields, columns: step.columns, only: -1, schema: step.schema}
		if len(f.columns) == 1 && !f.schema {
			f.only = f.columns[0]
		}
		p.fields++
		n.index[step.name] = i
		if len(step.steps) > 0 {
			f.child = c.node(step, f.path+".")
		}
		if f.schema {
			p.schema = f
		}
		for _, column := range f.columns {
			p.columns[column].field = f
		}
	}
	return n
}

// token is the name and its colon as nearly every producer writes them. It is
// compared with bytes that nobody has read yet, so that it must itself be JSON.
func token(name string) string { return string(AppendText(nil, []byte(name))) + ":" }
