package e2e

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestProxyWeather holds that the proxy does to a connection what the chaos suite thinks it does.
func TestProxyWeather(t *testing.T) {
	// dial returns a connection to a server that sends everything back.
	dial := func(t *testing.T, p *proxy) *net.TCPConn {
		t.Helper()
		conn, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn.(*net.TCPConn)
	}
	say := func(t *testing.T, conn net.Conn, n int) {
		t.Helper()
		if _, err := conn.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(conn net.Conn, n int, patience time.Duration) error {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, err := io.ReadFull(conn, make([]byte, n))
		return err
	}
	const moment = 100 * time.Millisecond
	nothing := func(t *testing.T, conn net.Conn) {
		t.Helper()
		if err := hear(conn, 1, moment); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection is not silent: %v", err)
		}
	}

	t.Run("silence", func(t *testing.T) {
		p := newProxy(t, echo(t))
		old := dial(t, p)
		say(t, old, 10)
		if err := hear(old, 10, soon); err != nil {
			t.Fatal(err)
		}
		p.silence()
		young := dial(t, p)
		for _, conn := range []net.Conn{old, young} {
			say(t, conn, 10)
			nothing(t, conn)
		}
		p.clear()
		for _, conn := range []net.Conn{old, young} {
			if err := hear(conn, 10, soon); err != nil {
				t.Errorf("what was silent is lost: %v", err)
			}
		}
	})
	t.Run("half-open", func(t *testing.T) {
		p := newProxy(t, echo(t))
		conn := dial(t, p)
		say(t, conn, 10)
		if err := hear(conn, 10, soon); err != nil {
			t.Fatal(err)
		}
		p.halve()
		say(t, conn, 10)
		nothing(t, conn)
		say(t, conn, 10)
		young := dial(t, p)
		say(t, young, 10)
		if err := hear(young, 10, soon); err != nil {
			t.Errorf("a new connection: %v", err)
		}
		p.clear()
		if err := hear(conn, 1, soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the client was not told: %v", err)
		}
	})
	t.Run("slow", func(t *testing.T) {
		p := newProxy(t, echo(t))
		conn := dial(t, p)
		p.slow(100_000)
		began := time.Now()
		say(t, conn, 20_000)
		if err := hear(conn, 20_000, soon); err != nil {
			t.Fatal(err)
		}
		if took, least := time.Since(began), 200*time.Millisecond; took < least {
			t.Errorf("20 KB at 100 KB/s took %v", took)
		}
	})
	t.Run("cut", func(t *testing.T) {
		p := newProxy(t, echo(t))
		conn := dial(t, p)
		say(t, conn, 10)
		if err := hear(conn, 10, soon); err != nil {
			t.Fatal(err)
		}
		p.cut()
		if err := hear(conn, 1, soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the client was not told: %v", err)
		}
	})
}

// echo is the address of a server that sends everything back.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { listener.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}
