package main

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/ops"
)

// lastMoment is what follows the drain: leaving the groups, closing clients.
const lastMoment = 5 * time.Second

type runCommand struct{}

func (runCommand) Help() string {
	return `Consumes the topics of every projection and inserts their rows until SIGTERM or SIGINT.
Then it finishes what it has begun within drain_timeout, commits, leaves the consumer
groups and exits with 0. A second signal exits with 130 at once; nothing is lost by it.

Servers that do not answer, and tables that do not exist yet, are waited for: the process
stays alive, is not ready (/readyz says why), and starts to consume as soon as it can.
Each projection waits for itself. A table that is there but unsafe or different from the
configuration ends the process with exit code 1, before anything is consumed.

Examples:

    projector run
    projector --config /etc/projector/config.yaml --log-format json run
    PROJECTOR_CLICKHOUSE__PASSWORD_FILE=/run/secrets/clickhouse projector run`
}

// Run builds everything, starts it in order, and stops it in reverse.
func (runCommand) Run(ctx context.Context, p *program) (err error) {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	if err := cfg.CheckRun(); err != nil {
		return err
	}
	log, build, budget := p.logger(), ops.ReadBuild(version), memoryBudget(cfg)
	log.Info().Str("version", build.Version).Str("config", p.line.Config).Int("projections", len(cfg.Projections)).Int64("memory_budget", budget).Msg("starting")

	opts, err := cfg.KafkaClient().Options(log)
	if err != nil {
		return err
	}
	admin, err := kafka.NewAdmin(opts...)
	if err != nil {
		return err
	}
	defer admin.Close()
	control, err := clickhouse.Open(cfg.Control())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, control.Close()) }()
	parker, err := deadletter.NewParker(cfg.Letters(), opts...)
	if err != nil {
		return err
	}
	defer parker.Close()
	records, err := kafka.NewRecords(opts...)
	if err != nil {
		return err
	}
	defer records.Close()

	shared := &shared{cfg: cfg, log: log, kafka: opts, admin: admin, control: control, parker: parker, records: records}
	all := make(stations, len(cfg.Projections))
	limitMemory(budget)
	process := ops.NewRegistry(build)
	process.MustRegister(budgetGauge(budget))
	metrics := prometheus.Gatherers{process}
	for i := range cfg.Projections {
		if all[i], err = newStation(shared, &cfg.Projections[i]); err != nil {
			return err
		}
		metrics = append(metrics, all[i].metrics)
	}
	if beats := newHeartbeats(cfg, control, log); beats != nil {
		own := prometheus.NewRegistry()
		own.MustRegister(beats)
		metrics = append(metrics, own)
		defer beside(ctx, beats.watch)()
	}
	found := prometheus.NewRegistry()
	watch := newWatcher(shared, clickhouse.NewReader(control), found)
	metrics = append(metrics, found)
	letters, err := deadletter.NewReader(cfg.Letters(), opts...)
	if err != nil {
		return err
	}
	defer letters.Close()
	page, err := newPage(build, all, &questions{cfg: cfg, timeout: pageTimeout, admin: admin, letters: letters, control: control}, metrics, log)
	if err != nil {
		return err
	}
	defer page.start()()
	server := ops.NewServer(cfg.Server(), ops.Deps{Metrics: metrics, Health: all, Status: page.status, History: page.past, Log: log})
	if err := startServer(ctx, server, cfg, log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer(server)) }()

	defer beside(ctx, watch.run)()
	if err := all.run(ctx, cfg.DrainTimeout.Of(), log); err != nil {
		return err
	}
	log.Info().Msg("stopped")
	return nil
}

func startServer(ctx context.Context, s *ops.Server, cfg *config.Config, log zerolog.Logger) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	log.Info().Str("address", s.Addr()).Msg("serving /metrics, /livez, /readyz and the status page")
	if !cfg.HTTP.Private() {
		log.Warn().Str("address", s.Addr()).Msg("everybody who reaches this address reads metrics, dead letters and the configuration: give http.token_file, or listen on 127.0.0.1")
	}
	return nil
}

func stopServer(s *ops.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.Stop(ctx)
}

// stations are all projections of the process.
type stations []*station

// run works until ctx is done or one projection fails for good; then all of
// them drain. The engines bound the drain themselves; hard holds them to it.
func (all stations) run(ctx context.Context, drain time.Duration, log zerolog.Logger) error {
	var parts []part
	for _, s := range all {
		parts = append(parts, func(work, hard context.Context) error {
			err := remedied(s.run(work, hard))
			if err == nil {
				return nil
			}
			log.Error().Err(err).Str("projection", s.projection.Name).Msg("stopping for good: waiting would not help")
			return loggedError{err}
		})
	}
	return together(ctx, parts, drain+lastMoment, func() {
		log.Info().Dur("within_ms", drain).Msg("draining: finishing what was begun; a second signal stops at once")
	})
}

// loggedError is an error that the log has told already, when the others began
// to drain. Telling it again at the end would put a plain line behind JSON.
type loggedError struct{ error }

func (e loggedError) Unwrap() error { return e.error }

// Ready says which projections do not make progress, and why.
func (all stations) Ready() (reasons []string) {
	for _, s := range all {
		reasons = append(reasons, s.ready()...)
	}
	return reasons
}

// Live says which projections hang.
func (all stations) Live() (reasons []string) {
	for _, s := range all {
		reasons = append(reasons, s.live()...)
	}
	return reasons
}
