package mapping

import "strconv"

// maxDepth bounds the nesting of an event, so that recursion is bounded too.
const maxDepth = 128

// A scanner reads one JSON text strictly by RFC 8259 and RFC 7493: valid UTF-8,
// no lone surrogate, no name twice in an object, nothing after the value.
//
// Its methods return false after they have recorded a failure.
type scanner struct {
	data  []byte
	pos   int
	depth int
	text  []byte // the last string that had escapes, decoded
	names nameSet

	unknownFields uint64 // in this text
	failure
}

// failure is the first thing found wrong, kept without allocation until the
// event is given up.
type failure struct {
	class  Class
	reason string
	start  int    // where the offending value begins in the text, -1 if there is none
	path   string // below the field: [3].price
}

func (s *scanner) begin(data []byte) {
	s.data, s.pos, s.depth, s.unknownFields = data, 0, 0, 0
	s.names.reset(data)
	s.failure = failure{start: -1}
}

// fail records why the value that begins at start is refused.
func (s *scanner) fail(class Class, start int, reason string) bool {
	s.failure = failure{class: class, reason: reason, start: start}
	return false
}

// within adds where in the column's value the failure lies.
func (s *scanner) within(step string) bool {
	s.path = step + s.path
	return false
}

// malformed records a violation of the grammar at the present position.
func (s *scanner) malformed(expected string) bool {
	reason := "truncated: the text ends after byte " + strconv.Itoa(len(s.data)) + " where " + expected + " was expected"
	start := -1
	if s.pos < len(s.data) {
		reason = "not JSON: at byte " + strconv.Itoa(s.pos) + " where " + expected + " was expected"
		start = s.pos
	}
	return s.fail(ClassMalformed, start, reason)
}

// peek skips white space and returns the next byte, 0 at the end. A NUL byte
// begins nothing in JSON, so the two need not be told apart.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		if c := s.data[s.pos]; c > ' ' {
			return c
		}
	}
	return s.skipSpace()
}

func (s *scanner) skipSpace() byte {
	for i := s.pos; i < len(s.data); i++ {
		switch c := s.data[i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			s.pos = i
			return c
		}
	}
	s.pos = len(s.data)
	return 0
}

// end checks that nothing but white space is left.
func (s *scanner) end() bool {
	if s.pos == len(s.data) {
		return true
	}
	if s.peek(); s.pos < len(s.data) {
		return s.fail(ClassMalformed, s.pos, "not JSON: bytes after the end of the value at byte "+strconv.Itoa(s.pos))
	}
	return true
}

// open consumes the bracket at the present position.
func (s *scanner) open() bool {
	if s.depth++; s.depth > maxDepth {
		return s.fail(ClassMalformed, s.pos, "nested deeper than "+strconv.Itoa(maxDepth)+" objects and arrays")
	}
	s.pos++
	return true
}

// more consumes what follows an element: a comma (again is true) or the
// closing bracket (again is false).
func (s *scanner) more(closing byte) (again, ok bool) {
	switch s.peek() {
	case ',':
		s.pos++
		return true, true
	case closing:
		s.pos++
		s.depth--
		return false, true
	}
	if closing == '}' {
		return false, s.malformed("',' or '}'")
	}
	return false, s.malformed("',' or ']'")
}

// colon consumes the colon after a name.
func (s *scanner) colon() bool {
	if s.peek() != ':' {
		return s.malformed("':'")
	}
	s.pos++
	return true
}

// literal consumes null, true or false.
func (s *scanner) literal(word string) bool {
	if len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		for i := 0; s.pos < len(s.data) && s.data[s.pos] == word[i]; i++ {
			s.pos++
		}
		return s.malformed("the rest of " + word)
	}
	s.pos += len(word)
	return true
}

// skip reads a whole value for its syntax only.
func (s *scanner) skip() bool {
	switch c := s.peek(); c {
	case '{':
		return s.skipObject()
	case '[':
		return s.skipArray()
	case '"':
		_, ok := s.str()
		return ok
	case 'n':
		return s.literal("null")
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	default:
		_, ok := s.number()
		return ok
	}
}

func (s *scanner) skipObject() bool {
	if !s.open() {
		return false
	}
	if s.peek() == '}' {
		s.pos++
		s.depth--
		return true
	}
	object := s.names.open()
	for {
		if !s.uniqueName(&object) || !s.skip() {
			return false
		}
		if again, ok := s.more('}'); !again {
			s.names.close(object)
			return ok
		}
	}
}

func (s *scanner) skipArray() bool {
	if !s.open() {
		return false
	}
	if s.peek() == ']' {
		s.pos++
		s.depth--
		return true
	}
	for {
		if !s.skip() {
			return false
		}
		if again, ok := s.more(']'); !again {
			return ok
		}
	}
}

// unknown passes over a field that nothing reads, whose name was just read.
func (s *scanner) unknown(object *openNames, name []byte, start int, strict bool) bool {
	if !s.names.add(object, name, s.verbatim(start, name)) {
		return s.fail(ClassDuplicate, start, "the name occurs twice in one object")
	}
	if strict {
		return s.fail(ClassUnknownField, start, "no column reads this field, and the projection is strict")
	}
	s.unknownFields++
	if !s.colon() {
		return false
	}
	return s.skip()
}

// verbatim returns where the string that began at start and was just read
// stands in the text, -1 if it had escapes, which make it shorter.
func (s *scanner) verbatim(start int, text []byte) int {
	if s.pos-start == len(text)+2 {
		return start + 1
	}
	return -1
}

// uniqueName reads a name and the colon after it, and refuses a name that the
// object has had already.
func (s *scanner) uniqueName(object *openNames) bool {
	if s.peek() != '"' {
		return s.malformed("a name")
	}
	start := s.pos
	name, ok := s.str()
	if !ok {
		return false
	}
	if !s.names.add(object, name, s.verbatim(start, name)) {
		return s.fail(ClassDuplicate, start, "the name occurs twice in one object")
	}
	return s.colon()
}

// wrongType records that the value at the present position is of a JSON type
// that the column does not read. The value is read to its end first: a
// violation of the grammar comes before a wrong type.
func (s *scanner) wrongType(want string) bool {
	start := s.pos
	var got string
	switch c := s.peek(); c {
	case '{':
		got = "an object"
	case '[':
		got = "an array"
	case '"':
		got = "a string"
	case 't', 'f':
		got = "a boolean"
	case 'n':
		if !s.skip() {
			return false
		}
		return s.fail(ClassNull, start, "null where "+want+" was expected")
	default:
		got = "a number"
	}
	if !s.skip() {
		return false
	}
	return s.fail(ClassType, start, got+" where "+want+" was expected")
}

// valueAt returns the JSON text of the value that begins at start, for an
// error: as far as an excerpt reaches, and whether it is whole or not.
func (s *scanner) valueAt(start int) []byte {
	rest := s.data[start:]
	depth, inString := 0, false
	for i := range min(len(rest), maxValue) {
		switch c := rest[i]; {
		case inString:
			inString = c != '"' || escaped(rest[:i])
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			depth++
			continue
		case c == '}' || c == ']':
			if depth--; depth < 0 {
				return rest[:i]
			}
		case depth == 0 && i > 0 && (c == ',' || c <= ' '):
			return rest[:i]
		default:
			continue
		}
		if !inString && depth == 0 {
			return rest[:i+1]
		}
	}
	return rest
}

// escaped reports whether an odd number of backslashes ends text.
func escaped(text []byte) bool {
	n := 0
	for n < len(text) && text[len(text)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}
