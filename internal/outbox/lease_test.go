package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/testenv"
)

// A relay that publishes for longer than its lease, as a stopped process does,
// has lost its claim to another one when it comes back: it changes nothing, that
// is counted, and the row tells where the other one's record is.
func TestSlowPublisherLosesItsLease(t *testing.T) {
	db, _ := outboxOn(t, false)
	fill(t, db, 30)
	asleep, wake := make(chan struct{}), make(chan struct{})
	ping := func(context.Context) error { return nil }
	placed := func(records []*kgo.Record, partition int32) []Outcome {
		outcomes := all(records, nil)
		for i := range outcomes {
			outcomes[i].Partition = partition
		}
		return outcomes
	}
	cfg := quick()
	cfg.Lease, cfg.PublishTimeout = 2*time.Second, time.Second
	slow := start(t, db, cfg, &fake{ping: ping, publish: func(_ context.Context, records []*kgo.Record) []Outcome {
		close(asleep)
		<-wake
		return placed(records, 1)
	}})
	<-asleep
	attempts := ask(t, db, "SELECT MAX(attempts) + 1 FROM outbox") // on a busy machine it may have lost claims before
	other := start(t, db, quick(), &fake{ping: ping, publish: func(_ context.Context, records []*kgo.Record) []Outcome { return placed(records, 2) }})
	testenv.Eventually(t, "the other relay has published all", func() bool { return states(t, db) == "sent 30" })
	before := ask(t, db, "SELECT GROUP_CONCAT(CONCAT_WS(' ', state, claim_token, attempts, due_at, sent_partition) ORDER BY id) FROM outbox")
	close(wake)
	testenv.Eventually(t, "the slow one has come back", func() bool { return total(t, slow.registry, "rejected_total", "complete") > 0 })
	slow.stop()
	if rejected, sent := total(t, slow.registry, "rejected_total", "complete"), total(t, slow.registry, "sent_total"); rejected != 30 || sent != 0 {
		t.Errorf("of the slow relay %g completions were rejected and %g carried out, want 30 and 0", rejected, sent)
	}
	if sent := total(t, other.registry, "sent_total"); sent != 30 {
		t.Errorf("the other relay has sent %g, want 30", sent)
	}
	if after := ask(t, db, "SELECT GROUP_CONCAT(CONCAT_WS(' ', state, claim_token, attempts, due_at, sent_partition) ORDER BY id) FROM outbox"); after != before {
		t.Errorf("the slow relay has changed\n%s to\n%s", before, after)
	}
	if got := ask(t, db, "SELECT CONCAT_WS(' ', MIN(sent_partition), MAX(sent_partition), MIN(attempts), MAX(attempts)) FROM outbox"); got != fmt.Sprintf("2 2 %[1]s %[1]s", attempts) {
		t.Errorf("partitions and attempts: %s, want 2 and %s", got, attempts)
	}
}

// deadly is Kafka for a relay that dies of some events: the process ends before
// anything is published or settled, and another takes its place.
type deadly struct {
	fake
	mu    sync.Mutex
	die   func()
	fatal [][]string // the aggregates of each group that was the last of a process
}

func (d *deadly) publish(_ context.Context, records []*kgo.Record) []Outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := make([]string, len(records))
	for i, r := range records {
		keys[i] = string(r.Key)
	}
	if !slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, "killer") }) {
		return all(records, nil)
	}
	d.fatal = append(d.fatal, keys)
	d.die()
	return all(records, errors.New("nobody is left to hear this"))
}

