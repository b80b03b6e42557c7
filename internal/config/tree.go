package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// A configuration between reading and decoding is a tree of map[string]any,
// []any and scalar. koanf merges such trees layer by layer.

// scalar is a value as it was written. The text is kept rather than a Go value
// because a decimal default must not pass through a float64, and because only
// the text can tell 010 from 10. Fields are exported: koanf copies its tree by
// reflection and would lose the others.
type scalar struct {
	Text string
	Tag  string // !!str, !!int, !!float, !!bool, !!null, !!timestamp
	From string // the variable or flag that set it; "" = the file
}

// maxDepth and maxNodes bound what a file may expand to, so that a few aliases
// cannot fill the memory.
const (
	maxDepth = 16
	maxNodes = 20_000
)

// parser reads YAML and remembers the line of every key. koanf's own YAML
// parser forgets lines and turns every number into an int or a float64, so the
// tree is built here and handed to koanf for merging.
type parser struct {
	file  string
	rep   *report
	nodes int
}

// parse reads a file's text. Whatever is wrong with it is reported.
func (p *parser) parse(text []byte) map[string]any {
	p.rep.places[""] = place{origin: p.file}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		p.syntax(err)
		return nil
	}
	if err := decoder.Decode(&second); err == nil {
		p.rep.addAt(place{origin: p.file, line: second.Line}, "", "a second document starts here; a configuration is one document")
	} else if !errors.Is(err, io.EOF) {
		p.syntax(err)
	}
	root := doc.Content[0]
	tree, ok := p.tree(root, "", 0).(map[string]any)
	if !ok && root.ShortTag() != "!!null" {
		p.rep.unreadable("", "want keys such as kafka: and clickhouse:, got %s", describe(p.tree(root, "", 0)))
	}
	return tree
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

func (p *parser) syntax(err error) {
	at, message := place{origin: p.file}, err.Error()
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		at.line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}
	p.rep.broken = append(p.rep.broken, "")
	p.rep.addAt(at, "", "not YAML: %s", message)
}

// tree turns a node into the tree form and notes where each key stands.
func (p *parser) tree(n *yaml.Node, path string, depth int) any {
	at := place{p.file, n.Line, n.Column}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if p.nodes++; depth > maxDepth || p.nodes > maxNodes {
		if p.nodes <= maxNodes+1 {
			p.rep.addAt(at, path, "too deep or too large: at most %d levels and %d values", maxDepth, maxNodes)
			p.rep.broken = append(p.rep.broken, path)
		}
		p.nodes = max(p.nodes, maxNodes+1)
		return scalar{Tag: "!!null"}
	}
	switch n.Kind {
	case yaml.MappingNode:
		return p.mapping(n, path, depth)
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, c := range n.Content {
			sub := fmt.Sprintf("%s[%d]", path, i)
			p.rep.places[sub] = place{p.file, c.Line, c.Column}
			list[i] = p.tree(c, sub, depth+1)
		}
		return list
	default:
		return scalar{Text: n.Value, Tag: n.ShortTag()}
	}
}

func (p *parser) mapping(n *yaml.Node, path string, depth int) map[string]any {
	m := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := place{p.file, key.Line, key.Column}
		sub := join(path, key.Value)
		switch _, twice := m[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			p.rep.addAt(at, path, "a key must be a plain word")
			continue
		case key.ShortTag() == "!!merge":
			p.rep.addAt(at, path, "merge keys (<<) are not supported; write the keys out")
			continue
		case twice:
			p.rep.addAt(at, sub, "given twice, first in line %d; remove one", p.rep.places[sub].line)
			continue
		}
		p.rep.places[sub] = at
		m[key.Value] = p.tree(value, sub, depth+1)
	}
	return m
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// describe names a value for an error: text "20", the number 20, a list.
func describe(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case scalar:
		switch v.Tag {
		case "!!null":
			return "nothing"
		case "!!int", "!!float":
			return "the number " + v.Text
		case "!!bool":
			return v.Text
		default:
			return fmt.Sprintf("the text %q", cut(v.Text))
		}
	}
	return fmt.Sprintf("%T", v)
}

// cut shortens a value so that an error stays a line.
func cut(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
