package clickhouse

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chprojector/projector/internal/contact"
	"github.com/chprojector/projector/internal/credentials"
)

// keepAlive notices within about 25 seconds that the server's machine is gone
// while a connection is idle; Go's default takes two and a half minutes.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// dial connects to one server, TLS included, with the certificates as they are
// now. The second result is the TCP connection below TLS.
func dial(ctx context.Context, address string, t credentials.TLS) (conn, raw net.Conn, err error) {
	config, err := t.Config()
	if err != nil {
		return nil, nil, err
	}
	raw, err = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", address)
	if err != nil || config == nil {
		return raw, raw, err
	}
	if config.ServerName == "" {
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			raw.Close()
			return nil, nil, err
		}
	}
	client := tls.Client(raw, config)
	if err := client.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, nil, fmt.Errorf("tls: %w", err)
	}
	return client, raw, nil
}

// explain adds what to do about a server that cannot be talked to.
func (c Config) explain(err error) error {
	return contact.Server{
		Address: "clickhouse.addresses", TLS: "clickhouse.tls", Encrypted: c.TLS.Enabled,
		Speaks: "the port of ClickHouse's native protocol (9000, or 9440 with TLS, not that of HTTP)",
	}.Explain(err)
}

// bounded is a connection on which nothing blocks past a limit set from
// outside.
//
// ch-go sets deadlines from its context, but removes them once it has read the
// first byte of a packet, and waits for the rest without one: a server that
// falls silent in the middle of a packet would hold the lane for ever. It also
// ignores a context that is cancelled, rather than expired, until the next
// packet arrives. Here a deadline beyond the limit, or none, becomes the limit.
//
// Nor does a failed write end the conversation. A server that refuses a block
// while it is still being sent says why and closes; ch-go would report the
// broken pipe and throw the answer away, and an error that needs another answer
// than a retry would be retried for ever. Here writing goes on into nothing, and
// the reader finds the server's last word or the end of the connection.
type bounded struct {
	net.Conn          // with TLS
	raw      net.Conn // below it

	mu    sync.Mutex
	limit time.Time

	broken atomic.Pointer[error] // the first failed write
}

// Write never fails; written tells.
func (b *bounded) Write(p []byte) (int, error) {
	if b.broken.Load() == nil {
		if _, err := b.Conn.Write(p); err != nil {
			b.broken.Store(&err)
		}
	}
	return len(p), nil
}

// written is the first error of a write.
func (b *bounded) written() error {
	if err := b.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// until sets the limit for everything that follows.
func (b *bounded) until(limit time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = limit
	_ = b.Conn.SetDeadline(limit)
}

// expire makes every read and write fail with a timeout, those that wait now
// included.
func (b *bounded) expire() { b.until(time.Unix(1, 0)) }

func (b *bounded) SetDeadline(t time.Time) error      { return b.set(b.Conn.SetDeadline, t) }
func (b *bounded) SetReadDeadline(t time.Time) error  { return b.set(b.Conn.SetReadDeadline, t) }
func (b *bounded) SetWriteDeadline(t time.Time) error { return b.set(b.Conn.SetWriteDeadline, t) }

func (b *bounded) set(set func(time.Time) error, t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.IsZero() || t.After(b.limit) && !b.limit.IsZero() {
		t = b.limit
	}
	return set(t)
}

// Close closes the TCP connection itself. Closing through TLS would first
// write its farewell and wait up to five seconds for room in a dead socket.
func (b *bounded) Close() error { return b.raw.Close() }
