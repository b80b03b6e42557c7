package main

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/ops"
)

// How often the servers are asked at most, however many people look.
const (
	everyOffsets = 3 * time.Second
	everyStored  = 5 * time.Second  // reads columns of the whole table
	everyLetters = 15 * time.Second // reads up to 10,000 letters
	everyOthers  = 15 * time.Second // operations, findings of comparisons
	everySchema  = time.Minute      // changes with deployments
	pageTimeout  = 10 * time.Second
)

// page gathers what the status page shows. While nobody looks it asks Kafka
// for the lag, for the charts, and else nothing.
type page struct {
	build   ops.Build
	started time.Time
	all     stations
	asked   []*askedProjection
	others  *ops.Question[[]pageOperation]
	config  string
	history *ops.History
}

// askedProjection is what the servers are asked about one projection.
type askedProjection struct {
	station *station
	offsets *ops.Question[[]kafka.PartitionLag]
	stored  *ops.Question[[]storedRow]
	letters *ops.Question[[]deadletter.Stats]
	found   *ops.Question[findings]
	schema  *ops.Question[difference]
}

// pageStatus is what GET /api/status answers.
type pageStatus struct {
	Now         time.Time        `json:"now"`
	Build       ops.Build        `json:"build"`
	Started     time.Time        `json:"started"`
	NotReady    []string         `json:"not_ready"` // as /readyz has it
	NotLive     []string         `json:"not_live"`  // as /livez has it
	Projections []pageProjection `json:"projections"`
	// Operations are those that go on, failed, or wait for somebody's approval
	// or verification.
	Operations    section[[]pageOperation] `json:"operations"`
	Configuration string                   `json:"configuration"` // as config print has it
}

// pageProjection is one projection. Status is what the status command prints.
type pageProjection struct {
	Status   *projectionStatus     `json:"status"`
	Asked    map[string]*time.Time `json:"asked_at"` // part of the status -> when; nil: never
	Lanes    int                   `json:"lanes"`    // of this process; 0 until it knows
	NotReady []string              `json:"not_ready"`
	Schema   section[difference]   `json:"schema"` // Data is what schema check prints
}

// section is a part of the page that only a server knows.
type section[T any] struct {
	Data    *T         `json:"data"` // nil: unknown
	Unknown string     `json:"unknown,omitempty"`
	Asked   *time.Time `json:"asked_at"`
}

func newSection[T any](a ops.Answer[T]) (s section[T]) {
	s.Asked = timeOf(a.At)
	if a.Err != nil {
		s.Unknown = a.Err.Error()
	} else {
		s.Data = &a.Value
	}
	return s
}

// timeOf is nil for no time.
func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func newPage(build ops.Build, all stations, q *questions, metrics prometheus.Gatherer, log zerolog.Logger) (*page, error) {
	text, err := q.cfg.YAML()
	if err != nil {
		return nil, err
	}
	p := &page{build: build, started: time.Now(), all: all, config: string(text)}
	for _, s := range all {
		p.asked = append(p.asked, &askedProjection{
			station: s,
			offsets: about(everyOffsets, s.projection, q.offsets),
			stored:  about(everyStored, s.projection, q.stored),
			letters: about(everyLetters, s.projection, q.parked),
			found:   about(everyOthers, s.projection, q.found),
			schema:  about(everySchema, s.projection, q.drift),
		})
	}
	p.others = ops.NewQuestion(everyOthers, pageTimeout, q.operations)
	p.history = ops.NewHistory(metrics, p.lags, log)
	return p, nil
}

// about is a question about one projection.
func about[T any](every time.Duration, p *config.Projection, ask func(context.Context, *config.Projection) (T, error)) *ops.Question[T] {
	return ops.NewQuestion(every, pageTimeout, func(ctx context.Context) (T, error) { return ask(ctx, p) })
}

// start asks and samples until the function that it returns is called.
func (p *page) start() (stop func()) {
	works := []func(context.Context){p.history.Run, p.others.Run}
	for _, a := range p.asked {
		works = append(works, a.offsets.Run, a.stored.Run, a.letters.Run, a.found.Run, a.schema.Run)
	}
	return beside(context.Background(), works...)
}

// status is what the page shows now.
func (p *page) status(ctx context.Context) any {
	s := pageStatus{
		Now: time.Now(), Build: p.build, Started: p.started, NotReady: orEmpty(p.all.Ready()), NotLive: orEmpty(p.all.Live()),
		Projections: make([]pageProjection, len(p.asked)), Configuration: p.config,
	}
	var waiting sync.WaitGroup
	waiting.Go(func() { s.Operations = newSection(p.others.Answer(ctx)) })
	for i, a := range p.asked {
		waiting.Go(func() { s.Projections[i] = a.status(ctx) })
	}
	waiting.Wait()
	return s
}

func (a *askedProjection) status(ctx context.Context) pageProjection {
	var (
		waiting sync.WaitGroup
		offsets ops.Answer[[]kafka.PartitionLag]
		stored  ops.Answer[[]storedRow]
		letters ops.Answer[[]deadletter.Stats]
		found   ops.Answer[findings]
		schema  ops.Answer[difference]
	)
	waiting.Go(func() { offsets = a.offsets.Answer(ctx) })
	waiting.Go(func() { stored = a.stored.Answer(ctx) })
	waiting.Go(func() { letters = a.letters.Answer(ctx) })
	waiting.Go(func() { found = a.found.Answer(ctx) })
	waiting.Go(func() { schema = a.schema.Answer(ctx) })
	waiting.Wait()
	s := a.station
	return pageProjection{
		Status: newStatus(s.cfg, s.projection, answers{
			offsets: offsets.Value, offsetsErr: offsets.Err,
			stored: stored.Value, storedErr: stored.Err,
			letters: letters.Value, lettersErr: letters.Err,
			found: found.Value, foundErr: found.Err,
		}),
		Asked:    map[string]*time.Time{partOffsets: timeOf(offsets.At), partStored: timeOf(stored.At), partLetters: timeOf(letters.At), partFound: timeOf(found.At)},
		Lanes:    int(s.lanes.Load()),
		NotReady: orEmpty(s.ready()),
		Schema:   newSection(schema),
	}
}

// lags is what the charts of the lag are made of.
func (p *page) lags(ctx context.Context) (all []ops.Lag) {
	for _, a := range p.asked {
		for _, l := range a.offsets.Answer(ctx).Value {
			all = append(all, ops.Lag{Projection: a.station.projection.Name, Topic: l.Topic, Partition: l.Partition, Records: l.Lag()})
		}
	}
	return all
}

// past is what the charts show.
func (p *page) past(context.Context) any { return p.history.Past() }
