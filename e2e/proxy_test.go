package e2e

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy stands between projectors and ClickHouse. It can hold back what one side says, so that a test knows what is
// under way without having to hit a moment.
type proxy struct {
	listener net.Listener
	upstream string

	mu    sync.Mutex
	held  *hold
	links map[*link]struct{}
	wg    sync.WaitGroup
}

// link is one connection through the proxy.
type link struct {
	client, server *net.TCPConn
	sent           atomic.Int64 // bytes from the client
	cut            atomic.Bool
}

// hold is a pause in one direction, on connections whose client has sent more than a number of bytes: those that
// insert much.
type hold struct {
	toServer bool
	after    int64
	reached  chan struct{} // closed when something waits
	released chan struct{}
	first    sync.Once
}

func newProxy(t testing.TB, upstream string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, upstream: upstream, links: map[*link]struct{}{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		listener.Close()
		p.release()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) Addr() string { return p.listener.Addr().String() }

// holdRequests keeps back what a client sends after its first bytes: an insert has arrived in part. The channel is
// closed when that has happened.
func (p *proxy) holdRequests(after int64) <-chan struct{} { return p.hold(true, after) }

// holdAnswers keeps back what the server answers after that: the insert may be done and nobody knows.
func (p *proxy) holdAnswers(after int64) <-chan struct{} { return p.hold(false, after) }

func (p *proxy) hold(toServer bool, after int64) <-chan struct{} {
	p.release()
	h := &hold{toServer: toServer, after: after, reached: make(chan struct{}), released: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = h
	return h.reached
}

// release lets everything pass again.
func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held.released)
		p.held = nil
	}
}

// cut ends all connections; what is held back never arrives. The server sees the end of its client politely, as it
// does when a process dies.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut.Store(true)
		_ = l.client.SetLinger(0)
		l.client.Close()
		_ = l.server.CloseWrite()
		_ = l.server.SetReadDeadline(time.Now().Add(5 * time.Second))
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.upstream)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{client: client.(*net.TCPConn), server: server.(*net.TCPConn)}
		p.mu.Lock()
		p.links[l] = struct{}{}
		p.mu.Unlock()
		var both sync.WaitGroup
		both.Go(func() { p.pass(l, l.server, l.client, true) })
		both.Go(func() { p.pass(l, l.client, l.server, false) })
		p.wg.Go(func() {
			both.Wait()
			p.mu.Lock()
			delete(p.links, l)
			p.mu.Unlock()
			l.client.Close()
			l.server.Close()
		})
	}
}

// pass copies one direction until its end.
func (p *proxy) pass(l *link, to, from *net.TCPConn, toServer bool) {
	defer func() { _ = to.CloseWrite() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		sent := l.sent.Load()
		if toServer {
			sent = l.sent.Add(int64(n))
		}
		p.mu.Lock()
		h := p.held
		p.mu.Unlock()
		if h != nil && h.toServer == toServer && n > 0 && sent > h.after {
			h.first.Do(func() { close(h.reached) })
			<-h.released
			if l.cut.Load() {
				return
			}
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				_, _ = io.Copy(io.Discard, from)
				return
			}
		}
		if err != nil {
			return
		}
	}
}
