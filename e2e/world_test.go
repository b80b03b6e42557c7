package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/testenv"
)

// world is what one test has to itself: a topic, a database, a configuration that names them, and a client to look at
// Kafka with.
type world struct {
	t      testing.TB
	binary string
	broker *testenv.Kafka
	db     *testenv.ClickHouseDatabase
	topic  string
	group  string // of the projection fitness_results
	config string // file
	env    []string
	client *kgo.Client
	admin  *kadm.Client
}

// setup is how a world differs from the usual one.
type setup struct {
	partitions int                 // of the topic; 0: 4
	broker     *testenv.Kafka      // nil: the shared one
	server     *testenv.ClickHouse // nil: a database on the shared one
	database   string              // on server, empty: reporting
	config     string              // configuration whose topic is "fitness-results"; empty: the repository's
	env        []string            // PROJECTOR_… variables
}

// newWorld prepares everything but the tables.
func newWorld(t testing.TB, s setup) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs servers")
	}
	binary, err := testenv.Build(t.Context(), "projector")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, binary: binary, broker: s.broker}
	if w.broker == nil {
		w.broker = sharedKafka(t)
	}
	if s.server != nil {
		w.db = &testenv.ClickHouseDatabase{ClickHouse: s.server, Name: cmp.Or(s.database, "reporting")}
	} else {
		w.db = testenv.SharedClickHouse(t)
	}
	if w.client, err = kgo.NewClient(kgo.SeedBrokers(w.broker.Brokers()...), kgo.MetadataMinAge(100*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.client.Close)
	w.admin = kadm.NewClient(w.client)
	w.topic = regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(t.Name(), "-")
	w.createTopic(w.topic, cmp.Or(s.partitions, 4))
	w.write(s.config)
	w.group = w.topic + ".fitness_results.g1"
	w.env = append([]string{
		"PROJECTOR_KAFKA__BROKERS=" + strings.Join(w.broker.Brokers(), ","),
		"PROJECTOR_KAFKA__GROUP=" + w.topic,
		"PROJECTOR_KAFKA__SESSION_TIMEOUT=6s", // the least that brokers admit: what a killed member held is free sooner
		"PROJECTOR_CLICKHOUSE__ADDRESSES=" + w.db.Addr(),
		"PROJECTOR_CLICKHOUSE__DATABASE=" + w.db.Name,
		"PROJECTOR_LOG_FORMAT=json",
	}, s.env...)
	return w
}

// repositoryConfig is the configuration that everybody starts with.
func repositoryConfig(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// replaced is text with old replaced, which must be there.
func replaced(t testing.TB, text, old, by string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("there is no %q in\n%s", old, text)
	}
	return strings.ReplaceAll(text, old, by)
}

// write makes the text, or the repository's, the configuration of every process started from now on.
func (w *world) write(text string) {
	w.t.Helper()
	if text == "" {
		text = repositoryConfig(w.t)
	}
	w.config = filepath.Join(w.t.TempDir(), "config.yaml")
	if err := os.WriteFile(w.config, []byte(replaced(w.t, text, "fitness-results", w.topic)), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) createTopic(name string, partitions int) {
	w.t.Helper()
	if _, err := w.admin.CreateTopic(w.t.Context(), int32(partitions), 1, nil, name); err != nil {
		w.t.Fatal(err)
	}
	// A broker may know a topic only a while after it has created it. Asking for the rights as well makes kadm ask it.
	w.until(soon, "the broker knows the topic "+name, func() bool {
		topics, err := w.admin.ListTopicsWithInternal(kadm.WithAuthorizedOps(w.t.Context()), name)
		return err == nil && topics[name].Err == nil && len(topics[name].Partitions) == partitions
	})
	// The first who asks about a group makes the broker create the topic of the groups' offsets.
	w.until(soon, "the broker looks after groups", func() bool {
		_, err := w.offsetsOf(w.t.Context(), name, w.group)
		return err == nil
	})
}

// exec runs statements in the test's database.
func (w *world) exec(statements ...string) {
	w.t.Helper()
	w.db.Exec(w.t, statements...)
}

// ask returns the result of a query as text, without the last line break.
func (w *world) ask(query string) string {
	w.t.Helper()
	out, err := w.db.Query(w.t.Context(), query)
	if err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
	return strings.TrimSuffix(out, "\n")
}

// inserted is how many inserts into a table of the test's database succeeded, and how many rows they wrote.
func (w *world) inserted(table string) (inserts, rows int) {
	w.t.Helper()
	w.exec("SYSTEM FLUSH LOGS query_log")
	out := w.ask("SELECT count(), sum(written_rows) FROM system.query_log WHERE type = 'QueryFinish' AND query_kind = 'Insert' AND has(tables, '" +
		w.db.Name + "." + table + "')")
	if _, err := fmt.Sscan(out, &inserts, &rows); err != nil {
		w.t.Fatalf("%s: %v", out, err)
	}
	return inserts, rows
}

// until polls foreign processes, and fails the test after patience with what was awaited.
func (w *world) until(patience time.Duration, what string, done func() bool) {
	w.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-timeout.C:
			w.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// soon is for what takes a second, with room for a machine that is busy with something else.
const soon = time.Minute

// offsets are the next offset to read and the end of every partition.
type offsets struct{ committed, ends map[int32]int64 }

// lag is how many records are not committed.
func (o offsets) lag() (n int64) {
	for p, end := range o.ends {
		n += end - o.committed[p]
	}
	return n
}

// offsets asks Kafka itself how far the projection fitness_results is.
func (w *world) offsets(ctx context.Context) (offsets, error) {
	return w.offsetsOf(ctx, w.topic, w.group)
}

func (w *world) offsetsOf(ctx context.Context, topic, group string) (offsets, error) {
	o := offsets{committed: map[int32]int64{}, ends: map[int32]int64{}}
	ends, err := w.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return o, fmt.Errorf("ask for the ends of %s: %w", topic, err)
	}
	committed, err := w.admin.FetchOffsets(ctx, group)
	if err == nil {
		err = committed.Error()
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return o, fmt.Errorf("ask for the offsets of %s: %w", group, err)
	}
	for _, end := range ends[topic] {
		o.ends[end.Partition] = end.Offset
		if at, ok := committed.Lookup(topic, end.Partition); ok {
			o.committed[end.Partition] = at.At
		}
	}
	return o, nil
}

// lag is the projection's, and fails the test if Kafka does not say.
func (w *world) lag() int64 {
	w.t.Helper()
	o, err := w.offsets(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return o.lag()
}

// settle waits until everything in the topic is committed: each event is then a row or a dead letter. It gives up
// when nothing has moved for a minute.
func (w *world) settle() {
	w.t.Helper()
	w.settleOf(w.topic, w.group)
}

func (w *world) settleOf(topic, group string) {
	w.t.Helper()
	const patience = time.Minute
	left, since := int64(-1), time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
		o, err := w.offsetsOf(ctx, topic, group)
		cancel()
		if err == nil && o.lag() == 0 {
			return
		}
		if err == nil && o.lag() != left {
			left, since = o.lag(), time.Now()
		}
		if time.Since(since) > patience {
			w.t.Fatalf("%d events of %s are not committed and nothing has moved for %v (%v)", left, topic, patience, err)
		}
	}
}
