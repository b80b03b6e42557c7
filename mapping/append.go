package mapping

import (
	"bytes"
	"slices"
	"strconv"
)

// Append maps one event to one row. A nil value is a tombstone.
//
// It returns nil if rows has one row more; [ErrIgnored] for a tombstone that
// the configuration passes over; an [*Error] if the event cannot be mapped. In
// the last two cases rows is exactly as before. Rows must come from this plan.
func (p *Plan) Append(rows *Rows, value []byte, at Lineage) error {
	switch {
	case value == nil && p.spec.IgnoreNull:
		return ErrIgnored
	case value == nil:
		return &Error{Class: ClassTombstone, Reason: "a tombstone: the event has no value; null_value: ignore would pass over it"}
	case len(value) == 0:
		return &Error{Class: ClassEmpty, Reason: "the value has no bytes; a tombstone would have no value at all"}
	}
	rows.begin(value)
	if !p.walk(rows) {
		return p.refuse(rows, value)
	}
	rows.commit(at)
	return nil
}

// walk appends a value to every column.
func (p *Plan) walk(r *Rows) bool {
	s := &r.scan
	if s.peek() != '{' {
		s.wrongType("a JSON object")
		if s.class == ClassNull { // the four bytes of a null are no tombstone
			s.class = ClassType
		}
		return false
	}
	if !p.object(r, p.root) || !s.end() {
		return false
	}
	if p.schema != nil && r.seen[p.schema.id] != r.stamp {
		r.blame(-1, p.schema.path)
		return s.fail(ClassSchemaVersion, -1, "the event does not say its schema version; accepted is "+p.accepted())
	}
	return r.checking || r.filled == len(p.columns) || p.fillMissing(r)
}

// object reads an object of the event. The next field is guessed to be the one
// that followed last time, which holds for every producer that writes its
// fields in one order; a wrong guess costs a look-up and corrects itself.
func (p *Plan) object(r *Rows, n *node) bool {
	s := &r.scan
	if !s.open() {
		return false
	}
	if s.peek() == '}' {
		s.pos++
		s.depth--
		return true
	}
	guess := r.guess[n.guess : n.guess+len(n.fields)+1]
	last := 0
	unknown := s.names.open()
	for {
		at := s.pos
		f := &n.fields[guess[last]]
		if rest := s.data[at:]; len(rest) >= len(f.token) && string(rest[:len(f.token)]) == f.token {
			s.pos += len(f.token)
			last = int(guess[last]) + 1
		} else {
			if s.peek() != '"' {
				return s.malformed("a name")
			}
			name, ok := s.str()
			if !ok {
				return false
			}
			i, known := n.index[string(name)]
			if !known {
				if !s.unknown(&unknown, name, at, p.spec.Strict && !r.checking) {
					return r.blame(-1, n.path+string(bytes.Trim(s.valueAt(at), `"`)))
				}
				goto next
			}
			if !s.colon() {
				return false
			}
			f = &n.fields[i]
			guess[last] = uint16(i)
			last = i + 1
		}
		if r.seen[f.id] == r.stamp {
			r.blame(f.column(), f.path)
			return s.fail(ClassDuplicate, at, "the name occurs twice in one object")
		}
		r.seen[f.id] = r.stamp
		s.peek()
		if !p.field(r, f) {
			return false
		}
	next:
		if next := s.data[s.pos:]; len(next) > 1 && next[0] == ',' && next[1] == '"' {
			s.pos++
			continue
		}
		if again, ok := s.more('}'); !again {
			s.names.close(unknown)
			return ok
		}
		s.peek()
	}
}

// field reads the value of a field into everything that wants it.
func (p *Plan) field(r *Rows, f *field) bool {
	s := &r.scan
	if f.only >= 0 && !r.checking {
		r.filled++
		return r.data[f.only].appendJSON(s) || r.blame(f.only, f.path)
	}
	start := s.pos
	if f.child != nil {
		switch s.peek() {
		case '{':
			return p.object(r, f.child)
		case 'n': // no object: its fields are missing
			return s.literal("null")
		}
		r.blame(-1, f.path)
		return s.wrongType("an object")
	}
	if f.schema {
		if !p.checkSchema(r, f) {
			return false
		}
		if len(f.columns) == 0 {
			return true
		}
	}
	if r.checking {
		s.pos = start
		return s.skip()
	}
	for _, c := range f.columns {
		s.pos = start
		if !r.data[c].appendJSON(s) {
			return r.blame(c, f.path)
		}
	}
	r.filled += len(f.columns)
	return true
}

