package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/testenv"
)

// running is a relay of one shard in the test's process.
type running struct {
	*Relay
	registry *prometheus.Registry
	log      *lockedBuffer
	stop     func() // and wait
}

// start starts a relay; publisher nil is a producer on the shared broker.
func start(t *testing.T, db *sql.DB, cfg Config, publisher Publisher) *running {
	t.Helper()
	if publisher == nil {
		publisher = newProducer(t)
	}
	r := &running{registry: prometheus.NewRegistry(), log: &lockedBuffer{}}
	r.Relay = New("s0", cfg, Deps{DB: db, Kafka: publisher, Metrics: NewMetrics(r.registry), Log: zerolog.New(r.log), Owner: "test"})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, context.WithoutCancel(ctx)) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the relay ended with %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func newProducer(t *testing.T) *Producer {
	t.Helper()
	p, err := NewProducer(kgo.SeedBrokers(sharedKafka(t).Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// topic creates a topic of the test's own and returns a configuration that
// publishes to it.
func topicOf(t *testing.T, configs map[string]*string) Config {
	t.Helper()
	cfg := quick()
	name := regexp.MustCompile("[^a-z]+").ReplaceAllString(strings.ToLower(t.Name()), "-")
	createTopic(t, sharedKafka(t), name, 4, configs)
	cfg.Topics = map[string]string{"result": name}
	return cfg
}

func TestRelayPublishes(t *testing.T) {
	db, _ := outboxOn(t, false)
	cfg := topicOf(t, nil)
	r := start(t, db, cfg, nil)
	execute(t, db, insert("a", 1, "one"), insert("b", 7, "two"), insert("a", 2, "three"))
	testenv.Eventually(t, "all are sent", func() bool { return states(t, db) == "sent 3" })
	testenv.Eventually(t, "it is ready", func() bool { return len(r.Ready()) == 0 }) // the outbox says so before the relay does
	r.stop()
	got := map[string]string{}
	for _, rec := range consume(t, sharedKafka(t), cfg.Topics["result"]) {
		got[fmt.Sprintf("%s %s %s %s %s", rec.Key, header(rec, HeaderVersion), header(rec, HeaderEvent), header(rec, HeaderAggregate), header(rec, HeaderShard))] = string(rec.Value)
		place := ask(t, db, fmt.Sprintf("SELECT event_id FROM outbox WHERE sent_partition = %d AND sent_offset = %d", rec.Partition, rec.Offset))
		if place != header(rec, HeaderEvent) {
			t.Errorf("the place of %s is noted at %s", header(rec, HeaderEvent), place)
		}
	}
	for key, value := range map[string]string{"a 1 a-1 result s0": "one", "b 7 b-7 result s0": "two", "a 2 a-2 result s0": "three"} {
		if got[key] != value {
			t.Errorf("published %v; want %s = %s", got, key, value)
		}
	}
	if n := total(t, r.registry, "sent_total"); n != 3 {
		t.Errorf("%g counted as sent", n)
	}
	if reasons := r.Live(); len(reasons) > 0 {
		t.Error(reasons)
	}
}

// An event larger than its topic takes is parked after its attempts, is visible,
// can be replayed once the topic takes it, and holds nobody up meanwhile.
func TestPoisonedEventIsParkedAndHoldsUpNobody(t *testing.T) {
	db, s := outboxOn(t, false)
	least := "10000"
	cfg := topicOf(t, map[string]*string{"max.message.bytes": &least, "compression.type": new("producer")})
	cfg.Attempts = 3
	random := make([]byte, 20_000) // that no compression makes small
	for i := range random {
		random[i] = 'a' + byte(rand.IntN(26))
	}
	execute(t, db, insert("poison", 1, string(random)))
	fill(t, db, 500)
	r := start(t, db, cfg, nil)
	testenv.Eventually(t, "the others are sent and the poison is parked", func() bool { return states(t, db) == "parked 1, sent 500" })
	list, err := s.List(t.Context(), Filter{State: Parked, Error: "message_too_LARGE"}, 10)
	if err != nil || len(list) != 1 || list[0].Aggregate != "poison" || list[0].Attempts != 3 || list[0].Bytes != 20_000 {
		t.Fatalf("listed: %+v, %v", list, err)
	}
	kinds, err := s.Group(t.Context(), Filter{State: Parked}, "error", 10)
	if err != nil || len(kinds) != 1 || kinds[0].Events != 1 || kinds[0].Value != list[0].Error {
		t.Errorf("grouped: %+v, %v", kinds, err)
	}
	counted(t, r, 3, 1)
	testenv.Eventually(t, "the gauge shows it", func() bool { return total(t, r.registry, "events", Parked) == 1 })
	contains(t, r.log.String(), "projector outbox replay")

	alterTopic(t, cfg.Topics["result"], "max.message.bytes", "1000000")
	var replayed []uint64
	if err := s.Replay(t.Context(), Filter{State: Parked}, 10, 0, func(ids []uint64) { replayed = append(replayed, ids...) }); err != nil || len(replayed) != 1 {
		t.Fatalf("replayed %v, %v", replayed, err)
	}
	testenv.Eventually(t, "it is sent", func() bool { return states(t, db) == "sent 501" })
}

// counted waits until a relay has counted what the outbox shows already.
func counted(t *testing.T, r *running, failed, parked float64) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%g failures and %g parked are counted", failed, parked), func() bool {
		return total(t, r.registry, "failed_total") == failed && total(t, r.registry, "parked_total") == parked
	})
}

