// Package mysql opens the authoritative shards. Every session of a shard is the
// same, whatever the server's defaults and the DSN say, because a value that is
// read under another time zone, character set or SQL mode is another value.
package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/chprojector/projector/internal/contact"
	"github.com/chprojector/projector/internal/credentials"
)

// Shard is one MySQL or MariaDB server of the source.
type Shard struct {
	Name string             // as in the configuration; part of errors, logs and labels
	DSN  credentials.Secret // user:password@tcp(host:3306)/database; read again for each connection
}

// Bounds of a connection. Reading has none: a large result may take its time,
// and whoever asks gives a context with a deadline.
const (
	dialTimeout = 5 * time.Second
	// The timeout of the DSN, or dialTimeout, is the driver's for TCP alone: a server that accepts and then says
	// nothing, as one does whose disk hangs, would be waited for without an end and without a word.
	loginTimeouts = 4
	lifetime      = 10 * time.Minute // so that a rotated password and a moved address are seen
)

// Open returns a pool of at most conns sessions, which run at +00:00, strictly,
// in utf8mb4, and give whole results. It does not connect. Values arrive as the bytes that the server
// sends, never through a float or a time.Time: parseTime is off.
//
// Isolation is not the session's but each transaction's (sql.TxOptions): the
// variable for it has different names in MySQL and in MariaDB before 11.1.
func (s Shard) Open(conns int) (*sql.DB, error) {
	cfg, err := s.config()
	if err != nil {
		return nil, err
	}
	// The file may be rotated; the address in it may change with it.
	err = cfg.Apply(driver.BeforeConnect(func(_ context.Context, c *driver.Config) error {
		fresh, err := s.config()
		if err != nil {
			return err
		}
		c.User, c.Passwd, c.Net, c.Addr, c.DBName = fresh.User, fresh.Passwd, fresh.Net, fresh.Addr, fresh.DBName
		return nil
	}))
	if err != nil {
		return nil, fmt.Errorf("shard %s: %w", s.Name, err)
	}
	connector, err := driver.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("shard %s: %w", s.Name, err)
	}
	db := sql.OpenDB(patient{connector, s, loginTimeouts * cfg.Timeout})
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxLifetime(lifetime)
	return db, nil
}

// patient connects within a limit: TCP, TLS, the server's greeting, the login and the session's variables.
type patient struct {
	sqldriver.Connector
	shard Shard
	limit time.Duration
}

// at is the address as it is now.
func (p patient) at() string {
	cfg, err := p.shard.config()
	if err != nil {
		return ""
	}
	return " at " + cfg.Addr
}

func (p patient) Connect(ctx context.Context) (sqldriver.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	conn, err := p.Connector.Connect(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("the server%s does not answer: no session within %s: %w", p.at(), p.limit, err)
	}
	if _, refused := errors.AsType[*driver.MySQLError](err); err != nil && !refused {
		err = contact.Server{Address: "the shard's dsn or dsn_file in source.shards", Speaks: "a MySQL server, with the tls parameter that it wants"}.Explain(err)
	}
	return conn, err
}

// session are the variables of every session, as SQL.
var session = map[string]string{
	"time_zone": "'+00:00'",
	// The SQL text of the configuration must mean the same on every server: || and quotes as MySQL has them,
	// no value cut to fit.
	"sql_mode": "'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'",
	// The server would end a result after so many rows without a word, and what was left out would pass for what the
	// source does not have.
	"sql_select_limit": "18446744073709551615",
	// A statement by itself is a transaction, and the one after a commit begins anew: else it would read an old
	// state, and what it writes would be undone with the connection.
	"autocommit":      "1",
	"completion_type": "0",
	// Behind an ALTER TABLE or LOCK TABLES that does not end the server would let us wait for a day, MySQL for a year.
	"lock_wait_timeout": "60",
}

func (s Shard) config() (*driver.Config, error) {
	dsn, err := s.DSN.Read()
	if err != nil {
		return nil, fmt.Errorf("shard %s: %w", s.Name, err)
	}
	cfg, err := driver.ParseDSN(dsn)
	if err != nil {
		// The driver's error may repeat the text, and with it the password.
		return nil, fmt.Errorf("shard %s: the DSN is not of the form user:password@tcp(host:3306)/database", s.Name)
	}
	if cfg.DBName == "" {
		return nil, fmt.Errorf("shard %s: the DSN names no database; write user:password@tcp(host:3306)/database", s.Name)
	}
	cfg.ParseTime, cfg.Loc, cfg.InterpolateParams, cfg.MultiStatements = false, time.UTC, false, false
	cfg.Logger = &driver.NopLogger{} // every error it logs is returned as well
	if cfg.Timeout == 0 {
		cfg.Timeout = dialTimeout
	}
	if err := cfg.Apply(driver.Charset("utf8mb4", "")); err != nil {
		return nil, fmt.Errorf("shard %s: %w", s.Name, err)
	}
	// Names of variables have no case, and of two spellings of one the driver may set either last.
	maps.DeleteFunc(cfg.Params, func(name, _ string) bool { return session[strings.ToLower(name)] != "" })
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	maps.Copy(cfg.Params, session)
	return cfg, nil
}
