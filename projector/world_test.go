package projector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/mapping"
)

const (
	testTopic = "results"
	testGroup = "projector.results.g1"
)

// testPlan maps {"id": 1, "version": 2, "name": "x"}.
func testPlan(tb testing.TB) *mapping.Plan {
	tb.Helper()
	plan, err := mapping.Compile(mapping.Spec{
		Columns: []mapping.Column{
			{Name: "id", From: "id", Type: chschema.Type{Kind: chschema.KindUInt64}},
			{Name: "version", From: "version", Type: chschema.Type{Kind: chschema.KindUInt64}},
			{Name: "name", From: "name", Type: chschema.Type{Kind: chschema.KindString}},
		},
		Identity:   []string{"id"},
		Version:    "version",
		Generation: 1,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return plan
}

func event(id uint64, version uint64, name string) []byte {
	return fmt.Appendf(nil, `{"id":%d,"version":%d,"name":%q}`, id, version, name)
}

// place is a record's place in the test's topic.
type place struct {
	partition int32
	offset    int64
}

// store stands for ClickHouse and the dead-letter topic together: it knows which records were acknowledged, and by
// which of the two.
type store struct {
	mu      sync.Mutex
	rows    map[place]int
	letters map[place]Letter
	prefix  map[int32]int64 // every record of the partition below it is acknowledged
	changed chan struct{}   // closed and replaced at every acknowledgment
}

func newStore() *store {
	return &store{
		rows: map[place]int{}, letters: map[place]Letter{}, prefix: map[int32]int64{},
		changed: make(chan struct{}),
	}
}

// insert acknowledges the rows of b.
func (s *store) insert(b Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := b.From; i < b.To; i++ {
		at := b.Rows.Lineage(i)
		s.rows[place{at.Partition, at.Offset}]++
	}
	s.advance()
}

// Park acknowledges letters.
func (s *store) Park(_ context.Context, letters []Letter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range letters {
		s.letters[place{l.Partition, l.Offset}] = l
	}
	s.advance()
	return nil
}

func (s *store) advance() {
	for p := range maps.Keys(s.prefix) {
		s.prefix[p] = s.reach(p, s.prefix[p])
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *store) reach(partition int32, from int64) int64 {
	for {
		at := place{partition, from}
		if _, parked := s.letters[at]; !parked && s.rows[at] == 0 {
			return from
		}
		from++
	}
}

// acknowledged returns the offset below which every record of the partition is acknowledged.
func (s *store) acknowledged(partition int32) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prefix[partition] = s.reach(partition, s.prefix[partition])
	return s.prefix[partition]
}

// acknowledgedFrom returns the offset up to which every record from the given one on is acknowledged.
func (s *store) acknowledgedFrom(partition int32, from int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reach(partition, from)
}

// has reports whether a record was inserted or parked.
func (s *store) has(partition int32, offset int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reach(partition, offset) > offset
}

// patience is how long, by the bubble's clock, a test waits for what must happen.
const patience = time.Hour

// await blocks until ok holds, which is asked again after every acknowledgment.
func (s *store) await(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// counts returns how many different records were inserted and parked, and how often a record was inserted again.
func (s *store) counts() (inserted, parked, repeated int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.rows {
		repeated += n - 1
	}
	return len(s.rows), len(s.letters), repeated
}

// ledgerCheck watches every offset commit at the broker.
type ledgerCheck struct {
	mu       sync.Mutex
	commits  int
	early    []string // commits ahead of what was acknowledged
	backward []string // commits of one member that went back
	seen     []commitSeen
	last     map[string]int64
}

// commitSeen is one partition of one commit request.
type commitSeen struct {
	member    string // begins with the client ID
	partition int32
	offset    int64
}

func (c *ledgerCheck) request(s *store, req *kmsg.OffsetCommitRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			c.commits++
			c.seen = append(c.seen, commitSeen{req.MemberID, p.Partition, p.Offset})
			if have := s.acknowledged(p.Partition); p.Offset > have {
				c.early = append(c.early, fmt.Sprintf("partition %d: offset %d committed, acknowledged up to %d", p.Partition, p.Offset, have))
			}
			owner := fmt.Sprintf("%s/%d/%d", req.MemberID, req.Generation, p.Partition)
			if p.Offset < c.last[owner] {
				c.backward = append(c.backward, fmt.Sprintf("partition %d: offset %d committed after %d", p.Partition, p.Offset, c.last[owner]))
			}
			c.last[owner] = p.Offset
		}
	}
}

// found returns how many commits were early.
func (c *ledgerCheck) found() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.early)
}

// world is a broker in memory on a network in memory, so that it lives inside a synctest bubble, together with the
// store and the watch over every commit.
type world struct {
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
			w.producer.Produce(context.Background(), &kgo.Record{Topic: testTopic, Partition: p, Value: w.values[at]}, func(r *kgo.Record, err error) {
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

// Fetch is the Records of the world.
func (w *world) Fetch(_ context.Context, topic string, partition int32, offset int64) (*kgo.Record, error) {
	value, ok := w.values[place{partition, offset}]
	if !ok {
		return nil, ErrRecordGone
	}
	return &kgo.Record{Topic: topic, Partition: partition, Offset: offset, Value: value}, nil
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

// total adds up every series of a counter or gauge, or of those with the given label values.
func total(tb testing.TB, g prometheus.Gatherer, name string, labels ...string) float64 {
	tb.Helper()
	families, err := g.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			for i := 0; i < len(labels); i += 2 {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				if !found {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// insertFunc is an Inserter without state.
type insertFunc func(ctx context.Context, b Batch) error

func (f insertFunc) Insert(ctx context.Context, b Batch) error { return f(ctx, b) }
func (insertFunc) Close() error                                { return nil }

// link is one member's way to the broker, which can be cut off.
type link struct {
	net *kfake.VirtualNetwork

	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func (l *link) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("network is unreachable")}
	}
	c, err := l.net.DialContext(ctx, network, address)
	if err == nil {
		l.conns = append(l.conns, c)
	}
	return c, err
}

// sever closes every connection and refuses new ones until heal.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}
