package mapping

import "unsafe"

// view returns b as a string without copying it, for parsers of the standard
// library that take a string and keep no part of it beyond their error, which
// is dropped. The string must not outlive the next change of b.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
