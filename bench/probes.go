package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"

	"github.com/chprojector/projector/internal/fitness"
)

// probes are events whose way is timed. They belong to a campaign of their own whose key comes first in the order of
// the table: to look for them, the server reads the first granule of each part of one partition and no more.
type probes struct {
	mu       sync.Mutex
	produced []time.Time
	seen     []time.Time // zero: not yet
	unseen   int         // every probe before this one was seen
}

// add notes the production of one more probe and returns its event.
func (p *probes) add(now time.Time) fitness.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.produced = append(p.produced, now)
	p.seen = append(p.seen, time.Time{})
	return fitness.Event{
		DataID: uint64(len(p.produced)), DetectID: 1, UserID: 1, ProjectID: 3, Version: 1, Result: 2_310, Decimals: 2,
		Unit: "m",
	}
}

// floor returns the id up to which all probes were seen.
func (p *probes) floor() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unseen
}

// see notes that the probes with these ids are visible, and reports whether all are that were produced so far.
func (p *probes) see(ids []uint64, now time.Time) (all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		if p.seen[id-1].IsZero() {
			p.seen[id-1] = now
		}
	}
	for p.unseen < len(p.seen) && !p.seen[p.unseen].IsZero() {
		p.unseen++
	}
	return p.unseen == len(p.seen)
}

// delays returns the time from produce to visible, in milliseconds, of the probes produced since the given time.
func (p *probes) delays(since time.Time) (ms sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, at := range p.produced {
		if !at.Before(since) {
			ms = append(ms, float64(p.seen[i].Sub(at).Microseconds())/1e3)
		}
	}
	return ms
}

// lookout polls the current view for probes.
type lookout struct {
	conn  *ch.Client
	view  string
	check func() error // of the contestant
	took  sample       // milliseconds of each query
}

// watch polls until all probes are seen and enough is closed.
func (l *lookout) watch(ctx context.Context, p *probes, enough <-chan struct{}) error {
	const pause = 20 * time.Millisecond
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	var ids proto.ColUInt64
	for {
		ids.Reset()
		var found []uint64
		began := time.Now()
		err := l.conn.Do(ctx, ch.Query{
			Body:   fmt.Sprintf("SELECT data_id FROM %s WHERE detect_id = 1 AND data_id > %d", l.view, p.floor()),
			Result: proto.Results{{Name: "data_id", Data: &ids}},
			OnResult: func(context.Context, proto.Block) error {
				found = append(found, ids...)
				return nil
			},
		})
		if err != nil {
			return fmt.Errorf("look for probes: %w", err)
		}
		now := time.Now()
		l.took = append(l.took, float64(now.Sub(began).Microseconds())/1e3)
		all := p.see(found, now)
		if err := l.check(); err != nil {
			return err
		}
		select {
		case <-enough:
			if all {
				return nil
			}
		default:
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
