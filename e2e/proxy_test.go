package e2e

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy stands between projectors and a server. It can hold back what one side says, so that a test knows what is
// under way without having to hit a moment; it can be slow, silent, or cut connections; and a watch may read along.
type proxy struct {
	listener net.Listener
	upstream string
	watch    watch

	mu      sync.Mutex
	held    *hold
	weather weather
	links   map[*link]struct{}
	closed  bool
	wg      sync.WaitGroup
}

// watch understands a protocol. It returns what looks at the two directions of a new connection; nil lets a direction
// pass as it is.
type watch func() (requests, answers filter)

// filter sees the bytes of one direction in their order and returns what goes on, which may be less for now. It may
// take its time. With an error the connection is cut behind what goes on.
type filter func(chunk []byte) ([]byte, error)

// errCut is a filter's wish to cut the connection.
var errCut = errors.New("cut")

// weather is what the network does to all connections, those made meanwhile included. The zero value is a fair one.
type weather struct {
	silence chan struct{} // nothing passes in either direction until this is closed, and nothing is lost
	rate    int           // bytes a second in each direction of a connection; 0: as fast as it goes
}

// link is one connection through the proxy.
type link struct {
	client, server *net.TCPConn
	sent           atomic.Int64 // bytes from the client
	cut            atomic.Bool
	halfOpen       atomic.Bool
	ended          chan struct{} // closed when it is cut
	once           sync.Once
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
	return newWatchedProxy(t, upstream, nil)
}

func newWatchedProxy(t testing.TB, upstream string, w watch) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, upstream: upstream, watch: w, links: map[*link]struct{}{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		listener.Close()
		p.release()
		p.clear()
		p.mu.Lock()
		p.closed = true // a connection that is being made would be missed
		p.mu.Unlock()
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

// slow lets so many bytes a second pass in each direction of each connection, until clear.
func (p *proxy) slow(bytesPerSecond int) { p.change(weather{rate: bytesPerSecond}) }

// silence lets nothing pass, until clear: no bytes, and no end of a connection.
func (p *proxy) silence() { p.change(weather{silence: make(chan struct{})}) }

// clear ends slow and silence, and half-open connections too: their client is told.
func (p *proxy) clear() {
	p.change(weather{})
	p.each(func(l *link) {
		if l.halfOpen.Load() {
			l.end()
		}
	})
}

func (p *proxy) change(w weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.weather.silence != nil {
		close(p.weather.silence)
	}
	p.weather = w
}

// halve makes all connections half-open: the server sees their end, the client sees nothing, and what it sends goes
// nowhere.
func (p *proxy) halve() {
	p.each(func(l *link) {
		l.halfOpen.Store(true)
		l.leaveServer()
	})
}

// cut ends all connections; what is held back never arrives.
func (p *proxy) cut() { p.each((*link).end) }

func (p *proxy) each(do func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		do(l)
	}
}

// open is how many connections there are.
func (p *proxy) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// end cuts the connection. The server sees the end of its client politely, as it does when a process dies.
func (l *link) end() {
	l.once.Do(func() {
		l.cut.Store(true)
		close(l.ended)
		_ = l.client.SetLinger(0)
		l.client.Close()
		l.leaveServer()
	})
}

func (l *link) leaveServer() {
	_ = l.server.CloseWrite()
	_ = l.server.SetReadDeadline(time.Now().Add(5 * time.Second))
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
		l := &link{client: client.(*net.TCPConn), server: server.(*net.TCPConn), ended: make(chan struct{})}
		p.mu.Lock()
		p.links[l] = struct{}{}
		if p.closed {
			l.end()
		}
		p.mu.Unlock()
		var requests, answers filter
		if p.watch != nil {
			requests, answers = p.watch()
		}
		var both sync.WaitGroup
		both.Go(func() { p.pass(l, l.server, l.client, true, requests) })
		both.Go(func() { p.pass(l, l.client, l.server, false, answers) })
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
func (p *proxy) pass(l *link, to, from *net.TCPConn, toServer bool, look filter) {
	defer func() {
		if !l.halfOpen.Load() {
			_ = to.CloseWrite()
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		chunk, cut := buf[:n], error(nil)
		if look != nil && n > 0 {
			chunk, cut = look(chunk)
		}
		if !p.detain(l, n, toServer) {
			return
		}
		if l.halfOpen.Load() && !toServer {
			_, _ = io.Copy(io.Discard, from) // a polite end for the server
			return
		}
		if len(chunk) > 0 {
			if _, err := to.Write(chunk); err != nil {
				_, _ = io.Copy(io.Discard, from)
				return
			}
		}
		if cut != nil {
			l.end()
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if err != nil {
			return
		}
	}
}

// detain keeps n bytes back for as long as the hold and the weather want it, and reports whether they may go on.
func (p *proxy) detain(l *link, n int, toServer bool) bool {
	sent := l.sent.Load()
	if toServer {
		sent = l.sent.Add(int64(n))
	}
	p.mu.Lock()
	h, w := p.held, p.weather
	p.mu.Unlock()
	if h != nil && h.toServer == toServer && n > 0 && sent > h.after {
		h.first.Do(func() { close(h.reached) })
		<-h.released
	}
	if w.silence != nil {
		select {
		case <-w.silence:
		case <-l.ended:
		}
	}
	if w.rate > 0 && n > 0 {
		slow := time.NewTimer(time.Duration(n) * time.Second / time.Duration(w.rate))
		defer slow.Stop()
		select {
		case <-slow.C:
		case <-l.ended:
		}
	}
	return !l.cut.Load()
}
