//go:build synctests

package projector

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/mapping"
)

// world is a broker in memory on a network in memory, so that it lives inside a synctest bubble, together with the
// store and the watch over every commit.
type world struct {
	ahead   time.Duration // of the producer's clock
	t       testing.TB
	net     *kfake.VirtualNetwork
	cluster *kfake.Cluster
	faults  *kfake.FaultHandle
	store   *store
	check   *ledgerCheck
	end     map[int32]int64 // records produced by partition
	values  map[place][]byte

	producer *kgo.Client
	mu       sync.Mutex
	produced map[place]time.Time
}

func newWorld(t testing.TB, partitions int32, opts ...kfake.Opt) *world {
	t.Helper()
	w := &world{
		t: t, net: new(kfake.VirtualNetwork), store: newStore(),
		check:  &ledgerCheck{last: map[string]int64{}},
		end:    map[int32]int64{},
		values: map[place][]byte{}, produced: map[place]time.Time{},
	}
	cluster, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.Ports(9092), kfake.ListenFn(w.net.Listen), kfake.SeedTopics(partitions, testTopic),
		kfake.GroupMinSessionTimeout(time.Second),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	w.cluster = cluster
	w.producer, err = kgo.NewClient(
		kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(w.net.DialContext), kgo.DisableClientMetrics(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		t.Fatal(err)
	}
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		w.check.request(w.store, r.(*kmsg.OffsetCommitRequest))
		return nil, nil, false
	})
	return w
}

func (w *world) close() {
	w.producer.Close()
	w.cluster.Close()
}

// produce appends n records to every partition, round robin, value by value.
func (w *world) produce(n int, value func(partition int32, offset int64) []byte, partitions ...int32) {
	w.t.Helper()
	for range n {
		for _, p := range partitions {
			at := place{p, w.end[p]}
			w.end[p]++
			w.values[at] = value(p, at.offset)
			w.mu.Lock()
			w.produced[at] = time.Now()
			w.mu.Unlock()
			w.producer.Produce(context.Background(), &kgo.Record{Topic: testTopic, Partition: p, Timestamp: time.Now().Add(w.ahead), Value: w.values[at]}, func(r *kgo.Record, err error) {
				if err != nil || r.Offset != at.offset {
					w.t.Errorf("produce %v: stored at %d: %v", at, r.Offset, err)
				}
			})
		}
	}
	if err := w.producer.Flush(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

// age returns how long ago a record was produced.
func (w *world) age(partition int32, offset int64) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.produced[place{partition, offset}])
}

// Again is the Records of the world.
func (w *world) Again(_ context.Context, of mapping.Lineage) (*kgo.Record, error) {
	value, ok := w.values[place{of.Partition, of.Offset}]
	if !ok {
		return nil, ErrRecordGone
	}
	return &kgo.Record{Topic: of.Topic, Partition: of.Partition, Offset: of.Offset, Timestamp: of.Timestamp, Value: value}, nil
}

// acknowledgedAll reports whether every produced record is acknowledged.
func (w *world) acknowledgedAll() bool {
	for p, end := range w.end {
		if w.store.acknowledged(p) < end {
			return false
		}
	}
	return true
}

// committed is what the broker holds for the group.
func (w *world) committed() map[int32]int64 {
	got := map[int32]int64{}
	if info := w.cluster.GroupInfo(testGroup); info != nil {
		for p, c := range info.Commits[testTopic] {
			got[p] = c.Offset
		}
	}
	return got
}

// awaitCommits blocks until everything produced is committed. It asks the broker now and then, which takes no time in a
// bubble: a commit that is seen as a request may still be refused.
func (w *world) awaitCommits(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !maps.Equal(w.committed(), w.end) {
		if !sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("committed %v of %v: %w", w.committed(), w.end, ctx.Err())
		}
	}
	return nil
}

// mustBeSound fails the test if any commit broke the invariant.
func (w *world) mustBeSound(t testing.TB) {
	t.Helper()
	for _, e := range w.check.early {
		t.Errorf("early commit: %s", e)
	}
	for _, e := range w.check.backward {
		t.Errorf("commit went back: %s", e)
	}
}

