package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// controlSilence is how long a control connection waits for the next packet.
// A server at work sends its progress several times a second; the driver's own
// five minutes are how long a half-open connection would hold a command.
const controlSilence = time.Minute

// maxQuerySize is what the server reads of a statement, in bytes.
const maxQuerySize = 64 << 20

// Open gives a pool of connections for statements and questions. Nothing is
// connected before the first of them. The password's file is read for each
// connection, so that a pool outlives a rotation.
//
// Sessions carry the configured settings and async_insert=0, which the driver
// has no option for, so that a statement that inserts is answered when its
// rows are written; those that make an answer whole; and a max_query_size for
// records and lists of keys, which are longer than the server's 256 KiB.
func Open(c Config) (driver.Conn, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	settings := clickhouse.Settings{"async_insert": 0, "max_query_size": maxQuerySize}
	for name, value := range c.Settings {
		settings[name] = value
	}
	for name, value := range whole {
		settings[name] = value
	}
	conn, err := clickhouse.Open(&clickhouse.Options{
		Addr:        c.Addresses,
		Auth:        clickhouse.Auth{Database: c.Database, Username: c.Username},
		ClientInfo:  clickhouse.ClientInfo{Products: []struct{ Name, Version string }{{Name: clientName}}},
		Settings:    settings,
		DialTimeout: c.DialTimeout,
		ReadTimeout: controlSilence,
		DialContext: func(ctx context.Context, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
			defer cancel()
			conn, _, err := dial(ctx, address, c.TLS)
			return conn, err
		},
		DialStrategy: c.login,
		MaxOpenConns: 8,
		MaxIdleConns: 2,
	})
	if err != nil {
		return nil, fmt.Errorf("clickhouse: %w", err)
	}
	return conn, nil
}

// login dials as the driver does by itself, with the password as it is now.
func (c Config) login(ctx context.Context, id int, opts *clickhouse.Options, dial clickhouse.Dial) (clickhouse.DialResult, error) {
	password, err := c.Password.Read()
	if err != nil {
		return clickhouse.DialResult{}, fmt.Errorf("clickhouse: password: %w", err)
	}
	fresh := *opts
	fresh.Auth.Password = password
	result, err := clickhouse.DefaultDialStrategy(ctx, id, &fresh, dial)
	if err != nil {
		if refused, ok := errors.AsType[*clickhouse.Exception](err); ok {
			refused.Message, _, _ = strings.Cut(refused.Message, "\n") // how to reset a password takes ten lines
		} else {
			err = c.explain(err)
		}
		return result, fmt.Errorf("connect to ClickHouse at %s: %w", strings.Join(c.Addresses, ", "), err) // the driver does not say to what
	}
	return result, nil
}

// clientName is shown in system.query_log and system.processes.
const clientName = "projector"
