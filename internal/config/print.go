package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// YAML is the effective configuration, defaults included, in the order of the
// struct. Secrets are [Redacted]; keys that are empty, mean nothing by it and have
// no other default are left out. Reading the result again yields the same configuration but for the
// secrets.
func (c *Config) YAML() ([]byte, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(encode(reflect.ValueOf(*c), reflect.ValueOf(Default()))); err != nil {
		return nil, fmt.Errorf("print the configuration: %w", err)
	}
	return out.Bytes(), nil
}

// JSON is what [Config.YAML] is, for programs: the same keys in the same order,
// and numbers with their digits. It can be read again as well, because YAML
// contains JSON.
func (c *Config) JSON() ([]byte, error) {
	var out bytes.Buffer
	err := writeJSON(&out, encode(reflect.ValueOf(*c), reflect.ValueOf(Default())))
	if err == nil {
		text := bytes.Clone(out.Bytes())
		out.Reset()
		err = json.Indent(&out, text, "", "  ")
	}
	if err != nil {
		return nil, fmt.Errorf("print the configuration: %w", err)
	}
	return append(out.Bytes(), '\n'), nil
}

// writeJSON writes a node and what it holds; [json.Marshal] would sort the keys.
func writeJSON(out *bytes.Buffer, n *yaml.Node) error {
	if n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode {
		brackets, entry := "[]", 1
		if n.Kind == yaml.MappingNode {
			brackets, entry = "{}", 2
		}
		out.WriteByte(brackets[0])
		for i, c := range n.Content {
			switch {
			case i > 0 && i%entry == 0:
				out.WriteByte(',')
			case i%entry == 1:
				out.WriteByte(':')
			}
			if err := writeJSON(out, c); err != nil {
				return err
			}
		}
		out.WriteByte(brackets[1])
		return nil
	}
	if n.ShortTag() != "!!str" && json.Valid([]byte(n.Value)) { // a number, true, false or null
		out.WriteString(n.Value)
		return nil
	}
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e.Encode(n.Value)
}

// encode turns a value into its node. unwritten is what holds where the file does not have it; invalid: nothing.
func encode(v, unwritten reflect.Value) *yaml.Node {
	switch x := v.Interface().(type) {
	case Duration, Size, Secret, string:
		return textNode(fmt.Sprint(x))
	case JSON:
		return jsonNode(x)
	case float64:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.FormatFloat(x, 'g', -1, 64)}
	}
	switch v.Kind() {
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for f := range fieldsOf(v.Type()) {
			value, otherwise := v.FieldByIndex(f.Index), reflect.Value{}
			if unwritten.IsValid() {
				otherwise = unwritten.FieldByIndex(f.Index)
			}
			if !omitted(f, value) || otherwise.IsValid() && !otherwise.IsZero() {
				n.Content = append(n.Content, textNode(f.Tag.Get("koanf")), encode(value, otherwise))
			}
		}
		return n
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		for _, key := range keys {
			n.Content = append(n.Content, textNode(key.String()), encode(v.MapIndex(key), reflect.Value{}))
		}
		return n
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if v.Type().Elem().Kind() != reflect.Struct {
			n.Style = yaml.FlowStyle
		}
		for i := range v.Len() {
			n.Content = append(n.Content, encode(v.Index(i), reflect.Value{}))
		}
		return n
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(v.Interface())} // int, bool
}

// omitted leaves out what is empty, unless showing it tells something: that
// there is no password, that there are zero lanes, that TLS is off.
func omitted(f reflect.StructField, v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Int, reflect.Bool, reflect.Float64, reflect.Uint32:
		return v.IsZero() && f.Tag.Get("koanf") != "lanes" && f.Tag.Get("koanf") != "enabled"
	case reflect.Struct:
		return v.IsZero() && f.Tag.Get("koanf") != "tls"
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	}
	return v.IsZero()
}

// textNode lets the encoder choose the quotes that keep a text a text.
func textNode(s string) *yaml.Node {
	var n yaml.Node
	n.SetString(s)
	if n.ShortTag() != "!!str" || n.Value == "<<" {
		n.Style = yaml.DoubleQuotedStyle
	}
	return &n
}

// jsonNode shows JSON text as it is: YAML contains JSON.
func jsonNode(text JSON) *yaml.Node {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil || len(doc.Content) != 1 {
		return textNode(string(text))
	}
	return doc.Content[0]
}
