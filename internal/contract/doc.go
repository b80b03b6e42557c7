// Package contract is what equality of a record means when the table is
// compared with its source: a list of fields, each with a class, written in the
// configuration and independent of the mapping. If the comparison read values
// as the mapping does, a defect of the mapping would cancel out, and that is
// the very fault to be found. So this package imports nothing of mapping, and a
// lint rule holds it to that.
//
// From the list are generated the SQL of MySQL, the SQL of ClickHouse and the
// encoder in Go of one canonical text:
//
//	p1;                     the version of this form
//	V<byte length>:<bytes>; for each field, or
//	N;                      for null
//
// Lengths keep content from sliding between neighbours, and a value that spells
// "N;" from being null. Integers are decimal digits without leading zeros;
// decimals are unscaled integers at the contract's scale, so that 2.31 and
// 2.310 are one value; instants are microseconds since 1970-01-01 UTC, cut to
// the contract's precision; strings are their bytes in utf8mb4, untouched;
// enums are names; bools are 0 and 1. Floats have no place in a contract.
//
// The digest of a row is the MD5 of its canonical text: MySQL, MariaDB,
// ClickHouse and Go all have it, and the time goes into rendering the text, not
// into the hash. The digest of a bucket is the number of its rows and the two
// sums, modulo 2^64, of the halves of their digests. Sums can be added over
// shards. An exclusive or of checksums can be too, but a change that is the same
// in every row cancels out of it.
package contract
