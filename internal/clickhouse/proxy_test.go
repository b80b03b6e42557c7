package clickhouse_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fault happens once a direction has passed a number of bytes.
type fault struct {
	toServer bool // the direction whose bytes count
	after    int  // bytes that still pass
	silent   bool // nothing passes any more in either direction, and nothing is closed; otherwise the connection is cut
}

// proxy stands between a client and a server and may fail.
type proxy struct {
	listener net.Listener
	upstream string
	fault    atomic.Pointer[fault] // of connections made from now on

	last atomic.Pointer[link] // the youngest connection
	done chan struct{}
	wg   sync.WaitGroup
}

func newProxy(t testing.TB, upstream string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, upstream: upstream, done: make(chan struct{})}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		listener.Close()
		close(p.done)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) Addr() string { return p.listener.Addr().String() }

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
		l := &link{client: client.(*net.TCPConn), server: server.(*net.TCPConn), fault: p.fault.Load(), silence: make(chan struct{}), done: p.done}
		_ = l.client.SetReadBuffer(64 << 10) // so that a silent link is soon full
		p.last.Store(l)
		p.wg.Go(func() { l.pass(l.server, l.client, true) })
		p.wg.Go(func() { l.pass(l.client, l.server, false) })
		p.wg.Go(l.end)
	}
}

// link is one connection through the proxy.
type link struct {
	client, server *net.TCPConn
	fault          *fault
	silence        chan struct{} // closed when nothing passes any more
	once           sync.Once
	done           <-chan struct{}

	mu                 sync.Mutex
	toServer, toClient []byte // what has passed
}

func (l *link) passed() (toServer, toClient []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.toServer, l.toClient
}

func (l *link) pass(to, from *net.TCPConn, toServer bool) {
	passed := &l.toClient
	if toServer {
		passed = &l.toServer
	}
	buf := make([]byte, 32<<10)
	for {
		want := len(buf)
		if l.fault != nil && l.fault.toServer == toServer {
			want = min(want, l.fault.after-len(*passed))
			if want == 0 {
				l.fail()
				return
			}
		}
		n, err := from.Read(buf[:want])
		select {
		case <-l.silence:
			return // keeps both open until the end of the test
		default:
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				_, _ = io.Copy(io.Discard, from)
				return
			}
			l.mu.Lock()
			*passed = append(*passed, buf[:n]...)
			l.mu.Unlock()
		}
		if err != nil {
			if err == io.EOF {
				_ = to.CloseWrite()
			}
			return
		}
	}
}

func (l *link) fail() {
	if l.fault.silent {
		l.once.Do(func() { close(l.silence) })
		return
	}
	// The client sees a reset. The server sees the end of the client, politely:
	// the embedded one does not always survive a reset.
	_ = l.client.SetLinger(0)
	l.client.Close()
	_ = l.server.CloseWrite()
	_, _ = io.Copy(io.Discard, l.server)
}

// end closes what is still open when the test is over, as politely as fail.
func (l *link) end() {
	<-l.done
	l.client.Close()
	_ = l.server.CloseWrite()
	_ = l.server.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.Copy(io.Discard, l.server)
	l.server.Close()
}
