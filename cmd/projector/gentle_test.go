package main

import (
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
)

// gently returns an address that leads to a server, and ends its connections in
// order when their client is killed: what the server still sends is read, and
// then the connection is closed. The embedded ClickHouse of the tests aborts as
// a whole when a connection with unread data is reset, which a real server
// answers with a line in its log.
func gently(t *testing.T, server string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		group.Wait()
	})
	group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() { lead(client.(*net.TCPConn), server) })
		}
	})
	return l.Addr().String()
}

func lead(client *net.TCPConn, server string) {
	defer client.Close()
	conn, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer conn.Close()
	var group sync.WaitGroup
	group.Go(func() {
		_, _ = io.Copy(conn, client)
		_ = conn.(*net.TCPConn).CloseWrite()
	})
	group.Go(func() {
		_, _ = io.Copy(client, conn)
		_ = client.CloseWrite()
		_, _ = io.Copy(io.Discard, conn) // the client is gone, and the server has not noticed
	})
	group.Wait()
}

// killable makes the world's processes reach ClickHouse so that they may be
// killed.
func (w *world) killable() {
	w.t.Helper()
	const flag = "clickhouse.addresses="
	i := slices.IndexFunc(w.flags, func(f string) bool { return strings.HasPrefix(f, flag) })
	w.flags[i] = flag + gently(w.t, w.db.Addr())
}
