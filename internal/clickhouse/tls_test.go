package clickhouse_test

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/credentials"
	"github.com/chprojector/projector/internal/credentials/testca"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/projector"
)

// secured puts TLS before a server that speaks without, and gives its address.
// The embedded server cannot be asked itself: it has OpenSSL, but clickhouse-local
// refuses SYSTEM START LISTEN TCP SECURE ("supports only TCP and HTTP listeners",
// 26.7) and opens no port of <protocols>.
func secured(t *testing.T, upstream string, config *tls.Config) string {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer client.Close()
				if client.(*tls.Conn).HandshakeContext(t.Context()) != nil {
					return
				}
				server, err := net.Dial("tcp", upstream)
				if err != nil {
					return
				}
				defer server.Close()
				wg.Go(func() { _, _ = io.Copy(client, server); client.Close() })
				_, _ = io.Copy(server, client)
				_ = server.(*net.TCPConn).CloseWrite()
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		wg.Wait()
	})
	return listener.Addr().String()
}

func TestTLS(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	db.Exec(t, "CREATE TABLE t (id UInt64, name String, "+lineage+") ENGINE = MergeTree ORDER BY id")
	ca := testca.New(t)
	server, _, _ := ca.Issue("clickhouse.internal")
	_, cert, key := ca.Issue("client")
	address := secured(t, db.Addr(), &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert})
	r := numbered(t, plan(t, 1, "id UInt64", "name String"), 50_000)
	for _, c := range []struct {
		name    string
		address string
		tls     credentials.TLS
		ok      bool
	}{
		{"mutual", address, credentials.TLS{Enabled: true, CAFile: ca.File, CertFile: cert, KeyFile: key}, true},
		{"named", address, credentials.TLS{Enabled: true, CAFile: ca.File, CertFile: cert, KeyFile: key, ServerName: "clickhouse.internal"}, true},
		{"other name", address, credentials.TLS{Enabled: true, CAFile: ca.File, CertFile: cert, KeyFile: key, ServerName: "elsewhere"}, false},
		{"no client certificate", address, credentials.TLS{Enabled: true, CAFile: ca.File}, false},
		{"other authority", address, credentials.TLS{Enabled: true, CAFile: testca.New(t).File, CertFile: cert, KeyFile: key}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := clickhouse.Config{Addresses: []string{c.address}, Database: db.Name, TLS: c.tls}
			err := newInserter(t, cfg, "t").Insert(t.Context(), batch(r))
			if (err == nil) != c.ok {
				t.Errorf("insert: %v, want success %v", err, c.ok)
			}
			if err != nil {
				if class, _ := classOf(t, err); class != projector.Unknown {
					t.Errorf("class %s: %v, want unknown: waiting seldom helps", class, err)
				}
			}
			control, err := clickhouse.Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer control.Close()
			if err := control.Ping(t.Context()); (err == nil) != c.ok {
				t.Errorf("ping: %v, want success %v", err, c.ok)
			}
		})
	}
}
