package outbox

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chprojector/projector/internal/credentials"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a shard as the program does.
func open(t testing.TB, dsn string, conns int) *sql.DB {
	t.Helper()
	db, err := mysql.Shard{Name: "s0", DSN: credentials.Secret{Value: dsn}}.Open(conns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// outboxOn makes a database with an outbox, and its probed store.
func outboxOn(t testing.TB, strict bool) (*sql.DB, *Store) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs servers")
	}
	db := open(t, testenv.SharedMariaDB(t).DSN(), 20)
	execute(t, db, DDL("outbox"))
	s := NewStore("s0", db, "outbox", "test", strict)
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db, s
}

func execute(t testing.TB, db interface {
	Exec(query string, args ...any) (sql.Result, error)
}, statements ...string,
) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%.200s: %v", statement, err)
		}
	}
}

// ask returns the single value of a query as text.
func ask(t testing.TB, db *sql.DB, query string) string {
	t.Helper()
	var value sql.NullString
	if err := db.QueryRow(query).Scan(&value); err != nil {
		t.Fatalf("%.200s: %v", query, err)
	}
	return value.String
}

// insert is what an application says of one change.
func insert(aggregate any, version int, payload string) string {
	return fmt.Sprintf("INSERT INTO outbox (event_id, aggregate_type, aggregate_id, version, payload) VALUES ('%[1]v-%[2]d', 'result', '%[1]v', %[2]d, '%[3]s')", aggregate, version, payload)
}

// fill inserts n events of as many aggregates at once.
func fill(t testing.TB, db *sql.DB, n int) {
	t.Helper()
	execute(t, db, fmt.Sprintf("INSERT INTO outbox (event_id, aggregate_type, aggregate_id, version, payload) SELECT CONCAT('fill-', seq), 'result', CONCAT('fill-', seq), 1, REPEAT('x', 170) FROM seq_1_to_%d", n))
}

// states lists how many events are in which state.
func states(t testing.TB, db *sql.DB) string {
	t.Helper()
	return ask(t, db, "SELECT GROUP_CONCAT(CONCAT(state, ' ', n) ORDER BY CAST(state AS CHAR) SEPARATOR ', ') FROM (SELECT state, COUNT(*) AS n FROM outbox GROUP BY state) s")
}

var broker struct {
	sync.Mutex
	kafka *testenv.Kafka
}

// sharedKafka is one real broker for all tests that do not stop it.
func sharedKafka(t testing.TB) *testenv.Kafka {
	t.Helper()
	if testing.Short() {
		t.Skip("needs servers")
	}
	broker.Lock()
	defer broker.Unlock()
	if broker.kafka == nil {
		kafka, err := testenv.StartKafka(t.Context(), testenv.KafkaConfig{})
		if err != nil {
			t.Fatal(err)
		}
		broker.kafka = kafka
	}
	return broker.kafka
}

func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
}

// quick is a configuration whose times a test can wait for, but for the lease: a busy machine is no outage.
func quick() Config {
	return Config{
		Table: "outbox", Topics: map[string]string{"result": "results"},
		Batch: 100, Lease: time.Minute, PublishTimeout: 30 * time.Second, Attempts: 10,
		BackoffMin: 20 * time.Millisecond, BackoffMax: 500 * time.Millisecond, Poll: 20 * time.Millisecond,
		Retention: time.Hour, PurgeBatch: 100,
	}
}
