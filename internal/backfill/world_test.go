package backfill_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/backfill"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/credentials"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/mapping"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a table in ClickHouse and two shards, each a database on one
// MariaDB.
type world struct {
	t      testing.TB
	db     *testenv.ClickHouseDatabase
	shards []*testenv.MariaDBDatabase
	conn   interface {
		chschema.Conn
		Close() error
	}
	cfg backfill.Config
}

// newWorld makes the table with the columns "name type [from]", of which the
// first is the campaign, the second the identity; version and deleted follow.
func newWorld(t testing.TB, columns ...string) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs servers")
	}
	w := &world{t: t, db: testenv.SharedClickHouse(t)}
	for range 2 {
		w.shards = append(w.shards, testenv.SharedMariaDB(t))
	}
	columns = append(columns, "version UInt64", "is_deleted Bool")
	w.cfg.Projection = "results"
	w.cfg.Spec.Generation = 1
	w.cfg.Table = chschema.Table{Database: w.db.Name, Name: "results", Generation: 1, Version: "version", Deleted: "is_deleted"}
	for _, c := range columns {
		name, rest, _ := strings.Cut(c, " ")
		text, zone, _ := strings.Cut(rest, " zone ")
		typ, err := chschema.ParseType(text)
		if err != nil {
			t.Fatal(err)
		}
		w.cfg.Table.Columns = append(w.cfg.Table.Columns, chschema.Column{Name: name, Type: typ})
		w.cfg.Spec.Columns = append(w.cfg.Spec.Columns, mapping.Column{Name: name, From: name, Type: typ, Zone: zone})
	}
	first, second := w.cfg.Spec.Columns[0].Name, w.cfg.Spec.Columns[1].Name
	w.cfg.Spec.Identity, w.cfg.Spec.Version, w.cfg.Spec.Deleted = []string{second}, "version", "is_deleted"
	w.cfg.Table.Campaign, w.cfg.Table.Identity, w.cfg.Table.OrderBy = first, []string{second}, []string{first, second}
	w.cfg.Rows = "SELECT r.*, 0 AS is_deleted FROM results r WHERE " + first + " = ?"
	w.cfg.Deletions = "SELECT * FROM deletions WHERE " + first + " = ?"
	w.cfg.Campaigns = "SELECT DISTINCT " + first + " FROM results"
	for i, s := range w.shards {
		w.cfg.Shards = append(w.cfg.Shards, mysql.Shard{Name: fmt.Sprintf("s%d", i), DSN: credentials.Secret{Value: s.DSN()}})
	}
	for _, s := range w.cfg.Table.Statements() {
		w.db.Exec(t, s)
	}
	conn, err := clickhouse.Open(clickhouse.Config{Addresses: []string{w.db.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	w.conn = conn
	t.Cleanup(func() { conn.Close() })
	return w
}

// everywhere runs statements on both shards.
func (w *world) everywhere(statements ...string) {
	w.t.Helper()
	for _, s := range w.shards {
		s.Exec(w.t, statements...)
	}
}

// open opens the source and prepares it.
func (w *world) open() (*backfill.Source, error) {
	source, err := backfill.Open(w.t.Context(), w.cfg)
	if err != nil {
		return nil, err
	}
	w.t.Cleanup(func() { source.Close() })
	return source, source.Prepare(w.t.Context())
}

// copy copies campaigns under an origin, with two writers.
func (w *world) copy(origin string, o backfill.Options) (backfill.Counts, error) {
	w.t.Helper()
	source, err := w.open()
	if err != nil {
		w.t.Fatal(err)
	}
	return backfill.Copy(w.t.Context(), source, o, w.writer(origin), w.writer(origin))
}

func (w *world) inserter() *clickhouse.Inserter {
	w.t.Helper()
	in, err := clickhouse.NewInserter(clickhouse.Config{Addresses: []string{w.db.Addr()}, Database: w.db.Name}, w.cfg.Table.Physical())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = in.Close() })
	return in
}

func (w *world) writer(origin string) *backfill.Writer {
	return backfill.NewWriter(w.inserter(), w.conn, w.cfg.Table, origin, 1)
}

// query is a result of ClickHouse, tab-separated, without the last line end.
func (w *world) query(sql string) string {
	w.t.Helper()
	out, err := w.db.Query(context.WithoutCancel(w.t.Context()), sql)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSuffix(out, "\n")
}

func (w *world) want(sql, want string) {
	w.t.Helper()
	if got := w.query(sql); got != want {
		w.t.Errorf("%s\ngot  %q\nwant %q", sql, got, want)
	}
}
