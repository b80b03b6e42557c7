package chschema_test

import (
	"flag"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/testenv"
)

// server is a database of its own on a real server.
type server struct {
	*testenv.ClickHouseDatabase
	conn driver.Conn
}

func newServer(t *testing.T) server {
	t.Helper()
	db := testenv.SharedClickHouse(t)
	return server{db, dial(t, db.Addr(), clickhouse.Auth{Database: db.Name}, nil)}
}

// dial connects with settings that every query of the session sends.
func dial(t *testing.T, address string, auth clickhouse.Auth, settings clickhouse.Settings) driver.Conn {
	t.Helper()
	conn, err := clickhouse.Open(&clickhouse.Options{
		Addr: []string{address}, Auth: auth, Settings: settings, DialTimeout: 10 * time.Second, MaxOpenConns: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (s server) diff(t *testing.T, table chschema.Table) []chschema.Change {
	t.Helper()
	return diff(t, s.conn, table)
}

func diff(t *testing.T, conn chschema.Conn, table chschema.Table) []chschema.Change {
	t.Helper()
	state, err := chschema.Inspect(t.Context(), conn, table)
	if err != nil {
		t.Fatal(err)
	}
	return chschema.Diff(table, state)
}

// apply brings the server to the table and proves that nothing is left to do.
func (s server) apply(t *testing.T, table chschema.Table) {
	t.Helper()
	if err := table.Validate(); err != nil {
		t.Fatalf("invalid table: %v", err)
	}
	if err := chschema.Apply(t.Context(), s.conn, s.diff(t, table), nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.diff(t, table) {
		t.Errorf("right after apply: %s: %s", c.Verdict, c)
	}
}

func (s server) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if err := s.conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%v\n%s", err, statement)
		}
	}
}

// checks bounds a property that costs a server's time, unless -rapid.checks
// says something else than its default.
func checks(t *testing.T, n int) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	if f.Value.String() != f.DefValue {
		return
	}
	if err := f.Value.Set(strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
}

// fitness is the table of the example configuration.
func fitness(database string) chschema.Table {
	return chschema.Table{
		Database: database, Name: "fitness_results", Generation: 1,
		Columns: columns("data_id UInt64", "detect_id UInt64", "user_id UInt64", "project_id UInt32", "version UInt64",
			"result Decimal(18, 3)", "unit LowCardinality(String)", "is_deleted Bool", "event_id String"),
		Identity: []string{"data_id"}, OrderBy: []string{"detect_id", "data_id"}, PartitionBy: "detect_id % 8",
		Version: "version", Deleted: "is_deleted", Campaign: "detect_id",
		Views: []chschema.View{{
			Name:  "fitness_results_by_campaign",
			Query: "SELECT detect_id, project_id, count() AS results, avg(result) AS average, max(result) AS best FROM {current} GROUP BY detect_id, project_id",
		}},
	}
}

// columns reads "name Type".
func columns(definitions ...string) []chschema.Column {
	var list []chschema.Column
	for _, d := range definitions {
		list = append(list, column(d))
	}
	return list
}

func column(definition string) chschema.Column {
	name, text, _ := strings.Cut(definition, " ")
	typ, err := chschema.ParseType(text)
	if err != nil {
		panic(err)
	}
	return chschema.Column{Name: name, Type: typ}
}

var _ chschema.Conn = driver.Conn(nil)
