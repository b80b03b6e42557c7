package clickhouse

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestLastWordAfterABrokenWrite: a server answers in the middle of a block and
// resets the connection. The answer is still read.
func TestLastWordAfterABrokenWrite(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	b := &bounded{Conn: client, raw: client}
	b.until(time.Now().Add(10 * time.Second))
	block := make([]byte, 1<<20)
	if n, err := b.Write(block[:1000]); n != 1000 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := server.Write([]byte("refused")); err != nil {
		t.Fatal(err)
	}
	server.Close() // with bytes unread, which makes it a reset
	for b.written() == nil {
		if n, err := b.Write(block); n != len(block) || err != nil {
			t.Fatalf("a broken write gave %d, %v", n, err)
		}
	}
	answer := make([]byte, 7)
	if _, err := io.ReadFull(b, answer); err != nil || string(answer) != "refused" {
		t.Errorf("read %q, %v", answer, err)
	}
	if _, err := b.Read(answer); err == nil {
		t.Error("the connection did not end")
	}
}

// TestBoundedDeadlines: whatever the driver sets, nothing waits past the limit.
func TestBoundedDeadlines(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for name, set := range map[string]func(*bounded) error{
		"none":    func(b *bounded) error { return b.SetReadDeadline(time.Time{}) },
		"later":   func(b *bounded) error { return b.SetDeadline(time.Now().Add(time.Hour)) },
		"not set": func(*bounded) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			client, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			b := &bounded{Conn: client, raw: client}
			b.until(time.Now().Add(50 * time.Millisecond))
			if err := set(b); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Read(make([]byte, 1)); err == nil {
				t.Error("something was read")
			}
		})
	}
}
