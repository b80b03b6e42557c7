//go:build synctests

package projector

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// two makes an engine with two projections over topics a and b.
func (w *world) two(t *testing.T, inserters map[string]Inserter, change func(*Config)) member {
	t.Helper()
	for _, topic := range []string{"a", "b"} {
		if err := w.cluster.CreateTopic(topic, 2, nil); err != nil {
			t.Fatal(err)
		}
	}
	cfg := testConfig()
	if change != nil {
		change(&cfg)
	}
	registry := prometheus.NewRegistry()
	var projections []Projection
	for _, name := range []string{"a", "b"} {
		projections = append(projections, Projection{Name: name, Topics: []string{name}, Group: "g." + name, Plan: testPlan(t), Lanes: 2})
	}
	e, err := New(cfg, projections, Deps{
		Kafka:       []kgo.Opt{kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.net.DialContext)},
		NewInserter: func(p Projection) (Inserter, error) { return inserters[p.Name], nil },
		DeadLetters: w.store, Records: w, Log: zerolog.Nop(), Registerer: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	return member{e, registry}
}

func (w *world) send(t *testing.T, topic string) {
	t.Helper()
	for i := range 100 {
		w.producer.Produce(t.Context(), &kgo.Record{Topic: topic, Partition: int32(i % 2), Value: plainEvent(0, int64(i))}, nil)
	}
	if err := w.producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestFailingTableHoldsUpOnlyItself(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		accept := insertFunc(func(context.Context, Batch) error { return nil })
		stalled := &valve{next: accept, open: make(chan struct{})}
		m := w.two(t, map[string]Inserter{"a": stalled, "b": accept}, nil).live(t.Context())
		defer m.kill()
		pass(10 * time.Second) // the groups are in balance
		for range 5 {
			w.send(t, "a")
			w.send(t, "b")
			pass(20 * time.Second)
		}
		if a, b := total(t, m.registry, "projector_rows_total", "projection", "a"), total(t, m.registry, "projector_rows_total", "projection", "b"); a != 0 || b != 500 {
			t.Errorf("a inserted %v and b %v, want 0 and 500", a, b)
		}
		if err := m.Ready(); err == nil || strings.Contains(err.Error(), "projection b") {
			t.Errorf("want a alone to be reported: %v", err)
		}
		close(stalled.open)
		pass(10 * time.Second)
		if a := total(t, m.registry, "projector_rows_total", "projection", "a"); a != 500 {
			t.Errorf("a inserted %v, want 500", a)
		}
		if err := errors.Join(m.Ready(), m.end()); err != nil {
			t.Error(err)
		}
	})
}

func TestFatalErrorDrainsTheOthers(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		fatal := insertFunc(func(context.Context, Batch) error {
			return &InsertError{Class: Fatal, Code: 60, Message: "Table reporting.a_g1 does not exist"}
		})
		var inFlight atomic.Int64
		slow := insertFunc(func(ctx context.Context, b Batch) error {
			inFlight.Add(1)
			if !sleep(ctx, time.Second) {
				return ctx.Err()
			}
			return nil
		})
		m := w.two(t, map[string]Inserter{"a": fatal, "b": slow}, nil).live(t.Context())
		defer m.kill()
		pass(10 * time.Second)
		w.send(t, "b")
		pass(100 * time.Millisecond)
		w.send(t, "a")
		<-m.ended
		if inFlight.Load() == 0 {
			t.Error("b was not inserting: the test shows nothing")
		}
		const want = "insert 50 rows of projection a: fatal error 60: Table reporting.a_g1 does not exist"
		if m.err == nil || !strings.Contains(m.err.Error(), want) || strings.Contains(m.err.Error(), "projection b") {
			t.Errorf("got  %v\nwant …%s", m.err, want)
		}
		var committed [2]int64
		for i, group := range []string{"g.a", "g.b"} {
			for _, c := range w.cluster.GroupInfo(group).Commits[group[2:]] {
				committed[i] += c.Offset
			}
		}
		if committed != [2]int64{0, 100} {
			t.Errorf("committed %v, want nothing of a and all of b", committed)
		}
	})
}