// An event without a payload is no state of anything, and Kafka would take its
// empty value for a deletion: it is parked at once and never published. Corrected
// it can be replayed.
func TestEmptyPayloadIsParkedAndNeverPublished(t *testing.T) {
	db, s := outboxOn(t, false)
	if _, err := db.Exec(strings.Replace(insert("none", 1, ""), "''", "NULL", 1)); err == nil {
		t.Error("the table takes an event whose payload is NULL")
	}
	execute(t, db, "ALTER TABLE outbox MODIFY payload MEDIUMTEXT NULL") // as somebody may have made it
	cfg := topicOf(t, nil)
	execute(t, db, insert("before", 1, "{}"), insert("null", 1, "{}"), insert("empty", 1, ""), insert("after", 1, "{}"),
		"UPDATE outbox SET payload = NULL WHERE aggregate_id = 'null'")
	r := start(t, db, cfg, nil)
	testenv.Eventually(t, "all are settled", func() bool { return states(t, db) == "parked 2, sent 2" })
	list, err := s.List(t.Context(), Filter{State: Parked}, 10)
	if err != nil || len(list) != 2 {
		t.Fatalf("listed: %+v, %v", list, err)
	}
	for _, e := range list {
		contains(t, e.Error, "the payload is empty", "isDeleted", "projector outbox replay")
		if e.Attempts != 1 {
			t.Errorf("%s is parked after %d attempts", e.Aggregate, e.Attempts)
		}
	}
	counted(t, r, 2, 2)
	execute(t, db, "UPDATE outbox SET payload = 'corrected' WHERE aggregate_id = 'null'")
	if err := s.Replay(t.Context(), Filter{State: Parked, Aggregate: "null"}, 10, 0, func([]uint64) {}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the corrected one is sent", func() bool { return states(t, db) == "parked 1, sent 3" })
	r.stop()
	for _, rec := range consume(t, sharedKafka(t), cfg.Topics["result"]) {
		if len(rec.Value) == 0 {
			t.Errorf("%s is published without a value", rec.Key)
		}
	}
}

// A topic that does not exist takes nothing and costs no attempt; other topics
// go on, and its events follow as soon as it is there. So do those of a type
// that the configuration does not know.
func TestMissingTopicParksNothing(t *testing.T) {
	db, _ := outboxOn(t, false)
	cfg := topicOf(t, nil)
	cfg.Topics["other"] = cfg.Topics["result"] + "-missing"
	execute(t, db, strings.ReplaceAll(insert("o", 1, "{}"), "'result'", "'other'"), strings.ReplaceAll(insert("u", 1, "{}"), "'result'", "'unknown'"))
	fill(t, db, 300)
	r := start(t, db, cfg, nil)
	testenv.Eventually(t, "the others are sent", func() bool { return ask(t, db, "SELECT COUNT(*) FROM outbox WHERE state = 'sent'") == "300" })
	testenv.Eventually(t, "theirs are given back", func() bool { return total(t, r.registry, "returned_total", "topic") >= 2 })
	if got := ask(t, db, "SELECT GROUP_CONCAT(CONCAT_WS(' ', aggregate_type, attempts) ORDER BY id) FROM outbox WHERE state = 'due'"); got != "other 0,unknown 0" {
		t.Errorf("waiting: %s", got)
	}
	contains(t, r.log.String(), "a topic takes nothing", "no topic for an aggregate type")
	createTopic(t, sharedKafka(t), cfg.Topics["other"], 1, nil)
	testenv.Eventually(t, "the topic's event follows", func() bool {
		return ask(t, db, "SELECT state FROM outbox WHERE aggregate_type = 'other'") == Sent
	})
}

// A mistyped aggregate_type that is spelled like a topic does not hold up the
// events of that topic.
func TestUnknownTypeNamedLikeATopic(t *testing.T) {
	r := New("s0", quick(), Deps{Kafka: &fake{}, Metrics: NewMetrics(prometheus.NewRegistry()), Log: zerolog.Nop(), Owner: "test"})
	b := newBatch(r, claim{})
	b.turnAway(&event{id: 1, aggregateType: "results"}, "")
	if b.isClosed("results") {
		t.Error("the topic results takes nothing, although only an aggregate type of that name is unknown")
	}
	b.closed["results"] = time.Now().Add(time.Minute)
	if !b.isClosed("results") {
		t.Error("a closed topic is open")
	}
}

// fake is a publisher whose answers a test gives.
type fake struct {
	publish func(ctx context.Context, records []*kgo.Record) []Outcome
	ping    func(context.Context) error
}

func (f *fake) Publish(ctx context.Context, records []*kgo.Record) []Outcome {
	return f.publish(ctx, records)
}
func (f *fake) Ping(ctx context.Context) error { return f.ping(ctx) }

func all(records []*kgo.Record, err error) []Outcome {
	outcomes := make([]Outcome, len(records))
	for i := range outcomes {
		outcomes[i].Err = err
	}
	return outcomes
}

// While Kafka is away nothing is claimed, no attempt is lost however long it
// takes, and afterwards everything goes out.
func TestOutageBurnsNoAttempt(t *testing.T) {
	db, _ := outboxOn(t, false)
	fill(t, db, 250)
	var mu sync.Mutex
	away, pings := true, 0
	is := func() bool { mu.Lock(); defer mu.Unlock(); return away }
	f := &fake{
		publish: func(_ context.Context, records []*kgo.Record) []Outcome {
			if is() {
				return all(records, kerr.NotEnoughReplicas)
			}
			return all(records, nil)
		},
		ping: func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if pings++; away && pings > 1 { // it goes away after the relay has begun
				return errors.New("nobody there")
			}
			return nil
		},
	}
	cfg := quick()
	cfg.Attempts = 2
	r := start(t, db, cfg, f)
	testenv.Eventually(t, "the relay asks whether Kafka is back", func() bool { mu.Lock(); defer mu.Unlock(); return pings >= 5 })
	if claims := total(t, r.registry, "claims_total"); claims != 1 {
		t.Errorf("%g claims during the outage, want the one that noticed it", claims)
	}
	if got := ask(t, db, "SELECT CONCAT_WS(' ', COUNT(*), MAX(attempts), MAX(state)) FROM outbox"); got != "250 0 due" {
		t.Errorf("the outbox holds %q", got)
	}
	contains(t, ask(t, db, "SELECT MAX(last_error) FROM outbox"), "NOT_ENOUGH_REPLICAS")
	mu.Lock()
	away = false
	mu.Unlock()
	testenv.Eventually(t, "all are sent", func() bool { return states(t, db) == "sent 250" })
	if got := ask(t, db, "SELECT CONCAT_WS(' ', MIN(attempts), MAX(attempts), COUNT(last_error)) FROM outbox"); got != "1 1 0" {
		t.Errorf("attempts and errors: %s", got)
	}
}

