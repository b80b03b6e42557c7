//go:build synctests

package projector

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// good is a database without faults.
func (w *world) good() Inserter {
	return insertFunc(func(_ context.Context, b Batch) error { w.store.insert(b); return nil })
}

// slow is a database that takes its time.
func (w *world) slow(latency time.Duration) Inserter {
	return insertFunc(func(ctx context.Context, b Batch) error {
		if !sleep(ctx, latency) {
			return ctx.Err()
		}
		w.store.insert(b)
		return nil
	})
}

// valve is a database that answers only while it is open.
type valve struct {
	next     Inserter
	open     chan struct{}
	attempts atomic.Int64
}

func (v *valve) Insert(ctx context.Context, b Batch) error {
	v.attempts.Add(1)
	select {
	case <-v.open:
		return v.next.Insert(ctx, b)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (*valve) Close() error { return nil }

// parkFunc is a DeadLetters without state.
type parkFunc func(ctx context.Context, letters []Letter) error

func (f parkFunc) Park(ctx context.Context, letters []Letter) error { return f(ctx, letters) }

// link is one member's way to the broker, which can be cut off.
type link struct {
	net *kfake.VirtualNetwork

	mu     sync.Mutex
	down   bool
	silent bool // while it is down it answers nothing, not even that it is down
	conns  []net.Conn
}

func (l *link) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		if l.silent {
			l.mu.Unlock()
			sleep(ctx, 10*time.Second) // kgo's own dialer gives up after that
			l.mu.Lock()
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("network is unreachable")}
	}
	c, err := l.net.DialContext(ctx, network, address)
	if err == nil {
		l.conns = append(l.conns, c)
	}
	return c, err
}

// sever closes every connection and refuses new ones until heal.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}
