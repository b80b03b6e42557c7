package clickhouse_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"

	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/projector"
)

// slack is what a busy machine may add to a deadline before a test takes notice.
const slack = 5 * time.Second

// TestFaults breaks the connection, or lets it fall silent, after every so many
// bytes of the conversation in each direction: before, within and after the
// block, before and within the answer. Each time the insert ends within its
// time, what it says of the rows is true, and the next attempt works. Faults in
// the greeting have a test of their own: the embedded server does not survive
// them.
func TestFaults(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	db.Exec(t, "CREATE TABLE t (id UInt64, name String, "+lineage+") ENGINE = MergeTree ORDER BY id")
	p := newProxy(t, db.Addr())
	const attempt = 400 * time.Millisecond
	cfg := clickhouse.Config{Addresses: []string{p.Addr()}, Database: db.Name, InsertTimeout: attempt}
	pl := plan(t, 1, "id UInt64", "name String")
	r := numbered(t, pl, 5000)

	// The conversation without a fault.
	greetUp, greeting := greet(t, p, db.Name)
	greetDown := len(greeting)
	unhurried := cfg
	unhurried.InsertTimeout = time.Minute
	if err := newInserter(t, unhurried, "t").Insert(t.Context(), batch(r)); err != nil {
		t.Fatal(err)
	}
	toServer, toClient := p.last.Load().passed()
	up, down := len(toServer), len(toClient)
	t.Logf("a conversation has %d bytes to the server and %d back", up, down)
	if up < 50_000 || down < 100 {
		t.Fatal("the proxy was not used")
	}

	points := func(greeted, total int) []int {
		all := []int{greeted + 1, greeted + 20, total - 20, total - 1}
		for i := range 6 {
			all = append(all, greeted+(total-greeted)*i/6)
		}
		return all
	}
	var faults []fault
	for _, silent := range []bool{false, true} {
		for _, after := range points(greetUp, up) {
			faults = append(faults, fault{toServer: true, after: after, silent: silent})
		}
		for _, after := range points(greetDown, down) {
			faults = append(faults, fault{after: after, silent: silent})
		}
	}
	for _, f := range faults {
		t.Run(fmt.Sprintf("to server %v, after %d, silent %v", f.toServer, f.after, f.silent), func(t *testing.T) {
			db.Exec(t, "TRUNCATE TABLE t")
			in := newInserter(t, cfg, "t")
			p.fault.Store(&f)
			start := time.Now()
			err := in.Insert(t.Context(), batch(r))
			if took := time.Since(start); took > attempt+slack {
				t.Errorf("the attempt took %s, more than its %s", took, attempt)
			}
			if err == nil {
				// The fault lies behind the answer.
				if got := query(t, db, "SELECT count() FROM t"); got != "5000" {
					t.Errorf("acknowledged, and %s rows of 5000 are there", got)
				}
			} else if class, code := classOf(t, err); class != projector.Transient || code != 0 {
				t.Errorf("class %s, code %d: %v", class, code, err)
			}
			t.Logf("after %s: %v", time.Since(start).Round(time.Millisecond), err)
			p.fault.Store(nil)
			// The attempt's time is short for a machine under load, and that is not
			// what this looks at.
			for err = in.Insert(t.Context(), batch(r)); err != nil && time.Since(start) < time.Minute; err = in.Insert(t.Context(), batch(r)) {
				t.Logf("the fault is over: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := query(t, db, "SELECT uniqExact(id) FROM t"); got != "5000" {
				t.Errorf("%s different rows, want 5000", got)
			}
		})
	}
}

// greet connects and says good-bye, and gives the bytes of the greeting: how
// many go to the server, and those that come back.
func greet(t *testing.T, p *proxy, database string) (toServer int, toClient []byte) {
	t.Helper()
	client, err := ch.Dial(t.Context(), ch.Options{Address: p.Addr(), Database: database, ClientName: "projector"})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	client.Close()
	const ping = 1 // and its answer
	up, down := p.last.Load().passed()
	return len(up) - ping, down[:len(down)-ping]
}

// TestGreetingFaults: a server that says only a part of its greeting.
func TestGreetingFaults(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	p := newProxy(t, db.Addr())
	_, greeting := greet(t, p, db.Name)
	r := numbered(t, plan(t, 1, "id UInt64", "name String"), 10)
	for _, silent := range []bool{false, true} {
		for _, n := range []int{0, 1, 2, 10, len(greeting) / 2, len(greeting) - 1, len(greeting)} {
			t.Run(fmt.Sprintf("after %d of %d, silent %v", n, len(greeting), silent), func(t *testing.T) {
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					defer conn.Close()
					_, _ = conn.Write(greeting[:n])
					if silent {
						_, _ = io.Copy(io.Discard, conn) // until the client has enough
					}
				}()
				const attempt = 300 * time.Millisecond
				in := newInserter(t, clickhouse.Config{Addresses: []string{listener.Addr().String()}, InsertTimeout: attempt}, "t")
				start := time.Now()
				err = in.Insert(t.Context(), batch(r))
				if took := time.Since(start); err == nil || took > attempt+slack {
					t.Errorf("after %s: %v", took, err)
				} else if class, _ := classOf(t, err); class != projector.Transient {
					t.Errorf("class %s: %v", class, err)
				}
				listener.Close()
				<-done
			})
		}
	}
}

