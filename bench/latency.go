package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/chprojector/projector/internal/fitness"
)

// delay is what one latency run measured, in milliseconds from produce to visible.
type delay struct {
	Contestant string  `json:"contestant"`
	Round      int     `json:"round"`
	Target     int     `json:"target"`   // events a second that should be produced
	Produced   float64 `json:"produced"` // and that were
	Probes     int     `json:"probes"`
	P50        float64 `json:"p50"`
	P99        float64 `json:"p99"`
	Max        float64 `json:"max"`
	Poll       float64 `json:"poll"`    // median of the probing query: with the pause of 20 ms, the resolution
	Inserts    float64 `json:"inserts"` // a second
}

// latency produces at a steady rate while a contestant works, and looks for probes among the events in the view that
// readers use. What is produced in the time of warming up does not count.
func (l *lab) latency(ctx context.Context, c contestant, rate int, warm, measured time.Duration) (d delay, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it takes longer than %s", patience))
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s at %d events/s: %w", c.name, rate, err)
		}
	}()
	s, err := newStage(ctx, stageConfig{broker: "kfake", partitions: 4, size: 170})
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	r, err := l.prepare(ctx, s)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, l.drop(r)) }()
	at, err := c.start(ctx, r)
	if err != nil {
		return d, err
	}
	defer at.kill()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return d, err
	}
	defer client.Close()
	conn, err := ch.Dial(ctx, ch.Options{Address: l.address.native, ReadTimeout: time.Minute})
	if err != nil {
		return d, fmt.Errorf("connect to ClickHouse: %w", err)
	}
	defer func() { _ = conn.Close() }()

	p := &pace{client: client, rate: rate, warm: warm, measured: measured, inserts: func() (int, error) {
		text, err := query(ctx, l.address, "SELECT value FROM system.events WHERE event = 'InsertQuery'")
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(text)
	}}
	out := &lookout{conn: conn, view: r.database + "." + currentView, check: at.check}
	enough := make(chan struct{})
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(enough)
		return p.run(working)
	})
	group.Go(func() error { return out.watch(working, &p.probes, enough) })
	if err := group.Wait(); err != nil {
		return d, err
	}
	ms := p.probes.delays(p.since)
	return delay{
		Contestant: c.name, Target: rate, Produced: float64(p.produced) / measured.Seconds(), Probes: len(ms),
		P50: ms.median(), P99: ms.quantile(0.99), Max: ms.quantile(1), Poll: out.took.median(),
		Inserts: float64(p.inserted) / measured.Seconds(),
	}, nil
}

// pace produces events at a steady rate.
type pace struct {
	client   *kgo.Client
	rate     int // events a second, probes not counted
	warm     time.Duration
	measured time.Duration
	inserts  func() (int, error) // how many inserts the server has seen

	probes   probes
	since    time.Time // when warming up ended
	produced int       // since then
	inserted int       // since then
}

// run produces a burst every few milliseconds and a probe every hundredth of a second, with franz-go's defaults.
func (p *pace) run(ctx context.Context) error {
	const burst, perProbe = 5 * time.Millisecond, 10 * time.Millisecond
	g, err := fitness.New(fitness.Config{Records: 1 << 30})
	if err != nil {
		return err
	}
	var first failure
	send := func(e fitness.Event) {
		r := &kgo.Record{Key: e.AppendKey(nil), Value: e.AppendJSON(make([]byte, 0, 192))}
		p.client.Produce(ctx, r, func(_ *kgo.Record, err error) { first.note(err) })
	}
	ticker := time.NewTicker(burst)
	defer ticker.Stop()
	begin, sent, before, insertsBefore := time.Now(), 0, 0, 0
	for probe := time.Duration(0); ; {
		elapsed := time.Since(begin)
		if p.since.IsZero() && elapsed >= p.warm {
			if insertsBefore, err = p.inserts(); err != nil {
				return err
			}
			p.since, before = time.Now(), sent
		}
		if elapsed >= p.warm+p.measured {
			break
		}
		for ; probe <= elapsed; probe += perProbe {
			send(p.probes.add(time.Now()))
		}
		for ; float64(sent) < elapsed.Seconds()*float64(p.rate); sent++ {
			send(g.At(sent))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
	p.produced = sent - before
	after, err := p.inserts()
	if err != nil {
		return err
	}
	p.inserted = after - insertsBefore
	if err := p.client.Flush(ctx); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	return first.err
}
