package e2e

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/chprojector/projector/internal/testenv"
)

// TestKillNine kills whatever there is, at moments drawn from a seed, while events come: the process that inserts, the
// server that stores, the broker that keeps the offsets. Nothing may be lost.
func TestKillNine(t *testing.T) {
	seed := uint64(number(t, "E2E_SEED", 1))
	random := rand.New(rand.NewPCG(seed, seed))
	broker := testenv.NewKafka(t, testenv.KafkaConfig{})
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{Databases: []string{"reporting"}})
	w := newWorld(t, setup{partitions: 4, broker: broker, server: server})
	w.apply()
	members := []*member{w.start("first", "batch.delay=200ms"), w.start("second", "batch.delay=200ms")}

	again := func(what interface{ Kill() error }, start func()) {
		t.Helper()
		if err := what.Kill(); err != nil {
			t.Fatal(err)
		}
		start()
	}
	victims := map[string]func(){
		"first":  func() { again(members[0], members[0].restart) },
		"second": func() { again(members[1], members[1].restart) },
		"ClickHouse": func() {
			again(server, func() {
				if err := server.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		},
		"Kafka": func() {
			again(broker, func() {
				if err := broker.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		},
	}
	// Each server dies, and members die most often, in a random order.
	order := []string{"first", "second", "ClickHouse", "Kafka", "first", "second", "ClickHouse", "first"}
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })

	const pace = 5_000
	g := events(t, 60_000, seed)
	f := w.feed(g)
	f.upTo(0.1, 0)
	for _, m := range members {
		m.owns()
	}
	began := time.Now()
	for i, victim := range order {
		share := 0.1 + 0.9*(float64(i)+random.Float64())/float64(len(order))
		f.upTo(share, pace)
		t.Logf("%5.1f s: kill -9 %s", time.Since(began).Seconds(), victim)
		victims[victim]()
	}
	f.upTo(1, pace)
	f.flush()
	w.settle()
	t.Logf("seed %d: %d events settled after %.1f s and %d kills", seed, g.Len(), time.Since(began).Seconds(), len(order))
	for _, m := range members {
		m.ready()
		m.drain()
	}
	w.equals(model(t, g))
	w.intact()
	// Merges run, so this is the least that was inserted again.
	t.Logf("%s rows in the table are there again", w.ask("SELECT count() - uniqExact(_partition, _offset) FROM fitness_results_versions"))
	w.exec("OPTIMIZE TABLE fitness_results_g1 FINAL")
	w.equals(model(t, g))
	// An outage is one line when it begins, not one for every attempt.
	for _, m := range members {
		if n := strings.Count(m.log(), "was expelled from the group"); n > 8 {
			t.Errorf("%s logged %d times that it was expelled", m.name, n)
		}
	}
}