// SIGTERM in the middle: what is acknowledged is marked, the rest is given back
// at once and costs no attempt.
func TestStopGivesClaimsBack(t *testing.T) {
	db, _ := outboxOn(t, false)
	fill(t, db, 100)
	execute(t, db, "UPDATE outbox SET payload = REPEAT('y', 200000)") // two to a group
	published, release := make(chan struct{}), make(chan struct{})
	groups := 0
	f := &fake{ping: func(context.Context) error { return nil }, publish: func(_ context.Context, records []*kgo.Record) []Outcome {
		if groups++; groups == 3 {
			close(published)
			<-release
			return all(records, context.Canceled) // cut off by the deadline
		}
		if groups > 3 {
			return all(records, context.Canceled)
		}
		return all(records, nil)
	}}
	r := start(t, db, quick(), f)
	<-published
	go close(release)
	r.stop()
	got := states(t, db)
	if got != "due 96, sent 4" {
		t.Errorf("after the stop: %s", got)
	}
	if n := ask(t, db, "SELECT MAX(attempts) FROM outbox WHERE state = 'due'"); n != "0" {
		t.Errorf("given back with %s attempts", n)
	}
}

// A shard that is away holds up itself alone, and goes on when it is back.
func TestShardsDoNotHoldEachOtherUp(t *testing.T) {
	db, _ := outboxOn(t, false)
	cfg := topicOf(t, nil)
	away := open(t, "root@tcp(127.0.0.1:1)/nowhere", 2)
	dead := start(t, away, cfg, nil)
	alive := start(t, db, cfg, nil)
	fill(t, db, 50)
	testenv.Eventually(t, "the other shard's events are sent", func() bool { return states(t, db) == "sent 50" })
	testenv.Eventually(t, "it is ready", func() bool { return len(alive.Ready()) == 0 }) // the outbox says so before the relay does
	testenv.Eventually(t, "the shard that is away is told of", func() bool {
		reasons := strings.Join(dead.Ready(), "; ")
		return strings.HasPrefix(reasons, "shard s0: ") && strings.Contains(reasons, "connection refused")
	})
	if reasons := dead.Live(); len(reasons) != 0 {
		t.Errorf("live: %v", reasons)
	}
}

