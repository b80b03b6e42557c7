package testenv

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// A server costs one to several seconds and 100 to 300 MB to start, so the tests of one binary share it and each has a
// database of its own. The servers end with the binary. A test that kills, stops or configures a server starts its own
// with NewClickHouse or NewMariaDB.
var shared struct {
	sync.Mutex
	clickhouse *ClickHouse
	mariadb    *MariaDB
	databases  int
}

// ClickHouseDatabase is a database on a shared server.
type ClickHouseDatabase struct {
	*ClickHouse
	Name string
}

// SharedClickHouse returns an empty database on this test binary's one shared server, starting that at first use, and
// drops the database when the test ends.
func SharedClickHouse(t testing.TB) *ClickHouseDatabase {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.clickhouse == nil {
		server, err := StartClickHouse(t.Context(), ClickHouseConfig{})
		if err != nil {
			t.Fatal(err)
		}
		shared.clickhouse = server
	}
	server := shared.clickhouse
	name := sharedDatabase(t, "SYNC", func(ctx context.Context, statement string) error {
		_, err := server.Query(ctx, statement)
		return err
	})
	return &ClickHouseDatabase{ClickHouse: server, Name: name}
}

// Query is ClickHouse.Query with this database as the current one.
func (d *ClickHouseDatabase) Query(ctx context.Context, statement string) (string, error) {
	return d.query(ctx, d.Name, url.UserPassword("default", ""), statement)
}

// Exec runs statements in this database and fails the test on the first error.
func (d *ClickHouseDatabase) Exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := d.Query(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// MariaDBDatabase is a database on a shared server.
type MariaDBDatabase struct {
	*MariaDB
	Name string
}

// SharedMariaDB returns an empty database on this test binary's one shared server, starting that at first use, and
// drops the database when the test ends.
func SharedMariaDB(t testing.TB) *MariaDBDatabase {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.mariadb == nil {
		server, err := StartMariaDB(t.Context(), MariaDBConfig{})
		if err != nil {
			t.Fatal(err)
		}
		shared.mariadb = server
	}
	server := shared.mariadb
	name := sharedDatabase(t, "", func(ctx context.Context, statement string) error {
		return server.Exec(ctx, statement)
	})
	return &MariaDBDatabase{MariaDB: server, Name: name}
}

// DSN is MariaDB.DSN of this database.
func (d *MariaDBDatabase) DSN() string { return d.MariaDB.DSN(d.Name) }

// Exec runs statements in this database and fails the test on the first error.
func (d *MariaDBDatabase) Exec(t testing.TB, statements ...string) {
	t.Helper()
	if err := d.exec(t.Context(), d.Name, statements...); err != nil {
		t.Fatal(err)
	}
}

// sharedDatabase creates a database for t, named after it, and drops it when t ends. Its caller holds the lock.
func sharedDatabase(t testing.TB, dropOption string, exec func(context.Context, string) error) (name string) {
	t.Helper()
	shared.databases++
	name = fmt.Sprintf("%s_%d", identifier(t.Name()), shared.databases)
	ctx := t.Context() // ends before the cleanup
	if err := exec(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" "+dropOption); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return name
}

// identifier turns a test's name into one that needs no quoting and leaves room for a number: MariaDB allows 64
// characters.
func identifier(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), 50)]
}

// NewClickHouse starts a server for this test alone and stops it when the test ends.
func NewClickHouse(t testing.TB, cfg ClickHouseConfig) *ClickHouse {
	t.Helper()
	server, err := StartClickHouse(t.Context(), cfg)
	return own(t, server, err)
}

// NewKafka starts a real broker for this test alone and stops it when the test ends.
func NewKafka(t testing.TB, cfg KafkaConfig) *Kafka {
	t.Helper()
	broker, err := StartKafka(t.Context(), cfg)
	return own(t, broker, err)
}

// NewMariaDB starts a server for this test alone and stops it when the test ends.
func NewMariaDB(t testing.TB, cfg MariaDBConfig) *MariaDB {
	t.Helper()
	server, err := StartMariaDB(t.Context(), cfg)
	return own(t, server, err)
}

// own fails the test on err and otherwise stops the server when the test ends.
func own[S interface{ Stop() error }](t testing.TB, server S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}