// TestStuckWrite: the server stops reading in the middle of a block larger than
// all buffers between the two.
func TestStuckWrite(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	db.Exec(t, "CREATE TABLE t (id UInt64, name String, "+lineage+") ENGINE = MergeTree ORDER BY id")
	p := newProxy(t, db.Addr())
	p.fault.Store(&fault{toServer: true, after: 100_000, silent: true})
	events := make([]string, 1000)
	for i := range events {
		noise := make([]byte, 6000) // else nothing is left of it once compressed
		if _, err := rand.Read(noise); err != nil {
			t.Fatal(err)
		}
		events[i] = fmt.Sprintf(`{"id":%d,"name":"%s"}`, i, base64.StdEncoding.EncodeToString(noise))
	}
	r := rows(t, plan(t, 1, "id UInt64", "name String"), events...)
	for _, compression := range []string{"none", "lz4"} {
		t.Run(compression, func(t *testing.T) {
			in := newInserter(t, clickhouse.Config{Addresses: []string{p.Addr()}, Database: db.Name, InsertTimeout: 500 * time.Millisecond, Compression: compression}, "t")
			start := time.Now()
			err := in.Insert(t.Context(), batch(r))
			if took := time.Since(start); err == nil || took > slack {
				t.Errorf("after %s: %v", took, err)
			}
		})
	}
}

// TestCancel: a context that is cancelled ends the insert at once, not only at
// the deadline.
func TestCancel(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	db.Exec(t, "CREATE TABLE t (id UInt64, name String, "+lineage+") ENGINE = MergeTree ORDER BY id")
	p := newProxy(t, db.Addr())
	r := numbered(t, plan(t, 1, "id UInt64", "name String"), 10)
	greetUp, greeting := greet(t, p, db.Name)
	for name, f := range map[string]fault{
		"before the query":  {toServer: true, after: greetUp, silent: true},
		"before the answer": {after: len(greeting), silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			p.fault.Store(&f)
			in := newInserter(t, clickhouse.Config{Addresses: []string{p.Addr()}, Database: db.Name}, "t")
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			start := time.Now()
			err := in.Insert(ctx, batch(r))
			if took := time.Since(start); !errors.Is(err, context.Canceled) || took > slack {
				t.Errorf("after %s: %v", took, err)
			}
		})
	}
}

// TestNextAddress: after an error the next server is asked, and after the last
// the first.
func TestNextAddress(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	db.Exec(t, "CREATE TABLE t (id UInt64, name String, "+lineage+") ENGINE = MergeTree ORDER BY id")
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close() // refuses
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() // connects and says nothing
	cfg := clickhouse.Config{
		Addresses: []string{dead.Addr().String(), silent.Addr().String(), db.Addr()}, Database: db.Name, DialTimeout: 200 * time.Millisecond,
	}
	in := newInserter(t, cfg, "t")
	r := numbered(t, plan(t, 1, "id UInt64", "name String"), 10)
	// It begins anywhere. The good one may be too slow on a busy machine, and is then asked again when it is its turn.
	for start, last := time.Now(), -1; ; {
		err := in.Insert(t.Context(), batch(r))
		asked := slices.IndexFunc(cfg.Addresses, func(a string) bool {
			return err == nil && a == db.Addr() || err != nil && strings.Contains(err.Error(), a)
		})
		if asked < 0 || last >= 0 && asked != (last+1)%len(cfg.Addresses) {
			t.Fatalf("after address %d of %v address %d was asked: %v", last, cfg.Addresses, asked, err)
		}
		if last = asked; err == nil {
			break
		}
		if class, _ := classOf(t, err); class != projector.Transient {
			t.Errorf("class %s: %v", class, err)
		}
		if time.Since(start) > time.Minute {
			t.Fatal(err)
		}
	}
	if err := in.Insert(t.Context(), batch(r)); err != nil {
		t.Errorf("a good connection was given up: %v", err)
	}
}

// TestServerRestart: a connection that died while it was idle costs one attempt.
func TestServerRestart(t *testing.T) {
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{Databases: []string{"reporting"}})
	query(t, server, "CREATE TABLE reporting.t (id UInt64, name String, "+lineage+") ENGINE = MergeTree ORDER BY id")
	in := newInserter(t, clickhouse.Config{Addresses: []string{server.Addr()}, Database: "reporting"}, "t")
	r := numbered(t, plan(t, 1, "id UInt64", "name String"), 10)
	if err := in.Insert(t.Context(), batch(r)); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if err := in.Insert(t.Context(), batch(r)); err == nil {
		t.Error("a dead server acknowledged")
	} else if class, _ := classOf(t, err); class != projector.Transient {
		t.Errorf("class %s: %v", class, err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := in.Insert(t.Context(), batch(r)); err != nil {
		t.Fatal(err)
	}
}
