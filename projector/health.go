package projector

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// laneHealth is what Ready and Live know of a lane. Everything in it may be read by anyone at any time.
type laneHealth struct {
	loop, sender pulse
	joined       atomic.Bool            // in the group, with or without partitions
	missing      atomic.Pointer[string] // topics that cannot be read, and why; nil = none

	inserts, parking, rereads, commits streak // the sender's
	kafka                              streak // the poll loop's
	topics                             streak // of who watches the topics
}

func newLaneHealth(log *zerolog.Logger, clock func() time.Time) *laneHealth {
	h := new(laneHealth)
	for s, what := range map[*streak]string{
		&h.inserts: "insert into ClickHouse", &h.parking: "park dead letters", &h.rereads: "read a rejected record again",
		&h.commits: "commit offsets", &h.kafka: "read from Kafka",
		&h.topics: "see the topics and their leaders in Kafka",
	} {
		s.what, s.log, s.clock = what, log, clock
	}
	h.loop.rest()
	h.sender.rest()
	return h
}

// kafkaTrouble returns since when Kafka has been in trouble, or the zero time.
func (h *laneHealth) kafkaTrouble() time.Time {
	reading, seeing := h.kafka.since(), h.topics.since()
	if reading.IsZero() || !seeing.IsZero() && seeing.Before(reading) {
		return seeing
	}
	return reading
}

// pulse is the last sign of life of a goroutine.
type pulse struct{ at atomic.Int64 }

// beat says that the goroutine works and will beat again.
func (p *pulse) beat(now time.Time) { p.at.Store(now.UnixNano()) }

// rest says that the goroutine waits for something to do, for as long as it takes.
func (p *pulse) rest() { p.at.Store(math.MaxInt64) }

// rest ends the pulses of a lane that has stopped.
func (h *laneHealth) rest() {
	h.joined.Store(false)
	h.loop.rest()
	h.sender.rest()
}

// silent returns for how long there was no sign of life.
func (p *pulse) silent(now time.Time) time.Duration {
	return time.Duration(max(0, now.UnixNano()-p.at.Load()))
}

// Ready returns nil if every lane is in its group, sees its topics, and neither ClickHouse, the dead-letter topic nor
// Kafka has been failing for longer than Config.NotReadyAfter. Otherwise the error has one line for each reason.
// A lane without traffic is ready. It is for readiness probes and rollouts: an engine that is not ready needs no
// restart, its retries go on.
func (e *Engine) Ready() error {
	now := e.deps.Clock()
	if !e.running.Load() {
		return errors.New("not running")
	}
	return e.each(func(l *lane) error {
		h := l.health
		var errs []error
		if missing := h.missing.Load(); missing != nil {
			errs = append(errs, errors.New(*missing))
		} else if !h.joined.Load() {
			errs = append(errs, fmt.Errorf("not in the group %s", l.projection.Group))
		}
		for _, s := range []*streak{&h.inserts, &h.parking, &h.rereads, &h.kafka, &h.topics} {
			if since := s.since(); !since.IsZero() && now.Sub(since) >= e.cfg.NotReadyAfter {
				errs = append(errs, fmt.Errorf("cannot %s for %v", s.what, now.Sub(since).Round(time.Second)))
			}
		}
		return errors.Join(errs...)
	})
}

// Live returns nil if every loop has shown a sign of life within Config.StuckAfter. It does not ask whether the loop
// gets anything done: a database that is down is no reason to kill the process. It is for liveness probes.
func (e *Engine) Live() error {
	now := e.deps.Clock()
	return e.each(func(l *lane) error {
		var errs []error
		for name, p := range map[string]*pulse{"poll loop": &l.health.loop, "sender": &l.health.sender} {
			if silent := p.silent(now); silent > e.cfg.StuckAfter {
				errs = append(errs, fmt.Errorf("the %s has not moved for %v", name, silent.Round(time.Second)))
			}
		}
		return errors.Join(errs...)
	})
}

// each asks every lane and names it in what it answers.
func (e *Engine) each(ask func(*lane) error) error {
	var errs []error
	for _, l := range e.lanes {
		if err := ask(l); err != nil {
			errs = append(errs, fmt.Errorf("projection %s lane %d: %w", l.projection.Name, l.number, err))
		}
	}
	return errors.Join(errs...)
}
