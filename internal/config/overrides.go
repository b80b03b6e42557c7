package config

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

const (
	envPrefix = "PROJECTOR_"
	setFlag   = "--set"
)

// reserved are variables with our prefix that stand for flags, not for keys.
var reserved = []string{"CONFIG", "LOG_LEVEL", "LOG_FORMAT"}

// serviceLink matches what Kubernetes puts into every container for a Service
// whose name starts with "projector" (PROJECTOR_PORT_8080_TCP_ADDR). Refusing
// those as unknown keys would stop the pod for a reason nobody would guess.
var serviceLink = regexp.MustCompile(`^([A-Z0-9]+_)*(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// plainKey is what a key that somebody mistyped still looks like.
var plainKey = regexp.MustCompile(`^[a-z0-9_.]+$`)

// overrides turns environment variables and --set flags into layers.
type overrides struct{ rep *report }

// fromEnv maps PROJECTOR_CLICKHOUSE__PASSWORD to clickhouse.password.
func (o *overrides) fromEnv(name, value string) (string, any) {
	key := strings.TrimPrefix(name, envPrefix)
	if slices.Contains(reserved, key) || (!strings.Contains(key, "__") && serviceLink.MatchString(key)) {
		return "", nil
	}
	path := strings.ToLower(strings.ReplaceAll(key, "__", "."))
	if meant := twoUnderscores(key); meant != "" {
		o.rep.addAt(place{origin: "environment variable " + name}, path, "unknown key; two underscores stand between levels: did you mean %s?", envPrefix+meant)
		return "", nil
	}
	return o.set("environment variable "+name, path, value)
}

// twoUnderscores returns key with one underscore doubled if that makes it the
// name of a key, which it is not as it stands.
func twoUnderscores(key string) string {
	if strings.Contains(key, "__") {
		return ""
	}
	for i, c := range key {
		meant := key[:i] + "__" + key[i+1:]
		if c == '_' && settable(reflect.TypeFor[Config](), strings.ToLower(strings.ReplaceAll(meant, "__", "."))) == nil {
			return meant
		}
	}
	return ""
}

// fromFlags maps each KEY=VALUE to its key.
func (o *overrides) fromFlags(set []string) map[string]any {
	layer := map[string]any{}
	for i, s := range set {
		path, value, ok := strings.Cut(s, "=")
		if !ok {
			// Not all of it: what somebody wrote after another sign may be a secret.
			key := s[:len(s)-len(strings.TrimLeft(s, "abcdefghijklmnopqrstuvwxyz0123456789_."))]
			if settable(reflect.TypeFor[Config](), key) == nil {
				o.rep.addAt(place{origin: setFlag}, "", "want KEY=VALUE, for example lanes=2; there is no = after %q", key)
			} else { // a secret alone
				o.rep.addAt(place{origin: setFlag}, "", "want KEY=VALUE, for example lanes=2; number %d has no = and does not begin with a key, so it is not shown", i+1)
			}
			continue
		}
		if !plainKey.MatchString(path) && settable(reflect.TypeFor[Config](), path) != nil { // a secret alone, in base64 perhaps
			o.rep.addAt(place{origin: setFlag}, "", "want KEY=VALUE, for example lanes=2; what stands before the = of number %d is not a key, so it is not shown", i+1)
			continue
		}
		if key, v := o.set(setFlag, path, value); key != "" {
			layer[key] = v
		}
	}
	return layer
}

func (o *overrides) set(origin, path, value string) (string, any) {
	if err := settable(reflect.TypeFor[Config](), path); err != nil {
		o.rep.addAt(place{origin: origin}, path, "%v", err)
		return "", nil
	}
	maps.DeleteFunc(o.rep.places, func(written string, _ place) bool { return within(written, path) }) // a list's entries
	o.rep.places[path] = place{origin: origin}
	return path, scalar{Text: value, Tag: "!!str", From: origin}
}

// settable walks the configuration's type along path, which must end at one
// value or at a list of texts.
func settable(t reflect.Type, path string) error {
	seen := ""
	for key := range strings.SplitSeq(path, ".") {
		switch {
		case t.Kind() == reflect.Struct:
			f, ok := fieldOf(t, key)
			if !ok {
				return unknownKey(t, key)
			}
			t = f.Type
		case t.Kind() == reflect.Map && key != "":
			t = t.Elem()
		case t.Kind() == reflect.Slice:
			return fmt.Errorf("%s is a list; set it in the file", seen)
		default:
			return fmt.Errorf("%s is one value and has no key %q", seen, key)
		}
		seen = join(seen, key)
	}
	if t.Kind() == reflect.Struct || t.Kind() == reflect.Map || t.Kind() == reflect.Slice && t != reflect.TypeFor[[]string]() {
		return fmt.Errorf("holds several keys; set one of them, or write it in the file")
	}
	return nil
}
