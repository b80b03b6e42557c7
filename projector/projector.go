// Package projector is the engine: it polls Kafka, maps records to rows, inserts them into ClickHouse and commits
// offsets, so that an offset N committed for a partition implies that every record below N is acknowledged by
// ClickHouse or by the dead-letter topic. docs/guarantees.md says what follows from that and what does not.
package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/mapping"
)

// Inserter inserts into the table of one projection. A lane has its own and calls it from one goroutine.
type Inserter interface {
	// Insert returns nil only when all rows of b are acknowledged, and inserts all of them or none. It must end soon
	// after ctx does. It returns an *InsertError where it knows what the error asks for.
	Insert(ctx context.Context, b Batch) error
	Close() error
}

// Batch is the rows [From,To) of Rows.
type Batch struct {
	Rows     *mapping.Rows
	From, To int
	// Token is the same for every attempt to insert the same rows, and different for all others, those of an earlier
	// or another process included. Sent as insert_deduplication_token it lets ClickHouse recognise a repeated
	// attempt, and nothing else.
	Token string
}

// DeadLetters keeps records that cannot become rows.
type DeadLetters interface {
	// Park returns nil only when every letter is acknowledged. After an error all of them are parked again.
	Park(ctx context.Context, letters []Letter) error
}

// Records reads single records again.
type Records interface {
	// Again returns the record that a row was made from. It is ErrRecordGone if that is no longer at its place, or
	// another one is, which its timestamp tells.
	Again(ctx context.Context, of mapping.Lineage) (*kgo.Record, error)
}

// Deps is what an Engine needs from outside. Refresh and Clock may be nil.
type Deps struct {
	Kafka       []kgo.Opt                                          // brokers, TLS, SASL; the engine adds the rest
	NewInserter func(p Projection) (Inserter, error)               // one for each lane, closed by the engine
	DeadLetters DeadLetters                                        // shared by all lanes
	Records     Records                                            // shared by all lanes
	Refresh     func(ctx context.Context, projection string) error // reads the table's schema again; nil if it still fits
	Log         zerolog.Logger
	Registerer  prometheus.Registerer
	Clock       func() time.Time // time.Now if nil
}

// Engine runs projections. New makes one; Run may be called once.
type Engine struct {
	cfg     Config
	deps    Deps
	lanes   []*lane
	running atomic.Bool
}

// New checks everything and reports all that is wrong at once. It connects to nothing and starts nothing.
func New(cfg Config, projections []Projection, deps Deps) (*Engine, error) {
	errs := []error{cfg.check()}
	names := map[string]bool{}
	projections = slices.Clone(projections)
	for i := range projections {
		p := &projections[i]
		errs = append(errs, p.check())
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("projection %q is named twice", p.Name))
		}
		names[p.Name] = true
		if p.Origin == "" {
			p.Origin = "stream"
		}
		if p.Append == nil {
			p.Append = p.appendEvent
		}
	}
	if len(projections) == 0 {
		errs = append(errs, errors.New("no projection to run"))
	}
	if deps.NewInserter == nil || deps.DeadLetters == nil || deps.Records == nil || deps.Registerer == nil {
		errs = append(errs, errors.New("an inserter, dead letters, records and a registerer are needed"))
	}
	if deps.Refresh == nil {
		deps.Refresh = func(context.Context, string) error { return nil }
	}
	if deps.Clock == nil {
		deps.Clock = time.Now
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	m, err := newMetrics(deps.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	e := &Engine{cfg: cfg, deps: deps}
	for i := range projections {
		for number := range projections[i].Lanes {
			e.lanes = append(e.lanes, newLane(&e.cfg, &projections[i], &e.deps, m, number))
		}
	}
	if err := deps.Registerer.Register(laneCollector{e}); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return e, nil
}
