// Package mapping turns events into rows of typed ClickHouse columns.
//
// A [Spec] says which field of the event fills which column. [Compile] checks
// it as a whole and returns an immutable [Plan], which any number of
// goroutines may share. [Plan.Append] walks one JSON text once and appends to
// a [Rows], a columnar batch that one goroutine owns: the event becomes
// exactly one row more, or an [Error] that names the column, the value and
// the reason while the batch stays exactly as it was.
//
// Nothing is changed on the way. A value that the column's type cannot hold
// exactly is refused, because the server would wrap, truncate or default it
// in silence. No integer and no decimal passes through a floating-point number.
//
// The package is pure: it knows no broker, no database, no clock.
package mapping