// balanced accepts a stable group of so many members that own so many partitions together, each at least one.
func balanced(members, partitions int) func(*kfake.GroupInfo) bool {
	return func(g *kfake.GroupInfo) bool {
		if g.State != "Stable" || len(g.Members) != members || g.NumAssigned() != partitions {
			return false
		}
		for i := range g.Members {
			if g.Members[i].NumAssigned() == 0 {
				return false
			}
		}
		return true
	}
}

// pass lets the bubble's clock go on.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // costs no time: the clock of a bubble is fake

// testConfig has short times: a bubble's clock makes them free, and a failure stays readable.
func testConfig() Config {
	c := DefaultConfig()
	c.Batch = Limits{Rows: 100, Bytes: 1 << 20, Delay: 50 * time.Millisecond}
	c.InsertTimeout = 2 * time.Second
	c.CommitTimeout = time.Second
	c.RevokeBudget = time.Second
	c.DrainTimeout = 10 * time.Second
	c.SessionTimeout = 6 * time.Second
	c.RebalanceTimeout = 6 * time.Second
	c.HeartbeatInterval = 200 * time.Millisecond
	c.RetryMin, c.RetryMax = 20*time.Millisecond, 200*time.Millisecond
	return c
}

// member is one process of the world.
type member struct {
	*Engine
	registry *prometheus.Registry
}

// newMember builds an engine with one projection of one lane on the world's topic. change may alter everything.
func (w *world) newMember(plan *mapping.Plan, ins Inserter, change func(*Config, *Projection, *Deps)) member {
	w.t.Helper()
	registry := prometheus.NewRegistry()
	cfg := testConfig()
	projection := Projection{Name: "results", Topics: []string{testTopic}, Group: testGroup, Plan: plan, Lanes: 1}
	deps := Deps{
		Kafka:       []kgo.Opt{kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.net.DialContext)},
		NewInserter: func(Projection) (Inserter, error) { return ins, nil },
		DeadLetters: w.store,
		Records:     w,
		Log:         zerolog.Nop(),
		Registerer:  registry,
	}
	if change != nil {
		change(&cfg, &projection, &deps)
	}
	e, err := New(cfg, []Projection{projection}, deps)
	if err != nil {
		w.t.Fatal(err)
	}
	return member{e, registry}
}

// life is a member that runs in the background of a test.
type life struct {
	member
	drain, kill context.CancelFunc
	ended       chan struct{}
	err         error
}

func (m member) live(ctx context.Context) *life {
	l := &life{member: m, ended: make(chan struct{})}
	soft, drain := context.WithCancel(ctx)
	hard, kill := context.WithCancel(context.Background())
	l.drain, l.kill = drain, kill
	go func() {
		defer close(l.ended)
		l.err = m.Run(soft, hard)
	}()
	return l
}

// end drains the member and returns what Run returned.
func (l *life) end() error {
	l.drain()
	<-l.ended
	l.kill()
	return l.err
}

// bubble runs a test in virtual time with a world of its own.
func bubble(t *testing.T, partitions int32, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, partitions)
		defer w.close()
		test(t, w)
	})
}

func event(id uint64, version uint64, name string) []byte {
	return fmt.Appendf(nil, `{"id":%d,"version":%d,"name":%q}`, id, version, name)
}

func plainEvent(p int32, o int64) []byte { return event(uint64(p)<<32|uint64(o), 1, "x") }

func ids(clientID string) func(*Config, *Projection, *Deps) {
	return func(_ *Config, _ *Projection, d *Deps) { d.Kafka = append(d.Kafka, kgo.ClientID(clientID)) }
}

func logTo(log *bytes.Buffer) func(*Config, *Projection, *Deps) {
	return func(_ *Config, _ *Projection, d *Deps) { d.Log = zerolog.New(zerolog.SyncWriter(log)) }
}
