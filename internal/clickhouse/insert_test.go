package clickhouse_test

import (
	"testing"

	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/projector"
)

func TestInsert(t *testing.T) {
	for _, compression := range []string{"none", "lz4", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			db := testenv.SharedClickHouse(t)
			// More columns than the insert has, and in another order.
			db.Exec(t, "CREATE TABLE `odd``na\\\\me` (extra String DEFAULT 'd', name LowCardinality(Nullable(String)), id UInt64, tags Map(String, Array(Int8)), price Decimal(18, 3), "+
				lineage+") ENGINE = MergeTree ORDER BY id")
			p := plan(t, 7, "id UInt64", "price Decimal(18, 3)", "name LowCardinality(Nullable(String))", "tags Map(String, Array(Int8))")
			c := config(db)
			c.Compression = compression
			in := newInserter(t, c, "odd`na\\me")
			r := rows(t, p,
				`{"id":0,"price":2.31,"name":"left out","tags":{}}`,
				`{"id":18446744073709551615,"price":-0.001,"name":null,"tags":{"a":[1,-2],"b":[]}}`,
				`{"id":2,"price":6E+2,"name":"é","tags":{"c":[3]}}`,
				`{"id":3,"price":0,"name":"left out","tags":{}}`)
			if err := in.Insert(t.Context(), projector.Batch{Rows: r, From: 1, To: 3, Token: "t1"}); err != nil {
				t.Fatal(err)
			}
			want := "2\t600\té\t{'c':[3]}\td\tresults\t1\t2\tstream\t7\n" +
				"18446744073709551615\t-0.001\t\\N\t{'a':[1,-2],'b':[]}\td\tresults\t1\t1\tstream\t7"
			got := query(t, db, "SELECT id, price, name, tags, extra, _topic, _partition, _offset, _origin, _generation FROM `odd``na\\\\me` ORDER BY id")
			if got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
			if got := query(t, db, "SELECT abs(dateDiff('second', min(_ingested_at), now())) < 60 FROM `odd``na\\\\me`"); got != "1" {
				t.Error("_ingested_at is not the server's time")
			}
		})
	}
}

func TestInsertNothing(t *testing.T) {
	in := newInserter(t, clickhouse.Config{Addresses: []string{"127.0.0.1:1"}}, "t")
	r := rows(t, plan(t, 1, "id UInt64"), `{"id":1}`)
	if err := in.Insert(t.Context(), projector.Batch{Rows: r, From: 1, To: 1}); err != nil {
		t.Errorf("an insert of no rows asked a server: %v", err)
	}
}

// TestInsertSettings looks into the server's log for what an insert was run with.
func TestInsertSettings(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	db.Exec(t, "CREATE TABLE t (id UInt64, name String, "+lineage+") ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 10")
	c := config(db)
	c.Settings = map[string]string{"log_comment": "from a test", "max_threads": "3"}
	in := newInserter(t, c, "t")
	r := numbered(t, plan(t, 1, "id UInt64", "name String"), 10)
	for range 2 { // the same token: a retry
		if err := in.Insert(t.Context(), projector.Batch{Rows: r, From: 0, To: 10, Token: "once"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := query(t, db, "SELECT count() FROM t"); got != "10" {
		t.Errorf("%s rows after a retry with the same token, want 10", got)
	}
	if err := in.Insert(t.Context(), projector.Batch{Rows: r, From: 0, To: 10, Token: "twice"}); err != nil {
		t.Fatal(err)
	}
	if got := query(t, db, "SELECT count() FROM t"); got != "20" {
		t.Errorf("%s rows after an insert with another token, want 20", got)
	}
	query(t, db, "SYSTEM FLUSH LOGS")
	got := query(t, db, `SELECT DISTINCT Settings['async_insert'], Settings['optimize_on_insert'], Settings['max_threads'], Settings['insert_deduplication_token'], client_name
		FROM system.query_log WHERE has(databases, currentDatabase()) AND query_kind = 'Insert' AND log_comment = 'from a test' AND type = 'QueryFinish' ORDER BY 4`)
	if want := "0\t0\t3\tonce\tclickhouse/ch-go projector\n0\t0\t3\ttwice\tclickhouse/ch-go projector"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestInsertIsOneBlock: all rows are one part, whatever their number, so that
// they become visible together.
func TestInsertIsOneBlock(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	db.Exec(t, "CREATE TABLE t (id UInt64, name String, "+lineage+") ENGINE = MergeTree ORDER BY id")
	in := newInserter(t, config(db), "t")
	r := numbered(t, plan(t, 1, "id UInt64", "name String"), 300_000)
	if err := in.Insert(t.Context(), batch(r)); err != nil {
		t.Fatal(err)
	}
	if got := query(t, db, "SELECT count(), uniqExact(_part), sum(id), sum(length(name)) FROM t"); got != "300000\t1\t44999850000\t3188890" {
		t.Errorf("rows, parts, sums: %s", got)
	}
}

func TestCheck(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	if err := newInserter(t, config(db), "t").Check(t.Context()); err != nil {
		t.Error(err)
	}
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{
		Databases: []string{"reporting"},
		Profile:   `<async_insert>1</async_insert><constraints><async_insert><readonly/></async_insert></constraints>`,
	})
	err := newInserter(t, clickhouse.Config{Addresses: []string{server.Addr()}, Database: "reporting"}, "t").Check(t.Context())
	if err == nil {
		t.Fatal("a profile that keeps async_insert on was accepted")
	}
	if class, code := classOf(t, err); class != projector.Fatal || code != 452 {
		t.Errorf("Check: class %s, code %d: %v", class, code, err)
	}
}
