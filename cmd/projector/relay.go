package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/internal/ops"
	"github.com/chprojector/projector/internal/outbox"
)

// onShards is the flag of commands that can be narrowed to some shards.
type onShards struct {
	Shard []string `help:"Only this shard of source.shards. May be repeated." placeholder:"NAME"`
}

// shards are the chosen ones, in the order of the configuration.
func (o onShards) shards(cfg *config.Config) ([]mysql.Shard, error) {
	all := cfg.Shards()
	if len(o.Shard) == 0 {
		return all, nil
	}
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	for _, name := range o.Shard {
		if !slices.Contains(names, name) {
			return nil, usageError{fmt.Errorf("there is no shard %q; use one of %s", name, strings.Join(names, ", ")), ""}
		}
	}
	return slices.DeleteFunc(all, func(s mysql.Shard) bool { return !slices.Contains(o.Shard, s.Name) }), nil
}

type relayCommand struct{ onShards }

func (relayCommand) Help() string {
	return `Publishes the events that applications have written into the outbox of each shard, until
SIGTERM or SIGINT. Then it finishes or gives back what it has claimed, within
drain_timeout, and exits with 0. A second signal exits with 130 at once; what was claimed
is then published when its lease ends.

Any number of processes may work on the same shards. Shards and brokers that are away are
waited for, each shard for itself. An outage of Kafka costs no event an attempt; claims
that run out, because the relay was killed or their shard was away when they were to be
settled, cost each of their events one. A server or a table that no waiting makes right,
such as a missing index, ends the process with exit code 1 before anything is claimed,
with the remedy.

Examples:

    projector outbox ddl | mysql app        # once on each shard
    projector relay
    projector relay --shard s0 --shard s1`
}

// sessions of each shard: the loop's, the upkeep's, and one to spare.
const relaySessions = 3

// Run builds everything, starts it in order, and stops it in reverse.
func (c relayCommand) Run(ctx context.Context, p *program) (err error) {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	if err := cfg.CheckRelay(true); err != nil {
		return err
	}
	shards, err := c.shards(cfg)
	if err != nil {
		return err
	}
	log, build := p.logger(), ops.ReadBuild(version)
	log.Info().Str("version", build.Version).Str("config", p.line.Config).Int("shards", len(shards)).Msg("starting")

	opts, err := cfg.KafkaClient().Options(log)
	if err != nil {
		return err
	}
	producer, err := outbox.NewProducer(opts...)
	if err != nil {
		return err
	}
	defer producer.Close()
	registry := ops.NewRegistry(build)
	metrics, all := outbox.NewMetrics(registry), relays{}
	for _, shard := range shards {
		db, err := shard.Open(relaySessions)
		if err != nil {
			return err
		}
		defer db.Close()
		all = append(all, relay{shard.Name, cfg, outbox.New(shard.Name, cfg.Relay(), outbox.Deps{
			DB: db, Kafka: producer, Metrics: metrics, Log: log, Owner: owner(),
		})})
	}
	text, err := cfg.YAML()
	if err != nil {
		return err
	}
	started := time.Now()
	server := ops.NewServer(cfg.Server(), ops.Deps{
		Metrics: prometheus.Gatherers{registry}, Health: all, Log: log,
		Status: func(context.Context) any {
			return relayStatus{
				Now: time.Now(), Build: build, Started: started, NotReady: orEmpty(all.Ready()), NotLive: orEmpty(all.Live()),
				Shards: all.states(), Configuration: string(text),
			}
		},
		History: func(context.Context) any { return ops.Past{Times: []time.Time{}, Lines: []ops.Line{}} },
	})
	if err := startServer(ctx, server, cfg, log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer(server)) }()
	if err := all.run(ctx, cfg.DrainTimeout.Of(), log); err != nil {
		return err
	}
	log.Info().Msg("stopped")
	return nil
}

// owner names this process in the claims it holds.
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.50s:%d", host, os.Getpid())
}

// relay is one shard of the process.
type relay struct {
	shard string
	cfg   *config.Config
	*outbox.Relay
}

type relays []relay

// run works until ctx is done or one shard can never be worked on; then all
// stop.
func (all relays) run(ctx context.Context, drain time.Duration, log zerolog.Logger) error {
	var parts []part
	for _, r := range all {
		parts = append(parts, func(work, hard context.Context) error {
			err := r.Run(work, hard)
			if err == nil {
				return nil
			}
			log.Error().Err(err).Msg("stopping for good: waiting would not help")
			return loggedError{err}
		})
	}
	return together(ctx, parts, drain, func() {
		log.Info().Dur("within_ms", drain).Msg("stopping: finishing or giving back what was claimed; a second signal stops at once")
	})
}

// Ready says which shards' events do not get on, and why.
func (all relays) Ready() (reasons []string) {
	for _, r := range all {
		reasons = append(reasons, r.Relay.Ready()...)
	}
	return reasons
}

// Live says which shards' loops hang.
func (all relays) Live() (reasons []string) {
	for _, r := range all {
		reasons = append(reasons, r.Relay.Live()...)
	}
	return reasons
}

// relayStatus is what GET /api/status of a relay answers.
type relayStatus struct {
	Now           time.Time    `json:"now"`
	Build         ops.Build    `json:"build"`
	Started       time.Time    `json:"started"`
	NotReady      []string     `json:"not_ready"`
	NotLive       []string     `json:"not_live"`
	Shards        []shardState `json:"shards"`
	Configuration string       `json:"configuration"`
}

// shardState is one shard of the status page.
type shardState struct {
	Shard    string   `json:"shard"`
	Table    string   `json:"table"`
	Topics   []string `json:"topics"`
	NotReady []string `json:"not_ready"`
}

func (all relays) states() []shardState {
	states := make([]shardState, len(all))
	for i, r := range all {
		topics := slices.Compact(slices.Sorted(maps.Values(r.cfg.Outbox.Topics)))
		states[i] = shardState{r.shard, r.cfg.Outbox.Table, topics, orEmpty(r.Relay.Ready())}
	}
	return states
}
