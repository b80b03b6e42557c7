// Package backfill writes the rows of the authoritative MySQL shards, with
// their own versions, into a projection's table: a campaign, some, or all.
//
// A source row becomes an event and passes through the mapping and the inserter
// of the stream, so that it cannot mean anything else than the same event from
// Kafka. A deletion becomes a row with the version of the deletion. Whatever is
// newer in the table stays: the table keeps every version, and readers see the
// highest.
//
//	Source   reads shards in key order and gives events       (source.go, event.go)
//	Writer   inserts rows, once each has been read back       (writer.go, readback.go)
//	Copy     moves campaigns from one to the other, and says  (copy.go)
//	         after each chunk where another Copy could go on
//
// Repair and rebuild use the same parts: a Source that is asked for single keys,
// a Writer of another generation's table. docs/backfill.md is for operators,
// docs/decisions/backfill.md has the choices.
package backfill
