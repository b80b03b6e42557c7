// Package outbox publishes the events that an application has written, in its
// own transaction, into a table of its own database: the transactional outbox.
//
// A relay claims due events of one shard, publishes them outside of any
// transaction, and records the outcome. Claims are leases, written and judged
// by the shard's clock, with a random token that every later transition
// repeats: whoever has lost its lease changes nothing any more. So an event is
// published at least once, whatever crashes, and a repetition is harmless,
// because an event is a complete state with a version.
//
// Nothing here follows a cursor. Ids are given out before a transaction commits,
// so a reader that remembers the highest id it has seen skips whoever commits
// late. An event is found by its state alone.
package outbox
