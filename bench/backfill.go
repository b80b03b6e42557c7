package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
)

// copied is what one reading or copying of the source measured.
type copied struct {
	Contestant string  `json:"contestant"`
	Round      int     `json:"round"`
	Rows       int     `json:"rows"`
	Seconds    float64 `json:"seconds"` // from the start of the process, where there is one, to its end
	Rate       float64 `json:"rate"`    // rows a second
	PeakBytes  int64   `json:"peak_bytes,omitempty"`
	CPU        float64 `json:"cpu,omitempty"` // processor seconds of the own process a million rows
	Others     float64 `json:"others"`        // share of the machine's processor time that went to other programs meanwhile
}

const (
	plainSelect   = "plain SELECT"
	chunkedSelect = "SELECT by key, LIMIT 50000"
	copySubject   = "projector backfill"
)

// backfills reads a campaign, and copies it, in turns.
func backfills(ctx context.Context, b *bench) (_ []section, err error) {
	began := time.Now()
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return nil, err
	}
	s, err := newSource(ctx, b.binary, b.out, b.events)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.server.Stop()) }()
	sec := section{Title: fmt.Sprintf("backfill: one campaign of %d rows on two shards of MariaDB", s.rows)}
	b.say("%s: filled in %.1f s", sec.Title, time.Since(began).Seconds())
	contestants := []struct {
		name string
		run  func(context.Context) (copied, error)
	}{
		{plainSelect, func(ctx context.Context) (copied, error) { return copied{}, s.read(ctx, 0) }},
		{chunkedSelect, func(ctx context.Context) (copied, error) { return copied{}, s.read(ctx, 50_000) }},
		{copySubject, func(ctx context.Context) (copied, error) { return b.copy(ctx, s) }},
	}
	for round := range b.repeat(3) {
		for i := range contestants {
			c := contestants[(i+round)%len(contestants)]
			if !b.match.MatchString(c.name) {
				continue
			}
			d, err := b.timed(ctx, s, c.run)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			d.Contestant, d.Round = c.name, round
			b.say("round %d  %s", round+1, d)
			sec.Copies = append(sec.Copies, d)
		}
	}
	return []section{sec}, nil
}

// timed measures one contestant.
func (b *bench) timed(ctx context.Context, s *source, run func(context.Context) (copied, error)) (copied, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it takes longer than %s", patience))
	defer cancel()
	pids := []int{b.clickhouse.PID(), s.server.PID(), os.Getpid(), machinePID}
	before, err := cpuTimes(pids)
	if err != nil {
		return copied{}, err
	}
	start := time.Now()
	d, err := run(ctx)
	if err != nil {
		return d, err
	}
	if d.Seconds == 0 {
		d.Seconds = time.Since(start).Seconds()
	}
	elapsed := time.Since(start)
	after, err := cpuTimes(pids)
	if err != nil {
		return d, err
	}
	for i := range after {
		after[i] -= before[i]
	}
	own := time.Duration(d.CPU * float64(s.rows) / 1e6 * float64(time.Second))
	d.Others = max(0, after[3]-after[0]-after[1]-after[2]-own).Seconds() / elapsed.Seconds() / float64(runtime.NumCPU())
	d.Rows, d.Rate = s.rows, float64(s.rows)/d.Seconds
	return d, nil
}

// copy runs the program itself, on an empty table.
func (b *bench) copy(ctx context.Context, s *source) (d copied, err error) {
	r, err := b.prepare(ctx, &stage{brokers: []string{"localhost:1"}})
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, b.drop(r)) }()
	start := time.Now()
	c, err := startChild(ctx, r.environment(), b.binary.path, "--config", s.config, "backfill", "--campaign", fmt.Sprint(campaign))
	if err != nil {
		return d, err
	}
	defer c.kill()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		if bytes, err := peakMemory(c.cmd.Process.Pid); err == nil {
			d.PeakBytes = max(d.PeakBytes, bytes)
		}
		select {
		case <-c.ended:
			running = false
		case <-tick.C:
		}
	}
	d.Seconds = time.Since(start).Seconds()
	cpu, err := c.wait(ctx)
	if err != nil {
		return d, err
	}
	d.CPU = cpu.Seconds() / float64(s.rows) * 1e6
	got, err := query(ctx, b.address, "SELECT count() FROM "+r.database+"."+currentView)
	if err == nil && got != fmt.Sprint(s.rows) {
		err = fmt.Errorf("the view has %s rows, want %d: %s", got, s.rows, c.output.Bytes())
	}
	return d, err
}

// String is a run's line of progress.
func (d copied) String() string {
	return fmt.Sprintf("%-26s %7.0f rows/s; own CPU s/million %.2f, peak %d MiB; others %.0f %%", d.Contestant, d.Rate, d.CPU, d.PeakBytes>>20, 100*d.Others)
}

func (s section) copies(w io.Writer) {
	var rows [][]string
	for _, name := range []string{plainSelect, chunkedSelect, copySubject} {
		var rate, ratio, cpu, peak, others sample
		for _, d := range s.Copies {
			if d.Contestant != name {
				continue
			}
			rate, others = append(rate, d.Rate), append(others, d.Others)
			if d.PeakBytes > 0 {
				cpu, peak = append(cpu, d.CPU), append(peak, float64(d.PeakBytes))
			}
			for _, base := range s.Copies {
				if base.Contestant == plainSelect && base.Round == d.Round {
					ratio = append(ratio, d.Rate/base.Rate)
				}
			}
		}
		if len(rate) > 0 {
			rows = append(rows, []string{
				name, rate.text("%.0f", 1), ratio.text("%.2f", 1), cpu.text("%.2f", 1), peak.text("%.0f", 1.0/(1<<20)), others.text("%.0f", 100),
			})
		}
	}
	writeTable(w, []string{"", "rows/s", "of the plain SELECT", "CPU s/million", "peak MiB", "others' CPU %"}, rows)
}
