package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	mysqldriver "github.com/go-sql-driver/mysql"
)

// statementTimeout bounds one transaction, so that a shard that hangs is told
// from one that is slow.
const statementTimeout = 15 * time.Second

// Errors of MySQL and MariaDB.
const (
	errLockWait = 1205
	errDeadlock = 1213
	errAccess   = 1045 // wrong user or password
	errDatabase = 1044 // no right to the database
	errTable    = 1142 // no right to the table
	errBinlog   = 1665 // READ COMMITTED under STATEMENT
)

// tx runs one transaction at READ COMMITTED. A deadlock, or a lock that did not
// come in time, rolled it back without a trace, and it is simply repeated; that
// is counted. do must start from nothing each time.
func (s *Store) tx(ctx context.Context, do func(context.Context, *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := s.once(ctx, do)
		switch code(err) {
		case errDeadlock:
			s.repeated("deadlock")
		case errLockWait:
			s.repeated("lock_wait")
		default:
			return err
		}
		if !wait(ctx, rand.N(time.Duration(min(attempt, 20))*5*time.Millisecond)) {
			return err
		}
	}
}

func (s *Store) once(ctx context.Context, do func(context.Context, *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := do(ctx, tx); err != nil {
		_ = tx.Rollback() // the connection is broken, or the server has rolled back already
		return err
	}
	return tx.Commit()
}

// code is the server's error number, 0 for any other error and for none.
func code(err error) uint16 {
	if refused, ok := errors.AsType[*mysqldriver.MySQLError](err); ok {
		return refused.Number
	}
	return 0
}

// wait returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// sortByID puts events into the order in which they were inserted. It is also
// the order in which every transaction locks rows, which keeps most deadlocks
// from happening.
func sortByID(events []event) {
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.id, b.id) })
}

// cut makes a text fit into last_error.
func cut(s string) string {
	const most = 500
	s = strings.ToValidUTF8(s, "\uFFFD")
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// jittered is a pause of full jitter: anything up to the limit, which doubles
// with each attempt. Relays that failed together do not come back together.
func jittered(attempt int, least, most time.Duration) time.Duration {
	limit := most
	if doublings := max(0, attempt-1); doublings < 32 && least<<doublings > 0 {
		limit = min(most, least<<doublings)
	}
	return rand.N(limit + 1)
}
