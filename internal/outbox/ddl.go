package outbox

import (
	"fmt"
	"strings"

	"github.com/chprojector/projector/internal/mysql"
)

// States of an event. What due_at means depends on it.
const (
	Due        = "due"        // to be published; due_at: not before
	Claimed    = "claimed"    // a relay is about to publish it; due_at: end of the lease
	Sent       = "sent"       // acknowledged by Kafka; due_at: when
	Parked     = "parked"     // given up after the last attempt; due_at: when
	Superseded = "superseded" // was parked, and a newer version has been sent; due_at: when
)

// ddl is the table. Why it is like this:
//
//   - due_at and created_at default to UTC_TIMESTAMP: CURRENT_TIMESTAMP would be
//     the local time of the application's session, and an event from a session
//     at +08:00 would be due eight hours late.
//   - One state and one due_at, so that one index serves every question in its
//     own order: claim, reap, purge, list. The usual pair of status and
//     next_retry_time needs an OR, hence a sort, and a sort locks what it reads.
//   - payload is text, not JSON: the JSON type rewrites what it is given (2.310
//     becomes 2.31, names are sorted), and bytes have to arrive as they were
//     written.
//   - Ids are ascii: an index entry of utf8mb4 would count four bytes each.
const ddl = `CREATE TABLE IF NOT EXISTS %[1]s (
  id             BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  -- written by the application, in the transaction that changes the aggregate
  event_id       VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  aggregate_type VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  aggregate_id   VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  version        BIGINT UNSIGNED NOT NULL,
  payload        MEDIUMTEXT CHARACTER SET utf8mb4 NOT NULL,
  -- written by the relay
  created_at     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  state          ENUM('due', 'claimed', 'sent', 'parked', 'superseded') CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'due',
  due_at         DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  attempts       INT UNSIGNED NOT NULL DEFAULT 0,
  claim_token    BIGINT UNSIGNED NOT NULL DEFAULT 0,
  claimed_by     VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  last_error     VARCHAR(500) CHARACTER SET utf8mb4 NULL,
  sent_partition INT NULL,
  sent_offset    BIGINT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY event (event_id),
  UNIQUE KEY version (aggregate_type, aggregate_id, version),
  KEY due (state, due_at, id)
) ENGINE=InnoDB`

// DDL is the statement that creates the outbox, for MariaDB 10.6 and MySQL
// 8.0.13 or later. MySQL 8.0.1 to 8.0.12 lacks defaults by expression: there
// they are left out, and the application gives both times.
func DDL(table string) string { return fmt.Sprintf(ddl, mysql.QuoteName(table)) }

// Grants are the statements that give the relay's user what it needs on the
// outbox, and nothing more.
func Grants(table, user string, heartbeat bool) []string {
	rights := "SELECT, UPDATE, DELETE"
	if heartbeat {
		rights = "SELECT, INSERT, UPDATE, DELETE"
	}
	name, host, ok := strings.Cut(user, "@")
	if !ok {
		host = "%"
	}
	return []string{fmt.Sprintf("GRANT %s ON %s TO %s@%s", rights, mysql.QuoteName(table), mysql.QuoteString(name), mysql.QuoteString(host))}
}
