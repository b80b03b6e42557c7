package mapping

import "github.com/chprojector/projector/chschema"

// A Plan is a compiled [Spec]. It is immutable; any number of goroutines may
// use it, each with its own [Rows].
type Plan struct {
	spec    Spec
	columns []planColumn
	root    *node
	schema  *field // of the schema version, nil = not checked
	fields  int
	guesses int
	// Columns by what they are, as indices into columns.
	identity []int
	version  int
}

// planColumn is one business column.
type planColumn struct {
	name     string
	typ      chschema.Type
	options  *options
	field    *field
	fallback []byte // JSON text for a missing field, nil = none
}

// node is one object of the event of which fields are read.
type node struct {
	fields []field
	index  map[string]int // by name
	path   string         // "" for the event itself
	guess  int            // where its guesses begin in Rows.guess
}

// field is one name in such an object: either read by columns and the check of
// the schema version, or an object of which fields are read.
type field struct {
	token   string // `"name":`, what is compared first
	name    string
	path    string
	id      int   // its place in Rows.seen
	child   *node // nil for a leaf
	columns []int
	only    int // the column, if exactly one reads the field and nothing else does; else -1
	schema  bool
}

// Spec returns what the plan was compiled from. It must not be changed.
func (p *Plan) Spec() Spec { return p.spec }
