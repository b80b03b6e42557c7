package deadletter_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/projector"
)

// TestParkInAnOutage: each kind of outage ends with the timeout, is known to
// pass, and when it has passed the same letters are parked.
func TestParkInAnOutage(t *testing.T) {
	for _, c := range []struct {
		name   string
		outage func(*kfake.Cluster) (over func())
	}{
		{"no answer", func(c *kfake.Cluster) func() {
			silent := true
			var mu sync.Mutex
			c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				mu.Lock()
				defer mu.Unlock()
				if silent {
					c.KeepControl()
				}
				return nil, nil, silent
			})
			return func() { mu.Lock(); silent = false; mu.Unlock() }
		}},
		{"too few replicas", func(c *kfake.Cluster) func() {
			return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1}).Remove
		}},
		{"no leader", func(c *kfake.Cluster) func() {
			return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1}).Remove
		}},
		{"metadata does not load", func(c *kfake.Cluster) func() {
			return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "results-dlq", Err: kerr.LeaderNotAvailable, Count: -1}).Remove
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results", "results-dlq"))
			p := newParker(t, deadletter.Config{Timeout: 500 * time.Millisecond}, cluster.ListenAddrs())
			over := c.outage(cluster)
			letters := []projector.Letter{letter(0, []byte("x"))}
			start := time.Now()
			err := p.Park(t.Context(), letters)
			if ie, ok := errors.AsType[*projector.InsertError](err); !ok || ie.Class != projector.Transient {
				t.Fatalf("Park: %v, want a transient error", err)
			}
			if took := time.Since(start); took >= deadletter.DefaultTimeout/2 {
				t.Errorf("Park held on for %s", took)
			}
			over()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for err = p.Park(ctx, letters); err != nil && ctx.Err() == nil; err = p.Park(ctx, letters) {
				t.Logf("after the outage: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestParkWithoutBroker(t *testing.T) {
	p := newParker(t, deadletter.Config{Timeout: 200 * time.Millisecond}, []string{"127.0.0.1:1"})
	err := p.Park(t.Context(), []projector.Letter{letter(0, []byte("x"))})
	if ie, ok := errors.AsType[*projector.InsertError](err); !ok || ie.Class != projector.Transient {
		t.Errorf("Park: %v, want a transient error", err)
	}
}

func TestParkRefusedByTheBroker(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results", "results-dlq"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	p := newParker(t, deadletter.Config{}, cluster.ListenAddrs())
	err := p.Park(t.Context(), []projector.Letter{letter(0, []byte("x"))})
	if _, ok := errors.AsType[*projector.InsertError](err); ok || !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("Park: %v, want the broker's refusal, not counted as trouble that passes", err)
	}
}
