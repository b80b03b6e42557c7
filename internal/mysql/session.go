package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"

	mysqldriver "github.com/go-sql-driver/mysql"
)

// Session is one connection to a shard, in one consistent snapshot: whatever it
// reads is the state of the moment at which the snapshot began. It belongs to
// one goroutine.
//
// A snapshot keeps the server from purging what has changed since. That is the
// price of reading a campaign as one state; read a replica if it is too high.
type Session struct {
	Shard string

	db   *sql.DB
	conn *sql.Conn
}

// readTimeout is how long the server may wait for us to read on, in seconds:
// inserts may be rate limited or waiting for ClickHouse for longer than the
// minute that is the server's default, after which it would cut the result off.
const readTimeout = 86400

// Session connects and begins a snapshot.
func (s Shard) Session(ctx context.Context) (*Session, error) {
	db, err := s.Open(1)
	if err != nil {
		return nil, err
	}
	session := &Session{Shard: s.Name, db: db}
	if err := session.Begin(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return session, nil
}

const beginSnapshot = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY" // and ends the one before it

// Begin begins a new snapshot, on a new connection if the old one is broken.
func (s *Session) Begin(ctx context.Context) error {
	if s.conn != nil {
		if _, err := s.conn.ExecContext(ctx, beginSnapshot); err == nil {
			return nil
		}
		s.release()
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to shard %s: %w", s.Shard, err)
	}
	for _, statement := range []string{
		fmt.Sprintf("SET SESSION net_write_timeout = %d", readTimeout),
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
		beginSnapshot,
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			conn.Close()
			return fmt.Errorf("begin a snapshot of shard %s: %s: %w", s.Shard, statement, err)
		}
	}
	s.conn = conn
	return nil
}

func (s *Session) release() {
	if s.conn != nil {
		// The transaction goes with the connection; an idle pool of one would keep both.
		_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
		s.conn.Close()
		s.conn = nil
	}
}

// Close ends the snapshot and the connection.
func (s *Session) Close() error {
	s.release()
	return s.db.Close()
}

// ErrNull is a list of campaigns with rows of none. No query for one campaign
// gives those, so what is said of all campaigns would not be said of them.
var ErrNull = errors.New("there is a NULL among them: rows of no campaign, of which nothing could be said; " +
	"correct them, or leave them out on purpose with WHERE … IS NOT NULL")

// Texts returns the only column of a query's result. A NULL in it is [ErrNull].
func (s *Session) Texts(ctx context.Context, query string) ([]string, error) {
	texts, err := Texts(ctx, s.conn, query)
	if err != nil {
		return nil, fmt.Errorf("shard %s: %w", s.Shard, err)
	}
	return texts, nil
}

// querier is a connection, or a pool of them.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Texts is [Session.Texts] for whoever has connections of another kind, and adds the shard to its errors.
func Texts(ctx context.Context, q querier, query string) ([]string, error) {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	if len(columns) != 1 {
		return nil, fmt.Errorf("the query has %d columns, and one is expected: %s", len(columns), query)
	}
	var texts []string
	for rows.Next() {
		var text sql.NullString
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		if !text.Valid {
			return nil, ErrNull
		}
		texts = append(texts, text.String)
	}
	return texts, rows.Err()
}

// parameters returns how many question marks a statement has, as the server
// sees it: one within a text or a comment is none.
func (s *Session) parameters(ctx context.Context, query string) (n int, err error) {
	err = s.conn.Raw(func(c any) error {
		statement, err := c.(driver.ConnPrepareContext).PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		defer statement.Close()
		n = statement.NumInput()
		return nil
	})
	return n, err
}

// lost reports whether an error is the end of a connection and not an answer:
// the same question may be asked again on another one.
func lost(err error) bool {
	if e, ok := errors.AsType[*mysqldriver.MySQLError](err); ok {
		switch e.Number {
		case 1053, // ER_SERVER_SHUTDOWN
			1077, 1078, 1079, 1080, // shutting down, signals
			1159, 1161, // ER_NET_READ_INTERRUPTED, ER_NET_WRITE_INTERRUPTED
			1317,       // ER_QUERY_INTERRUPTED
			1927, 4031: // ER_CONNECTION_KILLED, ER_CLIENT_INTERACTION_TIMEOUT
			return true
		}
		return false
	}
	var network net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysqldriver.ErrInvalidConn) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &network)
}
