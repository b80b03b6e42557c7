package testenv

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// ClickHouseDatabase is an empty database of a test's own on a server shared by the whole test binary.
type ClickHouseDatabase struct {
	*ClickHouse
	Name string
}

var shared struct {
	sync.Mutex
	clickhouse *ClickHouse
	databases  atomic.Int64
}

// SharedClickHouse returns an empty database on this test binary's one shared server, starting it at first use, and
// drops the database when the test ends. Such a server costs about a second and 230 MB, hence once a binary. A test
// that kills, stops or configures a server starts its own with NewClickHouse.
//
// The server ends with the test binary.
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
	db := &ClickHouseDatabase{
		ClickHouse: shared.clickhouse,
		Name:       fmt.Sprintf("%s_%d", identifier(t.Name()), shared.databases.Add(1)),
	}
	if _, err := db.ClickHouse.Query(t.Context(), "CREATE DATABASE "+db.Name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if _, err := db.ClickHouse.Query(context.Background(), "DROP DATABASE "+db.Name+" SYNC"); err != nil {
			t.Error(err)
		}
	})
	return db
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

// Query is ClickHouse.Query with this database as the current one.
func (d *ClickHouseDatabase) Query(ctx context.Context, statement string) (string, error) {
	return d.ClickHouse.query(ctx, d.Name, url.UserPassword("default", ""), statement)
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

// identifier turns a test's name into one that needs no quoting.
func identifier(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), 60)]
}
