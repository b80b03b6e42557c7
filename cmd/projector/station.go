package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/offsets"
	"github.com/chprojector/projector/internal/ops"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

// shared is what the projections of one process have in common.
type shared struct {
	cfg     *config.Config
	log     zerolog.Logger
	kafka   []kgo.Opt
	admin   *kafka.Admin
	control control
	parker  *deadletter.Parker
	records *kafka.Records
}

// attemptTimeout bounds one question to a server, so that one that hangs is
// told from one that is slow.
const attemptTimeout = 15 * time.Second

// station runs one projection: it waits until the projection can work and then
// works, in an engine of its own. One engine for all would start none before
// the last table exists.
type station struct {
	*shared
	projection *config.Projection
	table      chschema.Table
	plan       *mapping.Plan
	metrics    *prometheus.Registry // the engine's names carry the projection; Gatherers joins them
	log        zerolog.Logger       // names the projection, as the engine's own does

	forgotten prometheus.Counter

	waiting atomic.Pointer[string] // for what; nil once the engine has taken over
	engine  atomic.Pointer[projector.Engine]
	lanes   atomic.Int32

	admitted atomic.Bool // ClickHouse has let this process in
}

func newStation(s *shared, p *config.Projection) (*station, error) {
	plan, err := p.Plan()
	if err != nil {
		return nil, err
	}
	st := &station{
		shared: s, projection: p, table: s.cfg.Table(p), plan: plan,
		metrics: prometheus.NewRegistry(),
		log:     s.log.With().Str("projection", p.Name).Logger(),
	}
	st.forgotten = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "projector_forgotten_partitions_total", ConstLabels: prometheus.Labels{"projection": p.Name},
		Help: "Partitions without a commit at the start, although the table has rows of them.",
	})
	st.metrics.MustRegister(st.forgotten)
	st.waitFor(errors.New("starting"))
	return st, st.metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "projector_ready",
		Help:        "1 if the projection makes progress in this process, 0 if /readyz says why not.",
		ConstLabels: prometheus.Labels{"projection": p.Name},
	}, func() float64 {
		if len(st.ready()) > 0 {
			return 0
		}
		return 1
	}))
}

// run returns nil when ctx is done and the projection has drained.
func (s *station) run(ctx, hard context.Context) error {
	if err := s.until(ctx, "wait for the table", s.checkTable); err != nil || ctx.Err() != nil {
		return err
	}
	if err := s.until(ctx, "wait for Kafka", s.countLanes); err != nil || ctx.Err() != nil {
		return err
	}
	if err := s.until(ctx, "look at the group's offsets", s.checkGroup); err != nil || ctx.Err() != nil {
		return err
	}
	if err := s.until(ctx, "prepare the dead-letter topics", s.prepareLetters); err != nil || ctx.Err() != nil {
		return err
	}
	engine, err := projector.New(
		s.cfg.Engine(),
		[]projector.Projection{s.cfg.Projection(s.projection, s.plan, int(s.lanes.Load()))},
		projector.Deps{
			Kafka:       s.kafka,
			NewInserter: s.newInserter,
			DeadLetters: s.parker,
			Records:     s.records,
			Refresh:     s.refresh,
			Log:         s.shared.log,
			Registerer:  s.metrics,
		},
	)
	if err != nil {
		return err
	}
	s.engine.Store(engine)
	s.waiting.Store(nil)
	s.log.Info().Strs("topics", s.projection.Topics).Str("table", s.table.Physical()).
		Str("group", s.cfg.Group(s.projection)).Int32("lanes", s.lanes.Load()).Msg("consuming")
	working, drain := context.WithCancelCause(ctx)
	defer drain(nil)
	watched := beside(working, func(ctx context.Context) { drain(s.watchTable(ctx)) })
	err = engine.Run(working, hard)
	watched()
	if unsafe, ok := errors.AsType[finalError](context.Cause(working)); ok {
		err = errors.Join(unsafe, err)
	}
	return err
}

