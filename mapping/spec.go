package mapping

import "github.com/chprojector/projector/chschema"

// Spec is what the configuration says about one projection.
type Spec struct {
	Columns       []Column
	Identity      []string // the columns that say which record a row is about
	Version       string   // the column that says which of two rows of one record is newer
	Deleted       string   // the column that marks a deleted record, "" = none; mapped like any other
	SchemaVersion SchemaVersion
	IgnoreNull    bool   // pass over tombstones (null_value: ignore) instead of refusing them
	Strict        bool   // refuse fields that no column reads
	Generation    uint32 // written to the column _generation of every row
}

// Column says how one column is filled.
type Column struct {
	Name string
	// From is the path of the field, its steps parted by dots: "a.b.c". A dot
	// that belongs to a name is written `\.`, a backslash `\\`.
	From string
	Type chschema.Type
	// Default is the JSON text that stands for a missing field. Nil: a missing
	// field is an error.
	Default []byte
	Zone    string // IANA name of the zone of timestamps written without one; "" refuses these
	Unit    string // s, ms, us or ns: what a number counts since 1970-01-01 UTC; "" refuses numbers
	Round   string // half_even rounds digits that the column cannot keep; "" refuses them
}

// SchemaVersion says which versions of the event's schema the plan reads.
type SchemaVersion struct {
	From   string // path of the version in the event; "" = not checked
	Accept []int64
}
