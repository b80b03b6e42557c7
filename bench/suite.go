package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// suite is one question with its answer in numbers.
type suite struct {
	name  string
	extra bool // only run when named
	run   func(ctx context.Context, b *bench) ([]section, error)
}

func suites() []suite {
	return []suite{
		{name: "throughput", run: throughput},
		{name: "kafka", run: throughputKafka},
		{name: "sizes", run: sizes},
		{name: "growth", run: growth},
		{name: "latency", run: latencies},
		{name: "backfill", run: backfills},
		{name: "relay", run: relays},
		{name: "reconcile", run: reconciles},
		{name: "variants", extra: true, run: variants},
	}
}

func suiteNames() (names []string) {
	for _, s := range suites() {
		names = append(names, s.name)
	}
	return names
}

// section is one table of the report.
type section struct {
	Title     string     `json:"title"`
	Results   []result   `json:"results,omitempty"`
	Delays    []delay    `json:"delays,omitempty"`
	Copies    []copied   `json:"copies,omitempty"`
	Relays    []relayed  `json:"relays,omitempty"`
	Weighings []weighing `json:"weighings,omitempty"`
	Baseline  bool       `json:"-"` // show ratios to the first contestant
}

// bench is one run of suites.
type bench struct {
	*lab
	options
}

// repeat returns how often a suite is repeated.
func (b *bench) repeat(standard int) int {
	switch {
	case b.rounds > 0:
		return b.rounds
	case b.short:
		return 1
	}
	return standard
}

func (b *bench) peers() []contestant {
	return []contestant{
		theLimit(), b.binary.projector("projector", 0, 1), engine("Kafka engine", engineSettings), ownChild("naive", "naive", 1, ""),
	}
}

// theLimit is the fastest variant of all that the suite "variants" tries.
func theLimit() contestant { return ownChild("limit", "limit", 2, "") }

func throughput(ctx context.Context, b *bench) ([]section, error) {
	return b.compare(ctx, stageConfig{"kfake", 4, 170, b.events}, b.repeat(5), b.peers())
}

func throughputKafka(ctx context.Context, b *bench) ([]section, error) {
	return b.compare(ctx, stageConfig{"kafka", 4, 170, b.events}, b.repeat(3), b.peers())
}

func sizes(ctx context.Context, b *bench) (sections []section, err error) {
	for _, cfg := range []stageConfig{{"kfake", 4, 1_000, b.events / 2}, {"kfake", 4, 10_000, b.events / 10}} {
		s, err := b.compare(ctx, cfg, b.repeat(3), b.peers())
		if err != nil {
			return nil, err
		}
		sections = append(sections, s...)
	}
	return sections, nil
}

func growth(ctx context.Context, b *bench) (sections []section, err error) {
	for _, growing := range []struct {
		partitions  int32
		contestants []contestant
	}{
		{4, []contestant{
			b.binary.projector("1 lane", 1, 1), b.binary.projector("2 lanes", 2, 1), b.binary.projector("4 lanes", 4, 1),
			b.binary.projector("2 processes of 1 lane", 1, 2), b.binary.projector("2 processes of 2 lanes", 2, 2),
		}},
		{1, []contestant{b.binary.projector("default lanes", 0, 1)}},
		{12, []contestant{b.binary.projector("default lanes", 0, 1)}},
	} {
		s, err := b.compare(ctx, stageConfig{"kfake", growing.partitions, 170, b.events}, b.repeat(3), growing.contestants)
		if err != nil {
			return nil, err
		}
		sections = append(sections, s...)
	}
	return sections, nil
}

func variants(ctx context.Context, b *bench) ([]section, error) {
	var cs []contestant
	for _, lanes := range []int{1, 2, 4} {
		for _, variant := range []string{"", "serial", "pools", "big", "lz4"} {
			cs = append(cs, ownChild(fmt.Sprintf("limit: %d lanes %s", lanes, variant), "limit", lanes, variant))
		}
	}
	for _, settings := range []string{
		engineSettings,
		"kafka_num_consumers = 1, kafka_flush_interval_ms = 1000",
		"kafka_num_consumers = 2, kafka_flush_interval_ms = 1000",
		"kafka_num_consumers = 2, kafka_thread_per_consumer = 1, kafka_flush_interval_ms = 7500",
		"kafka_num_consumers = 2, kafka_thread_per_consumer = 1, kafka_flush_interval_ms = 500",
		"kafka_num_consumers = 2, kafka_thread_per_consumer = 1, kafka_flush_interval_ms = 1000, kafka_max_block_size = 65536",
		"kafka_num_consumers = 2, kafka_thread_per_consumer = 1, kafka_flush_interval_ms = 1000, kafka_poll_max_batch_size = 65536",
	} {
		cs = append(cs, engine("engine: "+settings, settings))
	}
	return b.compare(ctx, stageConfig{"kfake", 4, 170, b.events}, b.repeat(3), cs)
}

// compare lets all contestants race over one stage, one after another in each round and in turned order, so that a slow
// minute of the machine meets all of them.
func (b *bench) compare(ctx context.Context, cfg stageConfig, rounds int, cs []contestant) (_ []section, err error) {
	cs = slices.DeleteFunc(slices.Clone(cs), func(c contestant) bool { return !b.match.MatchString(c.name) })
	if len(cs) == 0 {
		return nil, nil
	}
	began := time.Now()
	s, err := newStage(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	title := fmt.Sprintf("%s, %d partitions, %d events of %d bytes", s.broker, s.partitions, s.events, s.bytes/int64(s.events))
	b.say("%s: filled in %.1f s", title, time.Since(began).Seconds())
	sec := section{Title: title, Baseline: cs[0].name == "limit"}
	for round := range rounds {
		for i := range cs {
			c := cs[(i+round)%len(cs)]
			res, err := b.race(ctx, c, s)
			if err != nil {
				return nil, err
			}
			res.Round = round
			b.say("round %d  %-24s %s", round+1, c.name, res)
			sec.Results = append(sec.Results, res)
		}
	}
	slices.SortStableFunc(sec.Results, func(x, y result) int { return place(cs, x.Contestant) - place(cs, y.Contestant) })
	return []section{sec}, nil
}

func place(cs []contestant, name string) int {
	return slices.IndexFunc(cs, func(c contestant) bool { return c.name == name })
}

func latencies(ctx context.Context, b *bench) ([]section, error) {
	warm, measured := 4*time.Second, 15*time.Second
	if b.short {
		measured = 6 * time.Second
	}
	subject := b.binary.projector("projector", 0, 1)
	sec := section{Title: "produce to visible in the current view, kfake, 4 partitions, events of 170 bytes"}
	for round := range b.repeat(2) {
		for _, load := range []struct {
			contestant
			rate int
		}{
			{subject, 1_000}, {subject, 10_000}, {subject, 50_000}, {engine("Kafka engine", engineSettings), 10_000},
		} {
			if !b.match.MatchString(load.name) {
				continue
			}
			d, err := b.latency(ctx, load.contestant, load.rate, warm, measured)
			if err != nil {
				return nil, err
			}
			d.Round = round
			b.say("round %d  %s", round+1, d)
			sec.Delays = append(sec.Delays, d)
		}
	}
	slices.SortStableFunc(sec.Delays, func(x, y delay) int {
		if x.Contestant == y.Contestant {
			return x.Target - y.Target
		}
		return -1 * (len(y.Contestant) - len(x.Contestant))
	})
	return []section{sec}, nil
}
