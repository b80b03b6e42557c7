package projector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// clock is set by hand.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time          { return c.now }
func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }

func TestHealth(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(c *clock, h *laneHealth)
		ready, live string // part of the error, "" = none
	}{
		"working":      {func(*clock, *laneHealth) {}, "", ""},
		"not joined":   {func(_ *clock, h *laneHealth) { h.joined.Store(false) }, "projection results lane 0: not in the group g", ""},
		"failing":      {func(c *clock, h *laneHealth) { h.inserts.fail(errors.New("x")); c.advance(59 * time.Second) }, "", ""},
		"failing long": {func(c *clock, h *laneHealth) { h.inserts.fail(errors.New("x")); c.advance(time.Minute) }, "cannot insert into ClickHouse for 1m0s", ""},
		"works again": {func(c *clock, h *laneHealth) {
			h.inserts.fail(errors.New("x"))
			c.advance(time.Minute)
			h.inserts.over()
		}, "", ""},
		"letters fail": {func(c *clock, h *laneHealth) { h.parking.fail(errors.New("x")); c.advance(time.Minute) }, "cannot park dead letters for 1m0s", ""},
		"Kafka fails":  {func(c *clock, h *laneHealth) { h.kafka.fail(errors.New("x")); c.advance(time.Minute) }, "cannot read from Kafka for 1m0s", ""},
		"no leader":    {func(c *clock, h *laneHealth) { h.topics.fail(errors.New("x")); c.advance(time.Minute) }, "cannot see the topics and their leaders in Kafka for 1m0s", ""},
		"no topic": {func(_ *clock, h *laneHealth) {
			missing := "topic results: UNKNOWN_TOPIC_OR_PARTITION"
			h.missing.Store(&missing)
		}, "topic results: UNKNOWN_TOPIC_OR_PARTITION", ""},
		"sender at rest": {func(c *clock, h *laneHealth) {
			h.sender.rest()
			c.advance(24 * time.Hour)
			h.loop.beat(c.now)
		}, "", ""},
		"loop stuck":   {func(c *clock, h *laneHealth) { h.sender.rest(); c.advance(3*time.Minute + time.Second) }, "", "the poll loop has not moved for 3m1s"},
		"sender stuck": {func(c *clock, h *laneHealth) { c.advance(4 * time.Minute); h.loop.beat(c.now) }, "", "the sender has not moved for 4m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			now := &clock{now: time.Unix(1_700_000_000, 0)}
			e, err := New(DefaultConfig(), []Projection{{Name: "results", Topics: []string{"t"}, Group: "g", Plan: testPlan(t), Lanes: 1}}, Deps{
				NewInserter: func(Projection) (Inserter, error) { return nil, nil }, DeadLetters: nowhere{}, Records: nowhere{},
				Log: zerolog.Nop(), Registerer: prometheus.NewRegistry(), Clock: now.Now,
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Ready(); err == nil {
				t.Error("ready before Run")
			}
			if err := e.Live(); err != nil {
				t.Errorf("not alive before Run: %v", err)
			}
			e.running.Store(true)
			h := e.lanes[0].health
			h.joined.Store(true)
			h.loop.beat(now.now)
			h.sender.beat(now.now)
			c.change(now, h)
			for what, got := range map[string]struct {
				err  error
				want string
			}{"Ready": {e.Ready(), c.ready}, "Live": {e.Live(), c.live}} {
				if got.want == "" && got.err != nil || got.want != "" && (got.err == nil || !strings.Contains(got.err.Error(), got.want)) {
					t.Errorf("%s: got %v, want %q", what, got.err, got.want)
				}
			}
		})
	}
}

func TestStreakIsAFewLines(t *testing.T) {
	now := &clock{now: time.Unix(1_700_000_000, 0)}
	var out bytes.Buffer
	log := zerolog.New(&out)
	s := &streak{what: "insert", log: &log, clock: now.Now}
	lines := func() string {
		defer out.Reset()
		return out.String()
	}
	s.over() // nothing to end
	if got := lines(); got != "" {
		t.Errorf("an untroubled streak logged %s", got)
	}
	s.fail(errors.New("refused"))
	if got, want := lines(), `{"level":"warn","error":"refused","message":"cannot insert: trying again until it works"}`+"\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	for range 299 {
		now.advance(time.Second)
		s.fail(errors.New("refused"))
	}
	if got := lines(); got != "" {
		t.Errorf("within five minutes it logged %s", got)
	}
	now.advance(time.Second)
	s.fail(errors.New("reset"))
	if got, want := lines(), `{"level":"warn","error":"reset","attempts":301,"for_ms":300000,"message":"still cannot insert"}`+"\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	now.advance(time.Minute)
	s.quiet(now.now, 2*time.Minute)
	if got := lines(); got != "" {
		t.Errorf("a failure a minute ago is not over, but: %s", got)
	}
	now.advance(time.Minute)
	s.quiet(now.now, 2*time.Minute)
	if got, want := lines(), `{"level":"info","attempts":301,"for_ms":420000,"message":"can insert again"}`+"\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	if !s.since().IsZero() {
		t.Error("still in trouble")
	}
}

func TestClassify(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want Class
		text string
	}{
		"an error of the adapter": {fmt.Errorf("insert into t: %w", &InsertError{Class: Rejected, Code: 469, Message: "violated"}), Rejected, "insert into t: rejected error 469: violated"},
		"without a code":          {&InsertError{Class: Transient, Err: errors.New("broken pipe")}, Transient, "transient error: broken pipe"},
		"a deadline":              {fmt.Errorf("read: %w", context.DeadlineExceeded), Transient, "read: context deadline exceeded"},
		"anything else":           {errors.New("?"), Unknown, "?"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := classify(c.err); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if got := c.err.Error(); got != c.text {
				t.Errorf("got %q, want %q", got, c.text)
			}
		})
	}
	if got := Class(99).String(); got != "class(99)" {
		t.Error(got)
	}
}

func TestLetterOwnsItsMemory(t *testing.T) {
	r := &kgo.Record{
		Topic: "t", Partition: 1, Offset: 2, Key: []byte("key"), Value: []byte("value"),
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("header")}},
	}
	l := letter("results", r, nil)
	for _, b := range [][]byte{r.Key, r.Value, r.Headers[0].Value} {
		clear(b)
	}
	r.Headers[0] = kgo.RecordHeader{}
	if got := fmt.Sprintf("%s %s %s=%s", l.Key, l.Value, l.Headers[0].Key, l.Headers[0].Value); got != "key value h=header" {
		t.Errorf("got %q after the record's memory was reused", got)
	}
	if l.size() != len("key")+len("value")+len("h")+len("header") {
		t.Errorf("size %d", l.size())
	}
	if tombstone := letter("results", &kgo.Record{}, nil); tombstone.Value != nil || tombstone.Key != nil {
		t.Error("a null became an empty text")
	}
	if empty := letter("results", &kgo.Record{Value: []byte{}}, nil); empty.Value == nil {
		t.Error("an empty text became null")
	}
}