func (p *Plan) checkSchema(r *Rows, f *field) bool {
	s := &r.scan
	start := s.pos
	if v, negative, ok := s.shortInteger(); ok && !negative && slices.Contains(p.spec.SchemaVersion.Accept, int64(v)) {
		return true
	}
	s.pos = start
	text, ok := s.numeral("an integer")
	if !ok {
		if s.class != ClassMalformed && s.class != ClassEncoding && s.class != ClassDuplicate {
			s.class = ClassSchemaVersion
		}
		return r.blame(-1, f.path)
	}
	w, negative, out := scaled(text, 0, false)
	v := int64(w[0])
	if negative {
		v = -v
	}
	if out != exact || !w.less(&wide{1 << 63}) || !slices.Contains(p.spec.SchemaVersion.Accept, v) {
		r.blame(-1, f.path)
		return s.fail(ClassSchemaVersion, start, "unknown schema version; accepted is "+p.accepted())
	}
	return true
}

func (p *Plan) accepted() string {
	var b []byte
	for i, v := range p.spec.SchemaVersion.Accept {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, v, 10)
	}
	return string(b)
}

// fillMissing appends the defaults of the columns whose fields are not there.
func (p *Plan) fillMissing(r *Rows) bool {
	s := &r.scan
	for i := range p.columns {
		c := &p.columns[i]
		if r.seen[c.field.id] == r.stamp {
			continue
		}
		if c.fallback == nil {
			r.blame(i, c.field.path)
			return s.fail(ClassMissing, -1, "the field is missing and the column has no default")
		}
		s.data, s.pos, s.names.text = c.fallback, 0, c.fallback
		if !r.data[i].appendJSON(s) {
			return r.blame(i, c.field.path)
		}
	}
	return true
}

// refuse undoes the half row and makes the error. What is wrong with the text
// as a whole comes before what is wrong with a value, and a schema version
// that nobody promised to read before both: wherever in the event they stand.
func (p *Plan) refuse(r *Rows, value []byte) *Error {
	s := &r.scan
	r.undo()
	first := p.describe(r)
	switch first.Class {
	case ClassMalformed, ClassEncoding, ClassDuplicate:
		return first
	}
	if s.begin(value); !s.skip() || !s.end() {
		r.blame(-1, "")
		return p.describe(r)
	}
	if p.schema != nil && first.Class != ClassSchemaVersion {
		r.begin(value)
		r.checking = true
		ok := p.walk(r)
		r.checking = false
		if !ok && s.class == ClassSchemaVersion {
			return p.describe(r)
		}
	}
	return first
}

// describe makes an Error of the scanner's failure.
func (p *Plan) describe(r *Rows) *Error {
	s := &r.scan
	if s.class == ClassMalformed {
		// The grammar has no columns. What helps is the place.
		at := s.start
		if at < 0 {
			at = len(s.data)
		}
		const before, after = 60, 20
		return &Error{Class: s.class, Value: excerpt(s.data[max(0, at-before):min(len(s.data), at+after)]), Reason: s.reason}
	}
	e := &Error{Class: s.class, Path: r.blamePath + s.path, Reason: s.reason}
	if s.start >= 0 {
		e.Value = excerpt(s.valueAt(s.start))
	}
	if r.blameColumn >= 0 {
		c := &p.columns[r.blameColumn]
		e.Column = c.name
		switch s.class {
		case ClassNull:
			e.Reason += "; only a Nullable takes it, but the column is " + c.typ.String()
		case ClassType:
			e.Reason += ", because the column is " + c.typ.String()
		}
	}
	return e
}

// column returns the first column that reads the field, -1 if none does.
func (f *field) column() int {
	if len(f.columns) == 0 {
		return -1
	}
	return f.columns[0]
}
