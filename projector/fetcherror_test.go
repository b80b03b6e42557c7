package projector

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestFetchErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		kind  string // as counted, "" = not at all
		again bool   // the lane starts over
	}{
		"the poll's deadline":       {err: context.DeadlineExceeded},
		"the end":                   {err: context.Canceled},
		"a client that is closed":   {err: kgo.ErrClientClosed, kind: "closed", again: true},
		"a deadline of the group's": {err: &kgo.ErrGroupSession{Err: context.DeadlineExceeded}, kind: "group"},
		"the group refuses":         {err: &kgo.ErrGroupSession{Err: kerr.GroupAuthorizationFailed}, kind: "group"},
		"data loss":                 {err: &kgo.ErrDataLoss{Topic: "t", Partition: 1}, kind: "data_loss"},
		"a batch that is too large": {err: &kgo.ErrDecompressTooLarge{Topic: "t", Partition: 1}, kind: "too_large", again: true},
		"a topic made anew":         {err: kerr.UnknownTopicID, kind: "recreated", again: true},
		"no access":                 {err: kerr.TopicAuthorizationFailed, kind: "broker", again: true},
		"a broker that is busy":     {err: kerr.NotLeaderForPartition, kind: "broker"},
		"a batch that is corrupt":   {err: errors.New("encoded crc does not match"), kind: "other"},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			m, err := newMetrics(registry)
			if err != nil {
				t.Fatal(err)
			}
			cfg := DefaultConfig()
			l := newLane(&cfg, &Projection{Name: "results", Plan: testPlan(t)}, &Deps{Clock: time.Now, Log: zerolog.Nop()}, m, 0)
			l.health.joined.Store(true)
			got := l.fetchError("t", 1, c.err)
			if again := isType[*rejoinError](got); again != c.again || !again && got != nil {
				t.Errorf("got %v, want to start over: %v", got, c.again)
			}
			counted := total(t, registry, "projector_fetch_errors_total")
			if c.kind == "" && (counted != 0 || l.troubled) || c.kind != "" && total(t, registry, "projector_fetch_errors_total", "kind", c.kind) != 1 {
				t.Errorf("counted %v errors, want one of kind %q", counted, c.kind)
			}
			if trouble := !l.health.kafka.since().IsZero(); trouble != (c.kind != "") {
				t.Errorf("in trouble: %v", trouble)
			}
			if !l.health.joined.Load() {
				t.Error("a late report about a past session must not undo that the lane has joined again")
			}
		})
	}
}
