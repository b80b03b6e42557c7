package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing wrong with a configuration.
type Problem struct {
	Origin  string // the file, or the variable or flag that set the value
	Line    int    // in the file; 0 for a variable, a flag or a key that is not there
	Key     string // dotted path: projections[0] (fitness_results).columns[3].type
	Message string // the value and the remedy

	column int // in the line, for the order
}

// String is the problem on one line: "config.yaml:31: KEY: MESSAGE".
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Origin)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems is everything wrong with a configuration, in the order of the file.
type Problems []Problem

// Error lists the problems, one a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// place is where a key was written.
type place struct {
	origin string
	line   int
	column int
}

// places knows where each key was written, by its plain path
// ("projections[0].columns[3].type"; "" is the file as a whole).
type places map[string]place

// find is the place of the key, or of the nearest thing that contains it.
func (ps places) find(path string) place {
	for {
		if at, ok := ps[path]; ok || path == "" {
			return at
		}
		path = parent(path)
	}
}

func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

// report collects problems. Keys whose value could not be read are known, so
// that nobody complains a second time about what follows from it.
type report struct {
	places   places
	names    map[string]string // of a list's entries: "projections[0]" -> "fitness_results"
	problems Problems
	broken   []string // paths that the decoder could not read
}

func (r *report) add(path, format string, args ...any) {
	r.addAt(r.places.find(path), path, format, args...)
}

func (r *report) addAt(at place, path, format string, args ...any) {
	r.problems = append(r.problems, Problem{Origin: at.origin, Line: at.line, Key: path, Message: fmt.Sprintf(format, args...), column: at.column})
}

// unreadable reports a value that could not be decoded.
func (r *report) unreadable(path, format string, args ...any) {
	r.broken = append(r.broken, path)
	r.add(path, format, args...)
}

// addFirst reports a contradiction of two keys at the first one that is written
// somewhere: the other has its default.
func (r *report) addFirst(paths []string, format string, args ...any) {
	for _, path := range paths {
		if !r.readable(path) {
			return
		}
	}
	at := r.places.find(paths[0])
	for _, path := range paths {
		if given, ok := r.places[path]; ok {
			at = given
			break
		}
	}
	r.addAt(at, paths[0], format, args...)
}

// readable reports whether the value at path was decoded whole: neither it,
// nor what contains it, nor anything in it is broken.
func (r *report) readable(path string) bool {
	return !slices.ContainsFunc(r.broken, func(b string) bool { return within(b, path) || within(path, b) })
}

func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// sound reports whether nothing at all was reported within path.
func (r *report) sound(path string) bool {
	return r.readable(path) && !slices.ContainsFunc(r.problems, func(p Problem) bool { return within(p.Key, path) })
}

// err is the problems in the order of the file, or nil.
func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	out := slices.Clone(r.problems)
	slices.SortStableFunc(out, func(a, b Problem) int {
		if d := cmp.Or(r.layer(a)-r.layer(b), cmp.Compare(a.Line, b.Line), cmp.Compare(a.column, b.column)); d != 0 || r.layer(a) == 0 {
			return d
		}
		return cmp.Compare(a.Key, b.Key)
	})
	for i, p := range out {
		out[i].Key = r.named(p.Key)
	}
	return out
}

// named puts the names of a list's entries behind their indexes. Paths stay
// plain until then, because they are compared.
func (r *report) named(path string) string {
	var b strings.Builder
	for i, c := range path {
		b.WriteRune(c)
		if name, ok := r.names[path[:i+1]]; ok && c == ']' {
			b.WriteString(" (" + cut(name) + ")")
		}
	}
	return b.String()
}

// layer sorts what the file holds before what variables set, and that before
// flags.
func (r *report) layer(p Problem) int {
	switch p.Origin {
	case r.places[""].origin:
		return 0
	case setFlag:
		return 2
	}
	return 1
}
