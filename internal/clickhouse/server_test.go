package clickhouse_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/credentials"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/projector"
)

// TestServerErrors provokes errors on a real server and looks at the class.
func TestServerErrors(t *testing.T) {
	const table = "CREATE TABLE t (id UInt64, name String, " + lineage + ") ENGINE = MergeTree ORDER BY id"
	settings := func(s ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(s); i += 2 {
			m[s[i]] = s[i+1]
		}
		return m
	}
	for _, c := range []struct {
		name     string
		setup    []string
		settings map[string]string
		rows     int
		class    projector.Class
		code     int
		message  string // part of the error
	}{
		{name: "no such table", class: projector.Fatal, code: 60, message: "does not exist"},
		{
			name: "no such column", class: projector.Refresh, code: 16, message: "No such column name",
			setup: []string{"CREATE TABLE t (id UInt64, " + lineage + ") ENGINE = MergeTree ORDER BY id"},
		},
		{
			name: "column of another type", class: projector.Refresh, message: "column name is FixedString(9) in the table and String in the configuration",
			setup: []string{"CREATE TABLE t (id UInt64, name FixedString(9), " + lineage + ") ENGINE = MergeTree ORDER BY id"},
		},
		{
			name: "narrower column", class: projector.Refresh, message: "column id is UInt32 in the table and UInt64 in the configuration",
			setup: []string{"CREATE TABLE t (id UInt32, name String, " + lineage + ") ENGINE = MergeTree ORDER BY id"},
		},
		{
			name: "column that became nullable", class: projector.Refresh, message: "column name is Nullable(String) in the table",
			setup: []string{"CREATE TABLE t (id UInt64, name Nullable(String), " + lineage + ") ENGINE = MergeTree ORDER BY id"},
		},
		{
			name: "column that became materialized", class: projector.Refresh, code: 44, message: "name",
			setup: []string{"CREATE TABLE t (id UInt64, name String MATERIALIZED 'x', " + lineage + ") ENGINE = MergeTree ORDER BY id"},
		},
		{
			name: "constraint", class: projector.Rejected, code: 469, message: "Constraint `few`",
			setup: []string{"CREATE TABLE t (id UInt64, name String, " + lineage + ", CONSTRAINT few CHECK id < 5) ENGINE = MergeTree ORDER BY id"},
		},
		{
			name: "fence", class: projector.Fatal, code: 469, message: "Constraint `generation_fence`",
			setup: []string{"CREATE TABLE t (id UInt64, name String, " + lineage + ", CONSTRAINT generation_fence CHECK _generation >= 2) ENGINE = MergeTree ORDER BY id"},
		},
		{
			name: "expression over a value", class: projector.Rejected, code: 395, message: "throwIf",
			setup: []string{"CREATE TABLE t (id UInt64, name String, " + lineage + ", m UInt8 MATERIALIZED throwIf(id = 7)) ENGINE = MergeTree ORDER BY id"},
		},
		{
			name: "value that does not parse", class: projector.Rejected, code: 6, message: "name 0",
			setup: []string{"CREATE TABLE t (id UInt64, name String, " + lineage + ", m UInt8 MATERIALIZED toUInt8(name)) ENGINE = MergeTree ORDER BY id"},
		},
		{
			name: "value that a cast refuses", class: projector.Rejected, code: 70, message: "cannot be safely converted",
			setup: []string{"CREATE TABLE t (id UInt64, name String, " + lineage + ", m UInt8 MATERIALIZED accurateCast(id * 100, 'UInt8')) ENGINE = MergeTree ORDER BY id"},
		},
		{
			name: "value that makes a text too long", class: projector.Rejected, code: 131, message: "Too large string size",
			setup: []string{"CREATE TABLE t (id UInt64, name String, " + lineage + ", CONSTRAINT short CHECK id != 7 OR repeat(name, id * 1000000000) != '') ENGINE = MergeTree ORDER BY id"},
		},
		{
			name: "view that fails", class: projector.Fatal, code: 395, message: "while pushing to view",
			setup: []string{table, "CREATE MATERIALIZED VIEW v ENGINE = MergeTree ORDER BY id AS SELECT id, throwIf(id = 7) AS x FROM t"},
		},
		{
			name: "view whose table is gone", class: projector.Fatal, code: 60, message: "Target table",
			setup: []string{table, "CREATE TABLE target (id UInt64) ENGINE = MergeTree ORDER BY id", "CREATE MATERIALIZED VIEW v TO target AS SELECT id FROM t", "DROP TABLE target"},
		},
		{
			name: "partitions of a block", class: projector.Split, code: 252, message: "Too many partitions for single INSERT block", rows: 501,
			setup: []string{table + " PARTITION BY id"},
		},
		{
			name: "merges that lag", class: projector.Transient, code: 252, message: "Merges are processing significantly slower",
			setup: []string{table + " SETTINGS parts_to_throw_insert = 1, parts_to_delay_insert = 0", "SYSTEM STOP MERGES t", "INSERT INTO t (id) VALUES (1)"},
		},
		{
			name: "memory of one query", class: projector.Split, code: 241, message: "memory limit exceeded", rows: 100_000,
			setup: []string{table}, settings: settings("max_memory_usage", "3000000", "max_untracked_memory", "0"),
		},
		{
			name: "time of one query", class: projector.Transient, code: 159, message: "Timeout exceeded", rows: 100,
			setup:    []string{"CREATE TABLE t (id UInt64, name String, " + lineage + ", m UInt8 MATERIALIZED sleepEachRow(0.02)) ENGINE = MergeTree ORDER BY id"},
			settings: settings("max_execution_time", "0.1", "function_sleep_max_microseconds_per_block", "0"),
		},
		{name: "unknown setting", class: projector.Fatal, code: 115, message: "no_such_setting", setup: []string{table}, settings: settings("no_such_setting", "1")},
		{name: "setting without sense", class: projector.Fatal, code: 27, message: "Cannot parse input", setup: []string{table}, settings: settings("max_threads", "many")},
		{name: "readonly session", class: projector.Fatal, code: 164, message: "readonly", setup: []string{table}, settings: settings("readonly", "1")},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := testenv.SharedClickHouse(t)
			db.Exec(t, c.setup...)
			cfg := config(db)
			cfg.Settings = c.settings
			in := newInserter(t, cfg, "t")
			r := numbered(t, plan(t, 1, "id UInt64", "name String"), max(c.rows, 10))
			start := time.Now()
			err := in.Insert(t.Context(), batch(r))
			if err == nil {
				t.Fatal("no error")
			}
			class, code := classOf(t, err)
			if class != c.class || code != c.code || !strings.Contains(err.Error(), c.message) {
				t.Errorf("class %s, code %d: %v\nwant class %s, code %d, %q", class, code, err, c.class, c.code, c.message)
			}
			if !strings.HasPrefix(err.Error(), "t on "+db.Addr()) {
				t.Errorf("error does not name the table and the server: %v", err)
			}
			if took := time.Since(start); took >= clickhouse.DefaultInsertTimeout {
				t.Errorf("the error took %s: the whole time of an attempt", took)
			}
		})
	}
}

