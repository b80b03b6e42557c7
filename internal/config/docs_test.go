package config

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
)

// TestReference holds that docs/configuration.md describes every key there is
// and none that is not.
func TestReference(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.*\\[\\]]+)` \\|").FindAllSubmatch(text, -1) {
		described = append(described, string(m[1]))
	}
	known := keys(reflect.TypeFor[Config](), "")
	for _, key := range known {
		if !slices.Contains(described, key) {
			t.Errorf("%s is not described", key)
		}
	}
	for _, key := range described {
		if !slices.Contains(known, key) && !slices.ContainsFunc(known, func(k string) bool { return within(k, key) }) {
			t.Errorf("%s is described and does not exist", key)
		}
	}
}

// keys lists the paths of everything below t that holds a value.
func keys(t reflect.Type, path string) (all []string) {
	switch {
	case t.Kind() == reflect.Struct:
		for f := range fieldsOf(t) {
			all = append(all, keys(f.Type, join(path, f.Tag.Get("koanf")))...)
		}
		return all
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return keys(t.Elem(), path+"[]")
	case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Struct:
		return keys(t.Elem(), path+".*")
	}
	return []string{path}
}
