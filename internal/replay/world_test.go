package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a broker in the test binary with the dead letters of results, and a table in memory.
type world struct {
	t       *testing.T
	opts    []kgo.Opt
	parker  *deadletter.Parker
	letters *deadletter.Reader
	admin   *kafka.Admin
	plan    *mapping.Plan

	mu     sync.Mutex
	table  map[string]string // version by identity
	rows   []string          // every one that was inserted, with its lineage
	refuse func(rows *mapping.Rows, i int) error
	atWork func() // what happens just before a replay is killed
}

func newWorld(t *testing.T, partitions int32) *world {
	t.Helper()
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(partitions, "results", "results-dlq"))
	w := &world{t: t, opts: []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)}, table: map[string]string{}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	w.parker, err = deadletter.NewParker(deadletter.Config{}, w.opts...)
	must(err)
	t.Cleanup(w.parker.Close)
	w.letters, err = deadletter.NewReader(deadletter.Config{}, w.opts...)
	must(err)
	t.Cleanup(w.letters.Close)
	w.admin, err = kafka.NewAdmin(w.opts...)
	must(err)
	t.Cleanup(w.admin.Close)
	typ := chschema.Type{Kind: chschema.KindUInt64}
	w.plan, err = mapping.Compile(mapping.Spec{
		Columns:  []mapping.Column{{Name: "id", From: "id", Type: typ}, {Name: "version", From: "version", Type: typ}},
		Identity: []string{"id"}, Version: "version", Generation: 1,
	})
	must(err)
	return w
}

// letter is one of an event that the mapping takes by now, or does not take if its ID is 0.
func letter(partition int32, offset int64, id int) projector.Letter {
	value := fmt.Appendf(nil, `{"id":%d,"version":1}`, id)
	if id == 0 {
		value = []byte(`{"id":"none","version":1}`)
	}
	return projector.Letter{
		Topic: "results", Partition: partition, Offset: offset, Timestamp: time.UnixMilli(1_780_000_000_000 + offset), Projection: "fitness", Value: value,
		Error: &mapping.Error{Class: mapping.ClassRange, Column: "id"},
	}
}

func (w *world) park(letters ...projector.Letter) {
	w.t.Helper()
	if err := w.parker.Park(w.t.Context(), letters); err != nil {
		w.t.Fatal(err)
	}
}

// copies counts letters by their place and number of replays.
func (w *world) copies() map[string]int {
	w.t.Helper()
	n := map[string]int{}
	w.each(func(l *deadletter.Letter) {
		n[fmt.Sprintf("%d/%d after %d", l.Info.Partition, l.Info.Offset, l.Info.Replays)]++
	})
	return n
}

func (w *world) each(do func(l *deadletter.Letter)) {
	w.t.Helper()
	ranges, err := w.letters.Since(w.t.Context(), "results-dlq", time.Time{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, o := range ranges {
		if err := w.letters.Scan(w.t.Context(), "results-dlq", o.Partition, o.Start, o.End, func(l *deadletter.Letter) error {
			do(l)
			return nil
		}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// command is what one invocation of the command says.
type command struct {
	target  Target
	options Options
	batch   int
}

func (w *world) command() command {
	return command{target: Target{
		Projection: "fitness", Topic: "results-dlq", Source: "results", Group: "projector.fitness.g1", Plan: w.plan, Key: []string{"id"}, Version: "version",
		Configured: []string{"fitness", "other"},
	}, batch: 1000}
}

// job makes the job of a command, each in a process of its own as far as it knows.
func (w *world) job(c command) *Job {
	engine := projector.DefaultConfig()
	engine.Batch.Rows, engine.Batch.Delay = c.batch, 20*time.Millisecond
	return New(c.target, c.options, Deps{
		Kafka: w.opts, Admin: w.admin, Letters: w.letters, Parker: w.parker, Engine: engine, Log: zerolog.Nop(),
		NewInserter: func() (Inserter, error) { return &memory{w}, nil },
	})
}

func (w *world) planned(j *Job, id string) *Plan {
	w.t.Helper()
	p, err := j.Plan(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if p.ID == "" {
		p.ID = id
	}
	return p
}

// replay is a whole command.
func (w *world) replay(c command, id string) (*Plan, Result) {
	w.t.Helper()
	j := w.job(c)
	p := w.planned(j, id)
	r, err := j.Run(w.t.Context(), w.t.Context(), p)
	if err != nil {
		w.t.Fatal(err)
	}
	return p, r
}

// killed is a command that is killed in the middle of the insert of an ID; everything before that is done.
func (w *world) killed(c command, id string, at int) {
	w.t.Helper()
	c.batch = 1
	hard, kill := context.WithCancel(w.t.Context())
	defer kill()
	w.refuse = func(rows *mapping.Rows, i int) error {
		if rows.Format(i, "id") != fmt.Sprint(at) {
			return nil
		}
		if w.atWork != nil {
			w.atWork()
			w.atWork = nil
		}
		kill()
		return &projector.InsertError{Class: projector.Transient, Err: errors.New("killed")}
	}
	j := w.job(c)
	p := w.planned(j, id)
	if _, err := j.Run(w.t.Context(), hard, p); err == nil {
		w.t.Fatal("the replay was not killed")
	}
	w.refuse = nil
	w.expel(j.Group())
	if err := j.AwaitTurn(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// expel does what the group does with dead members when their session is over. That is long in these tests: a replay
// that is alive must not lose its own on a machine that is busy.
func (w *world) expel(group string) {
	w.t.Helper()
	client, err := kgo.NewClient(w.opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	described, err := kadm.NewClient(client).DescribeGroups(w.t.Context(), group)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range described[group].Members {
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Group, r.Members = group, []kmsg.LeaveGroupRequestMember{{MemberID: m.MemberID}}
		if _, err := r.RequestWith(w.t.Context(), client); err != nil {
			w.t.Fatal(err)
		}
	}
}

// memory is an Inserter.
type memory struct{ *world }

func (m *memory) Insert(_ context.Context, b projector.Batch) error {
	for i := b.From; i < b.To && m.refuse != nil; i++ {
		if err := m.refuse(b.Rows, i); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := b.From; i < b.To; i++ {
		at := b.Rows.Lineage(i)
		m.table[b.Rows.Identity(i)] = b.Rows.Version(i)
		m.world.rows = append(m.world.rows, fmt.Sprintf("%s of %s/%d@%d, %s", b.Rows.Identity(i), at.Topic, at.Partition, at.Offset, at.Origin))
	}
	return nil
}

func (m *memory) Close() error { return nil }

func (m *memory) Superseded(_ context.Context, rows *mapping.Rows, from, to int, _ []string, _ string) ([]bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	answers := make([]bool, to-from)
	for i := range answers {
		have, ok := m.table[rows.Identity(from+i)]
		answers[i] = ok && have >= rows.Version(from+i)
	}
	return answers, nil
}