// TestServerRefusesTheUser: what the server says before the first statement.
// Each case has a server of its own: the embedded one ends itself after it has
// refused a connection.
func TestServerRefusesTheUser(t *testing.T) {
	r := numbered(t, plan(t, 1, "id UInt64", "name String"), 10)
	for _, c := range []struct {
		name                     string
		user, password, database string
		code                     int
		classes                  clickhouse.Classes
		class                    projector.Class
	}{
		{"wrong password", "reader", "wrong", "reporting", 516, nil, projector.Fatal},
		{"wrong password, after a right one", "reader", "wrong", "reporting", 516, clickhouse.Classes{}.AfterLogin(), projector.Unknown},
		{"wrong password, as configured", "reader", "wrong", "reporting", 516, clickhouse.Classes{516: projector.Transient}.AfterLogin(), projector.Transient},
		{"unknown user", "nobody", "", "reporting", 516, nil, projector.Fatal},
		{"no right to insert", "reader", "secret", "reporting", 497, clickhouse.Classes{}.AfterLogin(), projector.Fatal},
		{"unknown database", "default", "", "nowhere", 81, nil, projector.Fatal},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{
				Databases: []string{"reporting"},
				Users:     `<reader><password>secret</password><grants><query>GRANT SELECT ON reporting.*</query></grants></reader>`,
			})
			query(t, server, "CREATE TABLE reporting.t (id UInt64, name String, "+lineage+") ENGINE = MergeTree ORDER BY id")
			in := newInserter(t, clickhouse.Config{
				Addresses: []string{server.Addr()}, Database: c.database, Username: c.user, Password: credentials.Secret{Value: c.password}, Classes: c.classes,
			}, "t")
			err := in.Insert(t.Context(), batch(r))
			if err == nil {
				t.Fatal("no error")
			}
			if class, code := classOf(t, err); class != c.class || code != c.code {
				t.Errorf("class %s, code %d: %v, want %s, %d", class, code, err, c.class, c.code)
			}
		})
	}
}

// TestInsertAfterAnError: an error costs the connection and nothing else.
func TestInsertAfterAnError(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	db.Exec(t, "CREATE TABLE t (id UInt64, name String, "+lineage+", CONSTRAINT few CHECK id < 5) ENGINE = MergeTree ORDER BY id")
	in := newInserter(t, config(db), "t")
	r := numbered(t, plan(t, 1, "id UInt64", "name String"), 10)
	for range 3 {
		if err := in.Insert(t.Context(), projector.Batch{Rows: r, From: 0, To: 10}); err == nil {
			t.Fatal("the constraint was not violated")
		}
		if err := in.Insert(t.Context(), projector.Batch{Rows: r, From: 0, To: 5}); err != nil {
			t.Fatal(err)
		}
	}
	if got := query(t, db, "SELECT count() FROM t"); got != "15" {
		t.Errorf("%s rows, want 15", got)
	}
}

// TestLargeBlockThatIsRefusedEarly: the server has an answer before it has read
// the block; the answer arrives, not the broken write.
func TestLargeBlockThatIsRefusedEarly(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	db.Exec(t, "CREATE TABLE t (id UInt64, name String, "+lineage+") ENGINE = MergeTree ORDER BY id SETTINGS parts_to_throw_insert = 1, parts_to_delay_insert = 0",
		"SYSTEM STOP MERGES t", "INSERT INTO t (id) VALUES (1)")
	in := newInserter(t, config(db), "t")
	events := make([]string, 2000)
	for i := range events {
		events[i] = fmt.Sprintf(`{"id":%d,"name":"%s"}`, i, strings.Repeat("x", 20_000))
	}
	r := rows(t, plan(t, 1, "id UInt64", "name String"), events...)
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := in.Insert(ctx, batch(r))
		cancel()
		if err == nil {
			t.Fatal("no error")
		}
		if _, code := classOf(t, err); code != 252 {
			t.Errorf("code %d: %v, want 252", code, err)
		}
	}
}
