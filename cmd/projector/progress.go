package main

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/chprojector/projector/internal/backfill"
)

// progressLine is how often a line is logged where there is no terminal.
const progressLine = 10 * time.Second

// progress shows how far a backfill has come: a bar on a terminal, a log line
// now and then elsewhere, all the more while a server says nothing.
type progress struct {
	began     time.Time
	log       zerolog.Logger
	campaigns int

	bars *mpb.Progress // nil: not on a terminal
	bar  *mpb.Bar

	mu     sync.Mutex
	latest backfill.Progress
	moved  bool // since the last line

	stop, stopped chan struct{} // of the lines; nil: there are none
}

func newProgress(ctx context.Context, stderr io.Writer, log zerolog.Logger, source *backfill.Source, list []string) *progress {
	p := &progress{began: time.Now(), log: log, campaigns: len(list)}
	if !terminal(stderr) {
		p.stop, p.stopped = make(chan struct{}), make(chan struct{})
		go p.lines()
		return p
	}
	var total int64
	if len(list) <= 100 { // counting costs the source a scan of each
		for _, campaign := range list {
			for _, phase := range []backfill.Phase{backfill.Live, backfill.Deleted} {
				n, err := source.Count(ctx, campaign, phase)
				if err != nil {
					return p // reading will say it better
				}
				total += n
			}
		}
	}
	p.bars = mpb.New(mpb.WithOutput(stderr), mpb.WithWidth(60))
	p.bar = p.bars.AddBar(total,
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return p.title() })),
		mpb.AppendDecorators(decor.CurrentNoUnit("%d rows"), decor.AverageSpeed(0, "  %.0f/s"), decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO, decor.WCSyncSpace), "")),
	)
	return p
}

func (p *progress) title() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return "campaign " + p.latest.Campaign + " "
}

// report is called by the goroutine that reads.
func (p *progress) report(at backfill.Progress) {
	p.mu.Lock()
	p.latest, p.moved = at, true
	p.mu.Unlock()
	if p.bar != nil {
		p.bar.SetCurrent(at.Counts.Rows + at.Counts.Deletions)
	}
}

// lines logs how far it is until stop is closed.
func (p *progress) lines() {
	defer close(p.stopped)
	tick := time.NewTicker(progressLine)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		at, message := p.latest, "reading"
		if !p.moved {
			message = "reading: nothing new since the last line"
		}
		p.moved = false
		p.mu.Unlock()
		read := at.Counts.Rows + at.Counts.Deletions
		p.log.Info().Str("campaign", at.Campaign).Int("of", p.campaigns).Int("index", at.Index+1).Str("reading", at.Phase.String()).
			Int64("rows", at.Counts.Rows).Int64("deletions", at.Counts.Deletions).Int64("refused", at.Counts.Refused+at.Counts.Repeated).
			Float64("rows_per_second", float64(read)/time.Since(p.began).Seconds()).Msg(message)
	}
}

// close ends the display; nothing is drawn after it.
func (p *progress) close() {
	if p.stop != nil {
		close(p.stop)
		<-p.stopped
	}
	if p.bars == nil {
		return
	}
	p.bar.SetTotal(-1, true)
	p.bars.Wait()
}