// The share of first publications that a newer version of the same aggregate has
// overtaken: with several relays some are, under strict order none.
func TestPublishOrder(t *testing.T) {
	for _, strict := range []bool{false, true} {
		t.Run(map[bool]string{false: "any order", true: "strict order"}[strict], func(t *testing.T) {
			db, _ := outboxOn(t, strict)
			cfg := topicOf(t, nil)
			cfg.StrictOrder, cfg.Batch, cfg.Poll = strict, 10, 10*time.Millisecond
			producer := newProducer(t)
			slow := &fake{ping: producer.Ping, publish: func(ctx context.Context, records []*kgo.Record) []Outcome {
				wait(ctx, rand.N(20*time.Millisecond)) // relays differ in speed
				return producer.Publish(ctx, records)
			}}
			const records, versions = 20, 50
			began := time.Now()
			for version := 1; version <= versions; version++ {
				if version == versions/2 { // half of it waits for them: on a busy machine they may be faster than what comes
					for range 4 {
						start(t, db, cfg, slow)
					}
				}
				for aggregate := range records {
					execute(t, db, insert(aggregate, version, "{}"))
				}
			}
			testenv.Eventually(t, "all are sent", func() bool { return states(t, db) == fmt.Sprintf("sent %d", records*versions) })
			took := time.Since(began)
			seen, newest, overtaken := map[string]bool{}, map[string]int{}, 0
			for _, r := range consume(t, sharedKafka(t), cfg.Topics["result"]) {
				key, version := string(r.Key), number(t, header(r, HeaderVersion))
				if seen[fmt.Sprint(key, " ", version)] {
					continue
				}
				seen[fmt.Sprint(key, " ", version)] = true
				if version < newest[key] {
					overtaken++
				}
				newest[key] = max(newest[key], version)
			}
			t.Logf("%d of %d first publications overtaken (%.1f %%), %d events/s", overtaken, len(seen), 100*float64(overtaken)/float64(len(seen)), int(float64(len(seen))/took.Seconds()))
			if strict && overtaken > 0 {
				t.Error("strict order was broken")
			}
			if !strict && overtaken == 0 {
				t.Error("nothing was overtaken: the test would not notice that strict order is broken either")
			}
		})
	}
}
