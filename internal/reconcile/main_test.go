package reconcile

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/credentials"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is two shards and a table, and the comparison between them.
type world struct {
	t        testing.TB
	db       *testenv.ClickHouseDatabase
	shards   []*testenv.MariaDBDatabase
	spec     contract.Spec
	contract *contract.Contract
	table    *Table
	source   *MySQL
}

// columns parses "name Type" each.
func columns(t testing.TB, texts ...string) (list []chschema.Column) {
	t.Helper()
	for _, text := range texts {
		name, typ, _ := strings.Cut(text, " ")
		parsed, err := chschema.ParseType(typ)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, chschema.Column{Name: name, Type: parsed})
	}
	return list
}

// newWorld creates two empty databases of MariaDB, with these tables, and a
// table of ClickHouse.
func newWorld(t testing.TB, spec contract.Spec, source ...string) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs servers")
	}
	return newWorldOn(t, spec, []*testenv.MariaDBDatabase{testenv.SharedMariaDB(t), testenv.SharedMariaDB(t)}, source...)
}

// newWorldOn is newWorld on databases that may be of different servers.
func newWorldOn(t testing.TB, spec contract.Spec, shards []*testenv.MariaDBDatabase, source ...string) *world {
	t.Helper()
	w := &world{t: t, db: testenv.SharedClickHouse(t), spec: spec, shards: shards}
	for _, shard := range shards {
		shard.Exec(t, source...)
	}
	design := chschema.Table{
		Database: w.db.Name, Name: "facts", Generation: 1, Columns: spec.Columns, Identity: spec.Identity, OrderBy: spec.OrderBy,
		Version: spec.Version, Deleted: spec.Deleted, Campaign: spec.Campaign,
	}
	for _, statement := range design.Statements() {
		if _, err := w.db.Query(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	w.contract = compiled(t, spec)
	conn, err := clickhouse.Open(clickhouse.Config{Addresses: []string{w.db.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w.table = &Table{Contract: w.contract, Name: design.Qualified(design.Physical()), Reader: clickhouse.NewReader(conn)}
	w.source = w.open()
	return w
}

func compiled(t testing.TB, spec contract.Spec) *contract.Contract {
	t.Helper()
	c, err := contract.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (w *world) addresses() (list []mysql.Shard) {
	for i, s := range w.shards {
		list = append(list, mysql.Shard{Name: fmt.Sprintf("s%d", i), DSN: credentials.Secret{Value: s.DSN()}})
	}
	return list
}

func (w *world) open() *MySQL {
	w.t.Helper()
	m, err := OpenMySQL(w.t.Context(), w.addresses(), w.contract)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(m.Close)
	return m
}

// exec runs a statement on a shard over one connection that stays open.
func (w *world) exec(shard int, statement string, args ...any) {
	w.t.Helper()
	if _, err := w.source.shards[shard].db.ExecContext(context.WithoutCancel(w.t.Context()), statement, args...); err != nil {
		w.t.Fatalf("%.300s: %v", statement, err)
	}
}

// idle is a projection that is never behind.
type idle struct{}

func (idle) Mark(context.Context) (Mark, error)          { return Mark{}, nil }
func (idle) Behind(context.Context, Mark) (int64, error) { return 0, nil }

// equalSums fails the test unless both scans are equal.
func equalSums(t testing.TB, what string, a, b []Digest) {
	t.Helper()
	differ := 0
	for i := range a {
		if a[i] != b[i] {
			if differ++; differ < 4 {
				t.Errorf("%s: bucket %d: %+v and %+v", what, i, a[i], b[i])
			}
		}
	}
	if differ > 0 {
		t.Errorf("%s: %d of %d buckets differ", what, differ, len(a))
	}
}