// newDeadly starts one process after another until the test ends or stop is
// called, which waits.
func newDeadly(t *testing.T, db *sql.DB, cfg Config) (d *deadly, stop func()) {
	t.Helper()
	d = &deadly{}
	d.fake = fake{publish: d.publish, ping: func(context.Context) error { return nil }}
	alive, end := context.WithCancel(t.Context())
	var processes sync.WaitGroup
	processes.Go(func() {
		for alive.Err() == nil {
			ctx, kill := context.WithCancel(alive)
			d.mu.Lock()
			d.die = kill
			d.mu.Unlock()
			r := New("s0", cfg, Deps{DB: db, Kafka: d, Metrics: NewMetrics(prometheus.NewRegistry()), Log: zerolog.Nop(), Owner: "test"})
			if err := r.Run(ctx, ctx); err != nil {
				t.Error(err)
			}
			kill()
			// It had the only claim. Its lease is long, for no other may end on a busy machine.
			if _, err := db.Exec("UPDATE outbox SET due_at = NOW(6) WHERE state = 'claimed'"); err != nil {
				t.Error(err)
			}
		}
	})
	stop = func() { end(); processes.Wait() }
	t.Cleanup(stop)
	return d, stop
}

// Events that bring their relay down are parked, and they alone: those that were
// claimed with them are published, whatever the number of attempts.
func TestOnlyTheKillerIsParked(t *testing.T) {
	for _, attempts := range []int{1, 2, 3, 6} {
		t.Run(fmt.Sprintf("%d attempts", attempts), func(t *testing.T) {
			t.Parallel()
			db, _ := outboxOn(t, false)
			fill(t, db, 24)
			execute(t, db, insert("killer-1", 1, "{}"), insert("killer-2", 1, "{}"), insert("last", 1, "{}"))
			cfg := quick()
			cfg.Attempts, cfg.BackoffMax = attempts, 40*time.Millisecond
			d, stop := newDeadly(t, db, cfg)
			testenv.Eventually(t, "nothing is unsent", func() bool { return ask(t, db, "SELECT COUNT(*) FROM outbox WHERE state IN ('due', 'claimed')") == "0" })
			stop()
			if got := ask(t, db, "SELECT GROUP_CONCAT(aggregate_id, ' ', attempts ORDER BY id) FROM outbox WHERE state = 'parked'"); got != fmt.Sprintf("killer-1 %[1]d,killer-2 %[1]d", attempts) {
				t.Errorf("parked: %s; want the killers after %d attempts", got, attempts)
			}
			if got := states(t, db); got != "parked 2, sent 25" {
				t.Errorf("the outbox holds: %s", got)
			}
			together := 0
			for _, keys := range d.fatal {
				if len(keys) > 1 {
					together++
				}
			}
			// Fewer would mean that claims are not shared at all.
			if want := min(2, attempts-1); together != want {
				t.Errorf("%d claims of several events were fatal, want %d: %v", together, want, d.fatal)
			}
		})
	}
}

// Whatever the history of events, the claim that may park one is its own, and
// what no relay has died of shares its claims.
func TestWhatIsParkedWasClaimedAlone(t *testing.T) {
	db, s := outboxOn(t, false)
	const attempts = 4
	fill(t, db, 30) // each ends parked, by its lease or by the broker: that it is never the lease must not happen by chance
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	parked, shared := 0, 0
	for round := 0; ask(t, db, "SELECT COUNT(*) FROM outbox WHERE state = 'due'") != "0"; round++ {
		execute(t, db, "UPDATE outbox SET due_at = NOW(6) - INTERVAL RAND() SECOND WHERE state = 'due'")
		c, err := s.claim(t.Context(), 1+r.IntN(12), attempts, time.Microsecond, r.Uint64()|1)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.events) > 1 {
			shared++
		}
		switch r.IntN(3) {
		case 0:
			_, err = s.giveBack(t.Context(), c.token, c.events, 0, "away")
		case 1:
			refused := make([]failed, len(c.events))
			for i := range c.events {
				refused[i] = failed{event: &c.events[i], err: errNoAnswer, park: c.events[i].attempts >= attempts}
			}
			_, err = s.fail(t.Context(), c.token, refused)
		default:
			var n int
			_, n, err = s.reap(t.Context(), attempts, func(int) time.Duration { return 0 })
			if parked += n; n > 0 && len(c.events) > 1 {
				t.Fatalf("seed %d, round %d: %d of %d events that were claimed together are parked", seed, round, n, len(c.events))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if parked == 0 || shared == 0 {
		t.Errorf("seed %d: %d parked by their lease, %d claims shared: nothing was tried", seed, parked, shared)
	}
}
