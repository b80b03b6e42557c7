package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/testenv"
)

// The stress: 6 writers on two shards, 4 relay processes that are killed before
// and after publishing or fall asleep beyond their lease, a broker that is
// killed and one shard that is killed. Then everything is counted against what
// the applications committed.
//
// OUTBOX_STRESS is how long it writes (default 15 s); `make outbox-stress` takes
// five minutes.
func TestStress(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	length := 15 * time.Second
	if text := os.Getenv("OUTBOX_STRESS"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	kafka := testenv.NewKafka(t, testenv.KafkaConfig{})
	w := &stress{t: t, kafka: kafka, registry: prometheus.NewRegistry(), cfg: quick()}
	w.metrics = NewMetrics(w.registry)
	w.cfg.Lease, w.cfg.PublishTimeout = time.Second, 400*time.Millisecond
	w.cfg.Batch, w.cfg.Attempts = 10, 1000 // killed this often, an event may need many; whether it is then parked is another test's question
	w.cfg.Retention = 5 * time.Second
	w.topic()
	for i := range 2 {
		w.shards = append(w.shards, newStressShard(t, i))
	}

	writing, stopWriting := context.WithCancel(t.Context())
	defer stopWriting()
	relaying, stopRelays := context.WithCancel(t.Context())
	defer stopRelays()
	w.chaos.Store(true)
	var writers, processes, faults sync.WaitGroup
	for i := range 6 {
		writers.Go(func() { w.write(writing, i) })
	}
	for i := range relays {
		processes.Go(func() { w.supervise(relaying, i) })
	}
	// Writing goes on until every server was killed and is back, also when that takes longer.
	faults.Go(func() { w.faults(t.Context(), length) })
	wait(t.Context(), length)
	faults.Wait()
	stopWriting()
	writers.Wait()
	w.chaos.Store(false)
	w.drain()
	stopRelays()
	processes.Wait()
	w.judge(length)
}

// stress is the world of the test.
type stress struct {
	t        *testing.T
	kafka    *testenv.Kafka
	shards   []*stressShard
	registry *prometheus.Registry
	metrics  *Metrics
	cfg      Config
	log      lockedBuffer
	chaos    atomic.Bool

	committed, rolledBack, unknown     atomic.Int64 // transactions of writers
	crashedBefore, crashedAfter, dozed atomic.Int64 // relays
	slowest                            atomic.Int64 // insert, in µs, while nothing is restarted
	restarting                         atomic.Bool
	brokerKills, shardKills            int // owned by faults
}

// stressShard is a server with a business table, the history of what committed,
// an outbox, and a trigger that knows which transitions there are.
type stressShard struct {
	name   string
	server *testenv.MariaDB
	db     *sql.DB
}

const (
	aggregates = 40 // on each shard
	relays     = 4
)

func newStressShard(t *testing.T, i int) *stressShard {
	t.Helper()
	s := &stressShard{name: fmt.Sprintf("s%d", i), server: testenv.NewMariaDB(t, testenv.MariaDBConfig{Databases: []string{"app"}})}
	s.db = open(t, s.server.DSN("app"), 20)
	execute(t, s.db, DDL("outbox"),
		"CREATE TABLE result (id INT UNSIGNED PRIMARY KEY, version BIGINT UNSIGNED NOT NULL) ENGINE=InnoDB",
		fmt.Sprintf("INSERT INTO result SELECT %d + seq, 0 FROM seq_1_to_%d", i*1000, aggregates),
		"CREATE TABLE history (id INT UNSIGNED, version BIGINT UNSIGNED, nonce BIGINT UNSIGNED NOT NULL, PRIMARY KEY (id, version)) ENGINE=InnoDB",
		"CREATE TABLE violation (id BIGINT UNSIGNED, what VARCHAR(200)) ENGINE=InnoDB",
		"CREATE TABLE transition (what VARCHAR(60) PRIMARY KEY, n BIGINT) ENGINE=InnoDB",
		// A completion may be made by the holder of the claim alone, and nothing follows it. Each relay has a user of
		// its own, whose name its claims carry.
		`CREATE TRIGGER watch AFTER UPDATE ON outbox FOR EACH ROW
		IF NOT (OLD.state = 'due' AND NEW.state = 'claimed' AND NEW.claim_token <> 0 AND NEW.attempts = OLD.attempts + 1
			OR OLD.state = 'claimed' AND NEW.state = 'sent' AND NEW.claim_token = OLD.claim_token AND OLD.claimed_by LIKE CONCAT(SUBSTRING_INDEX(USER(), '@', 1), '-%')
			OR OLD.state = 'claimed' AND NEW.state IN ('due', 'parked') AND NEW.claim_token IN (0, OLD.claim_token)) THEN
			INSERT INTO violation VALUES (NEW.id, CONCAT(OLD.state, ' ', OLD.claim_token, ' -> ', NEW.state, ' ', NEW.claim_token));
		END IF`)
	for r := range relays {
		user := fmt.Sprintf("relay%d", r)
		execute(t, s.db, fmt.Sprintf("CREATE USER %s@'%%'", user))
		execute(t, s.db, Grants("outbox", user, false)...)
	}
	return s
}

func (w *stress) topic() {
	w.t.Helper()
	createTopic(w.t, w.kafka, "results", 4, nil)
}

// write is an application: it changes a result, advances its version and
// inserts the event, in one transaction, of which some are rolled back.
func (w *stress) write(ctx context.Context, seed int) {
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	for ctx.Err() == nil {
		shard := w.shards[r.IntN(2)]
		id, nonce := r.IntN(aggregates)+1, r.Uint64()>>1
		if shard == w.shards[1] {
			id += 1000
		}
		back := r.IntN(10) == 0
		began := time.Now()
		if err := w.change(ctx, shard, id, nonce, back, time.Duration(r.IntN(6))*time.Millisecond); err != nil {
			w.unknown.Add(1) // the server was killed; history tells whether it is committed
			wait(ctx, 20*time.Millisecond)
			continue
		}
		if took := time.Since(began).Microseconds(); !w.restarting.Load() && took > w.slowest.Load() {
			w.slowest.Store(took)
		}
		if back {
			w.rolledBack.Add(1)
		} else {
			w.committed.Add(1)
		}
	}
}

func (w *stress) change(ctx context.Context, shard *stressShard, id int, nonce uint64, back bool, think time.Duration) error {
	tx, err := shard.db.BeginTx(ctx, nil) // as most applications: REPEATABLE READ
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range []string{
		fmt.Sprintf("UPDATE result SET version = version + 1 WHERE id = %d", id),
		fmt.Sprintf("INSERT INTO history SELECT id, version, %d FROM result WHERE id = %d", nonce, id),
		fmt.Sprintf("INSERT INTO outbox (event_id, aggregate_type, aggregate_id, version, payload) SELECT CONCAT(id, '-', version), 'result', id, version, '%d' FROM result WHERE id = %d", nonce, id),
	} {
		if _, err := tx.Exec(statement); err != nil {
			return err
		}
	}
	wait(ctx, think)
	if back {
		return tx.Rollback()
	}
	return tx.Commit()
}

// supervise runs one relay process after another, as whatever restarts a killed
// one would.
func (w *stress) supervise(ctx context.Context, i int) {
	for life := 0; ctx.Err() == nil; life++ {
		w.process(ctx, i, life)
		if ctx.Err() == nil {
			wait(ctx, rand.N(300*time.Millisecond))
		}
	}
}

// process is one relay process over all shards.
func (w *stress) process(ctx context.Context, i, life int) {
	user := fmt.Sprintf("relay%d", i)
	hard, kill := context.WithCancel(context.Background())
	defer kill()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	producer, err := NewProducer(kgo.SeedBrokers(w.kafka.Brokers()...))
	if err != nil {
		w.t.Error(err)
		return
	}
	defer producer.Close()
	die := func() { kill(); stop() }
	var shards sync.WaitGroup
	for _, s := range w.shards {
		db := open(w.t, strings.Replace(s.server.DSN("app"), "root@", user+"@", 1), 3)
		defer db.Close()
		relay := New(s.name, w.cfg, Deps{
			DB: db, Kafka: &chaotic{Publisher: producer, w: w, die: die, hard: hard}, Metrics: w.metrics,
			Log: zerolog.New(&w.log), Owner: fmt.Sprintf("%s-%d", user, life),
		})
		shards.Go(func() {
			if err := relay.Run(ctx, hard); err != nil {
				w.t.Errorf("relay of %s: %v", s.name, err)
			}
		})
	}
	shards.Wait()
}

// chaotic kills its process before or after publishing, or sleeps until the
// lease is over, as a process does that is stopped or on a starved machine.
type chaotic struct {
	Publisher
	w    *stress
	die  func()
	hard context.Context
}

func (c *chaotic) Publish(ctx context.Context, records []*kgo.Record) []Outcome {
	if !c.w.chaos.Load() {
		return c.Publisher.Publish(ctx, records)
	}
	asleep := c.w.cfg.Lease + rand.N(c.w.cfg.Lease)
	switch x := rand.IntN(1000); {
	case x < 15:
		c.w.crashedBefore.Add(1)
		c.die()
		return make([]Outcome, len(records)) // whatever it is, nobody is left to settle it
	case x < 30:
		c.w.crashedAfter.Add(1)
		outcomes := c.Publisher.Publish(ctx, records)
		c.die()
		return outcomes
	case x < 50:
		c.w.dozed.Add(1)
		wait(c.hard, asleep)
		late, cancel := context.WithTimeout(c.hard, time.Second)
		defer cancel()
		return c.Publisher.Publish(late, records)
	case x < 70:
		c.w.dozed.Add(1)
		outcomes := c.Publisher.Publish(ctx, records)
		wait(c.hard, asleep)
		return outcomes
	}
	return c.Publisher.Publish(ctx, records)
}

// faults kills the broker and one shard, each some times.
func (w *stress) faults(ctx context.Context, length time.Duration) {
	rounds := max(1, int(length/(45*time.Second)))
	for range rounds {
		for _, victim := range []struct {
			server interface {
				Kill() error
				Restart(context.Context) error
			}
			kills *int
		}{{w.kafka, &w.brokerKills}, {w.shards[1].server, &w.shardKills}} {
			wait(ctx, length/time.Duration(3*rounds))
			w.restarting.Store(true)
			if err := victim.server.Kill(); err != nil {
				w.t.Error(err)
			}
			*victim.kills++
			wait(ctx, time.Second)
			if err := victim.server.Restart(ctx); err != nil {
				w.t.Error(err)
			}
			w.restarting.Store(false)
		}
	}
}

// drain waits until nothing is unsent.
func (w *stress) drain() {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		left := 0
		for _, s := range w.shards {
			var n int
			if err := s.db.QueryRow("SELECT COUNT(*) FROM outbox WHERE state IN ('due', 'claimed')").Scan(&n); err != nil {
				n = 1
			}
			left += n
		}
		if left == 0 {
			return
		}
		wait(w.t.Context(), 100*time.Millisecond)
	}
	for _, s := range w.shards {
		w.t.Logf("%s: %s", s.name, states(w.t, s.db))
	}
	w.t.Errorf("events are left a minute after the last one was written; the log ends with:\n%s", w.log.tail(4000))
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *lockedBuffer) tail(n int) string {
	text := b.String()
	return text[max(0, len(text)-n):]
}
