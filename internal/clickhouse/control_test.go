package clickhouse_test

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/credentials"
	"github.com/chprojector/projector/internal/testenv"
)

func TestOpen(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	cfg := config(db)
	cfg.Settings = map[string]string{"max_threads": "3"}
	conn, err := clickhouse.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var got []struct {
		Async    bool   `ch:"async"`
		Threads  uint64 `ch:"threads"`
		Database string `ch:"database"`
	}
	if err := conn.Select(t.Context(), &got, "SELECT getSetting('async_insert') AS async, toUInt64(getSetting('max_threads')) AS threads, currentDatabase() AS database"); err != nil {
		t.Fatal(err)
	}
	if got[0].Async || got[0].Threads != 3 || got[0].Database != db.Name {
		t.Errorf("the session has %+v", got[0])
	}
	if err := conn.Exec(t.Context(), "CREATE TABLE t (id UInt64) ENGINE = MergeTree ORDER BY id"); err != nil {
		t.Fatal(err)
	}
}

func TestOpenUnknownSetting(t *testing.T) {
	cfg := config(testenv.SharedClickHouse(t))
	cfg.Settings = map[string]string{"no_such_setting": "1"}
	conn, err := clickhouse.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Exec(t.Context(), "SELECT 1"); err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("a setting that does not exist: %v", err)
	}
}

// TestOpenSilentServer: the driver's own greeting looks at the dial timeout, not
// at the context.
func TestOpenSilentServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	conn, err := clickhouse.Open(clickhouse.Config{Addresses: []string{silent.Addr().String()}, DialTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	start := time.Now()
	if err := conn.Exec(t.Context(), "SELECT 1"); err == nil || time.Since(start) > slack {
		t.Errorf("after %s: %v", time.Since(start), err)
	}
}

// TestAnotherProtocol: the port of HTTP is the one that most people know. Whoever talks to it is told which one is meant,
// by a statement and by an insert.
func TestAnotherProtocol(t *testing.T) {
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var answering sync.WaitGroup
	defer answering.Wait()
	defer web.Close()
	answering.Go(func() {
		for {
			conn, err := web.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_, _ = conn.Write([]byte("HTTP/1.0 400 Bad Request\r\n\r\n"))
			conn.Close()
		}
	})
	config := clickhouse.Config{Addresses: []string{web.Addr().String()}}
	conn, err := clickhouse.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := numbered(t, plan(t, 1, "id UInt64", "name String"), 1)
	for name, err := range map[string]error{
		"statement": conn.Exec(t.Context(), "SELECT 1"),
		"insert":    newInserter(t, config, "t").Insert(t.Context(), batch(r)),
	} {
		for _, want := range []string{config.Addresses[0], "does clickhouse.addresses name the port of ClickHouse's native protocol (9000, or 9440 with TLS, not that of HTTP)"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

func TestRefusedConfigs(t *testing.T) {
	good := []string{"localhost:9000"}
	for _, c := range []struct {
		name   string
		config clickhouse.Config
		err    string
	}{
		{"no address", clickhouse.Config{}, "no addresses: name at least one as host:port"},
		{"address without port", clickhouse.Config{Addresses: []string{"localhost"}}, `address "localhost": address localhost: missing port in address: use host:port`},
		{"unknown compression", clickhouse.Config{Addresses: good, Compression: "gzip"}, `compression "gzip": use one of none, lz4, zstd`},
		{"negative timeout", clickhouse.Config{Addresses: good, InsertTimeout: -time.Second}, "timeouts must be positive: dial 0s, insert -1s"},
		{"asynchronous inserts", clickhouse.Config{Addresses: good, Settings: map[string]string{"async_insert": "1"}}, "setting async_insert cannot be changed"},
		{"token", clickhouse.Config{Addresses: good, Settings: map[string]string{"insert_deduplication_token": "x"}}, "setting insert_deduplication_token cannot be changed"},
		{"missing password file", clickhouse.Config{Addresses: good, Password: credentials.Secret{File: "/nowhere/password"}}, "password: read secret"},
		{"missing authority", clickhouse.Config{Addresses: good, TLS: credentials.TLS{Enabled: true, CAFile: "/nowhere/ca.pem"}}, "tls: read ca_file"},
		{"two at once", clickhouse.Config{Compression: "gzip"}, "no addresses: name at least one as host:port\ncompression"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, control := clickhouse.Open(c.config)
			_, inserter := clickhouse.NewInserter(c.config, "t")
			for _, err := range []error{control, inserter} {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one with %q", err, c.err)
				}
			}
		})
	}
}

// TestOpenWrongPassword: the server's answer goes on for ten lines about how to reset a password, and what an operator
// is told after it would not be read.
func TestOpenWrongPassword(t *testing.T) {
	// A server of its own: this one does not survive a failed authentication.
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{Users: `<bob><password>secret</password></bob>`})
	conn, err := clickhouse.Open(clickhouse.Config{Addresses: []string{server.Addr()}, Username: "bob", Password: credentials.Secret{Value: "wrong"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = conn.Exec(t.Context(), "SELECT 1")
	if clickhouse.Code(err) != 516 || !strings.HasPrefix(err.Error(), "connect to ClickHouse at "+server.Addr()+": ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("code %d: %v", clickhouse.Code(err), err)
	}
}
