package clickhouse_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plan maps fields to columns of the same name: "id UInt64", "name String", …;
// the version is 1 unless an event has "ver".
func plan(t testing.TB, generation uint32, columns ...string) *mapping.Plan {
	t.Helper()
	spec := mapping.Spec{Generation: generation}
	for _, c := range columns {
		name, text, _ := strings.Cut(c, " ")
		typ, err := chschema.ParseType(text)
		if err != nil {
			t.Fatal(err)
		}
		spec.Columns = append(spec.Columns, mapping.Column{Name: name, From: name, Type: typ})
	}
	spec.Columns = append(spec.Columns, mapping.Column{
		Name: "ver", From: "ver", Type: chschema.Type{Kind: chschema.KindUInt64}, Default: []byte("1"),
	})
	spec.Identity, spec.Version = []string{spec.Columns[0].Name}, "ver"
	p, err := mapping.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rows maps events, at offsets from 0 on.
func rows(t testing.TB, p *mapping.Plan, events ...string) *mapping.Rows {
	t.Helper()
	r := p.NewRows()
	for i, e := range events {
		if err := p.Append(r, []byte(e), mapping.Lineage{Topic: "results", Partition: 1, Offset: int64(i), Origin: "stream"}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// numbered maps n events {"id": i, "name": "name i"}.
func numbered(t testing.TB, p *mapping.Plan, n int) *mapping.Rows {
	t.Helper()
	events := make([]string, n)
	for i := range events {
		events[i] = fmt.Sprintf(`{"id":%d,"name":"name %d"}`, i, i)
	}
	return rows(t, p, events...)
}

func batch(r *mapping.Rows) projector.Batch {
	return projector.Batch{Rows: r, From: 0, To: r.Len(), Token: fmt.Sprint(time.Now().UnixNano())}
}

// lineage is the part of a table that every insert writes.
const lineage = "ver UInt64, _topic LowCardinality(String), _partition Int32, _offset Int64, _ingested_at DateTime64(3, 'UTC') DEFAULT now64(3), _origin LowCardinality(String), _generation UInt32"

func newInserter(t testing.TB, c clickhouse.Config, table string) *clickhouse.Inserter {
	t.Helper()
	in, err := clickhouse.NewInserter(c, table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	return in
}

// classOf is the class and the code of an insert's error.
func classOf(t testing.TB, err error) (projector.Class, int) {
	t.Helper()
	ie, ok := errors.AsType[*projector.InsertError](err)
	if !ok {
		t.Fatalf("%v is no InsertError", err)
	}
	return ie.Class, ie.Code
}

func query(t testing.TB, db interface {
	Query(context.Context, string) (string, error)
}, sql string,
) string {
	t.Helper()
	out, err := db.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(out, "\n")
}

func config(db *testenv.ClickHouseDatabase) clickhouse.Config {
	return clickhouse.Config{Addresses: []string{db.Addr()}, Database: db.Name}
}
