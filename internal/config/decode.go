package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// decode fills cfg from the merged tree. It is written by hand because the
// usual decoder guesses (a bare 20 as 20 ns, "yes" as true, 1 as "1") and names
// Go's types and fields where the reader knows only keys.
func decode(cfg *Config, tree map[string]any, rep *report) {
	(&decoder{rep}).value(reflect.ValueOf(cfg).Elem(), tree, "")
}

type decoder struct{ rep *report }

func (d *decoder) value(to reflect.Value, from any, path string) {
	if done := d.leaf(to, from, path); done {
		return
	}
	s, isScalar := from.(scalar)
	if isScalar && s.Tag == "!!null" {
		return // a section whose keys are all commented out
	}
	switch to.Kind() {
	case reflect.Struct:
		if m, ok := from.(map[string]any); ok {
			d.fields(to, m, path)
			return
		}
	case reflect.Map:
		if m, ok := from.(map[string]any); ok {
			d.entries(to, m, path)
			return
		}
	case reflect.Slice:
		if isScalar && s.From != "" {
			from = split(s)
		}
		if l, ok := from.([]any); ok {
			d.list(to, l, path)
			return
		}
	}
	d.rep.unreadable(path, "want %s, got %s", wanted(to.Type()), describe(from))
}

// leaf decodes whatever is one value and reports false for the rest.
func (d *decoder) leaf(to reflect.Value, from any, path string) bool {
	var err error
	switch v := to.Addr().Interface().(type) {
	case *Duration:
		*v, err = parseWith(from, ParseDuration)
	case *Size:
		*v, err = parseWith(from, ParseSize)
	case *Secret:
		*v, err = secret(from)
	case *JSON:
		*v, err = jsonText(from)
	case *string:
		*v, err = text(from)
	case *bool:
		*v, err = boolean(from)
	case *float64:
		*v, err = number(from)
	case *int, *int64, *uint32:
		err = d.integer(to, from)
	default:
		return false
	}
	if err != nil {
		d.rep.unreadable(path, "%v", err)
	}
	return true
}

func (d *decoder) fields(to reflect.Value, m map[string]any, path string) {
	for key, from := range m {
		f, ok := fieldOf(to.Type(), key)
		if !ok {
			d.rep.add(join(path, key), "%v", unknownKey(to.Type(), key))
			continue
		}
		d.value(to.FieldByIndex(f.Index), from, join(path, key))
	}
}

func (d *decoder) entries(to reflect.Value, m map[string]any, path string) {
	to.Set(reflect.MakeMapWithSize(to.Type(), len(m)))
	for key, from := range m {
		v := reflect.New(to.Type().Elem()).Elem()
		if s, ok := from.(scalar); ok && v.Kind() == reflect.String && s.Tag != "!!null" {
			from = scalar{Text: s.Text, Tag: "!!str", From: s.From} // a setting may be a number or a bool
		}
		d.value(v, from, join(path, key))
		to.SetMapIndex(reflect.ValueOf(key), v)
	}
}

func (d *decoder) list(to reflect.Value, l []any, path string) {
	to.Set(reflect.MakeSlice(to.Type(), len(l), len(l)))
	for i, from := range l {
		v := to.Index(i)
		if p, ok := reflect.TypeAssert[interface{ setDefaults() }](v.Addr()); ok {
			p.setDefaults()
		}
		sub := fmt.Sprintf("%s[%d]", path, i)
		if m, ok := from.(map[string]any); ok {
			if name, ok := m["name"].(scalar); ok && name.Tag == "!!str" {
				d.rep.names[sub] = name.Text
			}
		}
		d.value(v, from, sub)
	}
}

func (d *decoder) integer(to reflect.Value, from any) error {
	s, ok := from.(scalar)
	if !ok || s.Tag != "!!int" && s.From == "" {
		return fmt.Errorf("want a whole number, got %s", describe(from))
	}
	if !decimal.MatchString(s.Text) {
		return fmt.Errorf("want a whole number in plain digits, got %q", cut(s.Text))
	}
	if to.CanUint() {
		n, err := strconv.ParseUint(s.Text, 10, to.Type().Bits())
		if err != nil {
			return fmt.Errorf("%s is outside 0 to %d", cut(s.Text), uint64(1)<<to.Type().Bits()-1)
		}
		to.SetUint(n)
		return nil
	}
	n, err := strconv.ParseInt(s.Text, 10, to.Type().Bits())
	if err != nil {
		return fmt.Errorf("%s does not fit into 64 bits", cut(s.Text))
	}
	to.SetInt(n)
	return nil
}

// decimal refuses 0x10, 1_000 and 010, which YAML reads as 16, 1000 and 8.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// fieldOf finds a struct's field by its key.
func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for f := range fieldsOf(t) {
		if f.Tag.Get("koanf") == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// fieldsOf yields the fields that hold keys.
func fieldsOf(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for f := range t.Fields() {
			if f.IsExported() && !yield(f) {
				return
			}
		}
	}
}

func unknownKey(t reflect.Type, key string) error {
	var known []string
	for f := range fieldsOf(t) {
		known = append(known, f.Tag.Get("koanf"))
	}
	slices.Sort(known)
	if near := nearest(key, known); near != "" {
		return fmt.Errorf("unknown key; did you mean %s?", near)
	}
	return fmt.Errorf("unknown key; known here: %s", strings.Join(known, ", "))
}

// wanted names the type of a section for an error.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[[]string]():
		return "a list of texts, such as [a, b]"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return "a list of entries, each with its keys"
	case t.Kind() == reflect.Slice:
		return "a list of whole numbers"
	}
	return "keys with values"
}
