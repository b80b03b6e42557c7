package clickhouse_test

import (
	"testing"

	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/projector"
)

// impatient is a user whose profile ends what takes too long as if it had
// finished: the server then answers OK.
const impatient = `<impatient><timeout_overflow_mode>break</timeout_overflow_mode><max_execution_time>0.2</max_execution_time>` +
	`<function_sleep_max_microseconds_per_block>0</function_sleep_max_microseconds_per_block></impatient>`

// TestInsertThatTakesTooLong: an answer means that the rows are stored,
// whatever the profile does with what takes too long.
func TestInsertThatTakesTooLong(t *testing.T) {
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{
		Databases: []string{"d"}, Profiles: impatient,
		Users: `<writer><password></password><profile>impatient</profile><networks><ip>::/0</ip></networks></writer>`,
	})
	query(t, server, "CREATE TABLE d.t (id UInt64, name String, m UInt8 MATERIALIZED sleepEachRow(0.01), "+lineage+") ENGINE = MergeTree ORDER BY id")
	c := clickhouse.Config{Addresses: []string{server.Addr()}, Database: "d", Username: "writer"}
	in := newInserter(t, c, "t")
	if err := in.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := in.Insert(t.Context(), batch(numbered(t, plan(t, 1, "id UInt64", "name String"), 100)))
	if err == nil {
		t.Fatalf("the insert was acknowledged, and %s of 100 rows are stored", query(t, server, "SELECT count() FROM d.t"))
	}
	if class, code := classOf(t, err); class != projector.Transient || code != 159 {
		t.Errorf("class %s, code %d: %v, want transient, 159", class, code, err)
	}
}

// TestAnswerThatTakesTooLong: a part of an answer is not taken for the whole.
func TestAnswerThatTakesTooLong(t *testing.T) {
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{
		Databases: []string{"d"}, Profiles: impatient,
		Users: `<reader><password></password><profile>impatient</profile><networks><ip>::/0</ip></networks></reader>`,
	})
	query(t, server, "CREATE TABLE d.t (id UInt64) ENGINE = MergeTree ORDER BY id SETTINGS index_granularity = 100")
	query(t, server, "INSERT INTO d.t SELECT number FROM numbers(1000)")
	conn, err := clickhouse.Open(clickhouse.Config{Addresses: []string{server.Addr()}, Database: "d", Username: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var rows float64
	err = conn.QueryRow(t.Context(), "SELECT sum(1 + sleepEachRow(0.001)) FROM t SETTINGS max_threads = 1, max_block_size = 100").Scan(&rows)
	if err == nil {
		t.Fatalf("%v of 1000 rows, and no error", rows)
	}
	if clickhouse.Code(err) != 159 {
		t.Errorf("%v, want error 159", err)
	}
}