// watchTable looks at the table now and then until ctx is done, and returns what
// makes it unsafe to go on. A server takes rows all the same: after EXCHANGE
// TABLES those of another engine, after MODIFY TTL until they expire. Trouble in
// asking is no finding; inserts meet it as well.
func (s *station) watchTable(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		look, done := looking(ctx)
		err := chschema.CheckKept(look, s.control, s.table)
		done()
		if design, ok := errors.AsType[*chschema.DesignError](err); ok {
			return finalError{fmt.Errorf("the table was changed while rows were written, and may not have kept the last of them: correct it and start again; `projector reconcile` finds what is missing, `projector backfill` brings it: %w", design)}
		}
	}
}

func (s *station) newInserter(projector.Projection) (projector.Inserter, error) {
	return s.inserter(s.cfg.ClickHouseClient())
}

// inserter makes one that does not give up at once when the password is rotated
// under the engine, which starts after checkSession was let in.
func (s *station) inserter(c clickhouse.Config) (*clickhouse.Inserter, error) {
	if s.admitted.Load() {
		c.Classes = c.Classes.AfterLogin()
	}
	return clickhouse.NewInserter(c, s.table.Physical())
}

// until repeats try, with growing pauses, until it succeeds, fails for good or
// ctx is done. Trouble is logged as one streak and shown by the probes.
func (s *station) until(ctx context.Context, what string, try func(context.Context) error) error {
	streak, pause := ops.NewStreak(s.log, what), backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 200*time.Millisecond, 5*time.Second
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := try(attempt)
		cancel()
		if _, final := errors.AsType[finalError](err); final {
			return err
		}
		if err == nil {
			streak.Succeed()
			return nil
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // asked to stop while trying: what was tried no longer matters
		}
		s.waitFor(err)
		streak.Fail(err)
		timer := time.NewTimer(pause.NextBackOff())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// finalError is trouble that waiting does not cure.
type finalError struct{ err error }

func (e finalError) Error() string { return e.err.Error() }
func (e finalError) Unwrap() error { return e.err }

func (s *station) waitFor(err error) {
	reason := err.Error()
	s.waiting.Store(&reason)
}

// checkTable returns nil if rows may be written. A server that does not answer
// and a table that does not exist yet are waited for; a table that is there and
// wrong is final.
func (s *station) checkTable(ctx context.Context) error {
	if err := s.checkSession(ctx); err != nil {
		return err
	}
	err := chschema.Check(ctx, s.control, s.table)
	if design, ok := errors.AsType[*chschema.DesignError](err); ok {
		return finalError{design}
	}
	if errors.Is(err, chschema.ErrNoTable) { // a server hides what a user has no right to
		return fmt.Errorf("%w (or grant the rights of `projector schema print --grants` to %s)", err, s.cfg.ClickHouse.Username)
	}
	return err
}

// refresh is checkTable in the engine's words, for a table that was changed
// under the running process.
func (s *station) refresh(ctx context.Context, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := s.checkTable(ctx)
	if err == nil {
		return nil
	}
	class := projector.Transient
	if _, final := errors.AsType[finalError](err); final {
		class = projector.Fatal
	}
	return &projector.InsertError{Class: class, Err: err}
}

// checkSession makes sure that an insert's session has the settings that the
// acknowledgement rests on. It connects as an insert does, so that a wrong
// password is told from a server that is away.
func (s *station) checkSession(ctx context.Context) error {
	inserter, err := s.inserter(s.cfg.Control())
	if err != nil {
		return finalError{err}
	}
	defer func() { _ = inserter.Close() }() // it has only read
	err = inserter.Check(ctx)
	if refused, ok := errors.AsType[*projector.InsertError](err); ok && refused.Class == projector.Fatal {
		return finalError{err}
	}
	if err == nil {
		s.admitted.Store(true)
	}
	return err
}

// countLanes asks Kafka how many partitions there are. A topic that does not
// exist yet does not stop the projection: the engine reports it and reads it
// as soon as it is created.
func (s *station) countLanes(ctx context.Context) error {
	lanes := s.cfg.Lanes
	if lanes == 0 {
		lanes = runtime.GOMAXPROCS(0)
	}
	// A ping is not repeated inside the client as other requests are, whose only
	// error would be that the time is up.
	err := s.admin.Ping(ctx)
	var topics []kafka.Topic
	if err == nil {
		topics, err = s.admin.Topics(ctx, s.projection.Topics...)
	}
	switch {
	case errors.Is(err, kafka.ErrUnknownTopic):
		s.log.Warn().Err(err).Msg("a topic is missing: create it, or correct projections[…].topics")
	case err != nil:
		return kafkaTrouble(err)
	default:
		partitions := 0
		for _, t := range topics {
			partitions += t.Partitions
		}
		lanes = max(1, min(lanes, partitions))
	}
	s.lanes.Store(int32(lanes))
	return nil
}

// checkGroup looks whether Kafka has forgotten how far the group was. That is no
// loss for a group that begins at the start of its topics: it reads again what
// the table has. One that begins at the end would skip what came meanwhile.
func (s *station) checkGroup(ctx context.Context) error {
	survey := offsets.Survey{Table: s.table, Group: s.cfg.Group(s.projection), Topics: s.projection.Topics, Admin: s.admin, Conn: s.control}
	lags, err := s.admin.Lag(ctx, survey.Group, survey.Topics...)
	if errors.Is(err, kafka.ErrUnknownTopic) { // countLanes has told
		return nil
	}
	if err != nil {
		return kafkaTrouble(err)
	}
	lost, err := survey.Forgotten(ctx, lags)
	if err != nil {
		return admitted(err)
	}
	if s.cfg.Kafka.Start == "latest" {
		if len(lost) > 0 {
			p := lost[0]
			return finalError{fmt.Errorf("the group %s has no commit for %s/%d, but offset %d of it is stored: with kafka.start: latest it would begin at the end and skip what came since; run `projector offsets restore --projection %s` first",
				survey.Group, p.Topic, p.Partition, p.Stored, s.projection.Name)}
		}
		skips, err := survey.Skips(ctx, lags)
		if err != nil {
			return admitted(err)
		}
		if skips {
			return finalError{fmt.Errorf("the group %s has no commit, and table %s has rows: with kafka.start: latest it would begin at the end and skip what the topics hold; run `projector offsets restore --projection %s` first, or, to skip it on purpose, commit the ends with Kafka's own kafka-consumer-groups --reset-offsets --to-latest",
				survey.Group, s.table.Physical(), s.projection.Name)}
		}
	}
	for _, p := range lost {
		s.forgotten.Inc()
		s.log.Error().Str("group", survey.Group).Str("topic", p.Topic).Int32("partition", p.Partition).Int64("stored", p.Stored).
			Int64("start", p.Start).Int64("end", p.End).Int64("gone", p.Certain).Str("state", string(p.State)).
			Msg("the group has no commit although rows of this partition are stored: Kafka has forgotten it, or the topic was created anew; it is read from its start")
	}
	return nil
}

// prepareLetters makes sure that refused events have a place: a missing right
// is found now, and not by the first of them. The topic of letters for a topic
// that does not exist yet is created with the first letter.
func (s *station) prepareLetters(ctx context.Context) error {
	for _, topic := range s.projection.Topics {
		_, err := s.admin.Topics(ctx, topic)
		if errors.Is(err, kafka.ErrUnknownTopic) {
			continue
		}
		if err != nil {
			return kafkaTrouble(err)
		}
		if err := s.parker.Prepare(ctx, topic); err != nil {
			if trouble, ok := errors.AsType[*projector.InsertError](err); ok && trouble.Class == projector.Transient {
				return err
			}
			return finalError{err}
		}
	}
	return nil
}

// kafkaTrouble tells what waiting cannot cure.
func kafkaTrouble(err error) error {
	if errors.Is(err, kerr.SaslAuthenticationFailed) || errors.Is(err, kerr.UnsupportedSaslMechanism) || errors.Is(err, kerr.IllegalSaslState) {
		return finalError{err}
	}
	return err
}

func (s *station) ready() []string {
	if waiting := s.waiting.Load(); waiting != nil {
		return []string{fmt.Sprintf("projection %s: %s", s.projection.Name, *waiting)}
	}
	return reasons(s.engine.Load().Ready())
}

func (s *station) live() []string {
	if engine := s.engine.Load(); engine != nil {
		return reasons(engine.Live())
	}
	return nil
}

// reasons takes an error with a line for each reason apart.
func reasons(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}
