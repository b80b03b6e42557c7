package backfill

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/mapping"
)

// Options say what is copied and how.
type Options struct {
	Campaigns []string   // in the order of SortCampaigns
	From      Checkpoint // the zero Checkpoint is the beginning
	ChunkRows int        // rows of one insert; 0 = DefaultChunkRows
	Rate      int        // rows a second, 0 = as fast as it goes
	// Save is called after each chunk that was written and read back, with where another Copy could go on. An error
	// ends the Copy. Nil: nobody wants to know.
	Save func(context.Context, Checkpoint) error
	// Progress is called often, from the goroutine that reads. Nil: nobody wants to know.
	Progress func(Progress)
	// Only restricts a Copy to single records: their keys, in the order of the identity. For a few thousand at most.
	Only []mysql.Key
}

// DefaultChunkRows is what one insert holds. Each is a part that the server
// merges: in twice as many it spends a third more of its processor.
const DefaultChunkRows = 100_000

// chunkBytes bounds the data of one chunk. In memory are one for each writer and
// the one that is read.
const chunkBytes = 16 << 20

// Checkpoint is where a Copy can go on.
type Checkpoint struct {
	Campaign string    `json:"campaign"` // "" = the first
	Phase    Phase     `json:"phase"`
	After    mysql.Key `json:"after,omitempty"` // the last key done; none = the phase's beginning
	Sequence int64     `json:"sequence"`        // of the next row
	Done     bool      `json:"done"`            // nothing is left
	Counts   Counts    `json:"counts"`
}

// Counts are what a Copy has done, with all that it was resumed from.
type Counts struct {
	Campaigns int64 `json:"campaigns"` // finished
	Rows      int64 `json:"rows"`      // read from `rows`
	Deletions int64 `json:"deletions"` // read from `deletions`
	Written   int64 `json:"written"`
	Refused   int64 `json:"refused"`  // by the mapping or by ClickHouse
	Repeated  int64 `json:"repeated"` // rows whose record the source has more than once: refused as well
	ReadBack
	Highest  string    `json:"highest_version,omitempty"` // that was read
	Refusals []Refusal `json:"refusals,omitempty"`        // the first of both kinds
}

// MaxRefusals bounds the list of refusals; all are counted.
const MaxRefusals = 100

// Refusal is a source row that was not written, and why.
type Refusal struct {
	Campaign string `json:"campaign"`
	Shard    string `json:"shard"`
	Query    string `json:"query"` // rows or deletions
	Key      string `json:"key"`
	Class    string `json:"class"` // as of a dead letter; repeated, or rejected by ClickHouse
	Column   string `json:"column,omitempty"`
	Value    string `json:"value,omitempty"`
	Reason   string `json:"reason"`
}

// Progress is how far a Copy has come.
type Progress struct {
	Campaign string
	Index    int // of the campaign, from 0
	Phase    Phase
	Counts   Counts
}

// chunk is what is written at once: rows of one or several campaigns, and
// deletions. It goes from the reader to a writer, to be saved, and back.
type chunk struct {
	rows      [2]*mapping.Rows // by phase
	campaigns []string         // whose rows these are
	after     Checkpoint       // of the reader, behind them
	written   chan Counts      // by the writer, when it is done
}

// Copy copies the campaigns, and returns what it has done, also beside an
// error. It reads one chunk while each of the writers, which must be of one
// origin and run, writes another. They are saved in the order of reading, so
// that a checkpoint stands for all that comes before it.
//
// A row that the mapping or ClickHouse refuses is counted, and the first ones
// are listed; its neighbours are written. When every row of the first chunk is
// refused, the mapping is wrong and not the data: nothing is written.
func Copy(ctx context.Context, source *Source, o Options, writers ...*Writer) (Counts, error) {
	if o.From.Done {
		return o.From.Counts, nil
	}
	c := newCopier(source, writers[0], o)
	group, ctx := errgroup.WithContext(ctx)
	free := make(chan *chunk, len(writers)+1)
	for range cap(free) {
		free <- c.newChunk()
	}
	full, order := make(chan *chunk, cap(free)), make(chan *chunk, cap(free)) // sending to them never waits
	group.Go(func() error {
		defer close(full)
		defer close(order)
		return c.read(ctx, free, full, order)
	})
	for _, w := range writers {
		group.Go(func() error {
			for ch := range full {
				counts, err := c.write(ctx, w, ch)
				if err != nil {
					return err
				}
				ch.written <- counts
			}
			return nil
		})
	}
	group.Go(func() error { return c.save(ctx, order, free) })
	err := group.Wait()
	return c.done.Counts, err
}

type copier struct {
	source  *Source
	origin  *Writer // any of the writers: they have one lineage
	o       Options
	limiter *rate.Limiter

	at Checkpoint // of the reader

	done    Checkpoint // what is in the table
	written Counts     // by the writers, since the beginning of this Copy
}

func newCopier(source *Source, writer *Writer, o Options) *copier {
	if o.ChunkRows <= 0 {
		o.ChunkRows = DefaultChunkRows
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	c := &copier{source: source, origin: writer, o: o, at: o.From, done: o.From}
	if o.Rate > 0 {
		c.o.ChunkRows = min(o.ChunkRows, o.Rate) // an insert a second, not a burst a minute
		c.limiter = rate.NewLimiter(rate.Limit(o.Rate), c.o.ChunkRows)
	}
	return c
}

func (c *copier) newChunk() *chunk {
	ch := &chunk{written: make(chan Counts, 1)}
	for _, phase := range c.source.phases() {
		ch.rows[phase] = c.source.plans[phase].NewRows()
	}
	return ch
}

func (ch *chunk) reset() {
	for _, r := range ch.rows {
		if r != nil {
			r.Reset()
		}
	}
	*ch = chunk{rows: ch.rows, campaigns: ch.campaigns[:0], written: ch.written}
}

func (ch *chunk) len() (n int) {
	for _, r := range ch.rows {
		if r != nil {
			n += r.Len()
		}
	}
	return n
}

func (ch *chunk) size() (n int) {
	for _, r := range ch.rows {
		if r != nil {
			n += r.Size()
		}
	}
	return n
}

// maxCampaigns bounds the campaigns of one chunk, which its reading back names.
const maxCampaigns = 1000

func (f *filling) isFull(rows int) bool {
	return f.len() >= rows || f.size() >= chunkBytes || f.seen >= 4*rows || len(f.campaigns) >= maxCampaigns
}

// filling is the chunk that the reader fills.
type filling struct {
	*chunk
	free <-chan *chunk
	full []chan<- *chunk // to a writer, and to be saved
	seen int             // events since the last hand-over, refused ones too
}

func (c *copier) read(ctx context.Context, free <-chan *chunk, full ...chan<- *chunk) error {
	f := &filling{free: free, full: full}
	if err := f.take(ctx); err != nil {
		return err
	}
	from := c.at.Campaign
	for i, campaign := range c.o.Campaigns {
		if from != "" && compareCampaigns(campaign, from) < 0 {
			continue // done before
		}
		if campaign != from {
			c.at.Campaign, c.at.Phase, c.at.After = campaign, Live, nil
		}
		if err := c.campaign(ctx, f, i, campaign); err != nil {
			return fmt.Errorf("campaign %s: %w", campaign, err)
		}
		c.at.Counts.Campaigns++
	}
	c.at.Done = true
	return c.handOver(ctx, f, false)
}

func (c *copier) campaign(ctx context.Context, f *filling, i int, campaign string) error {
	if err := c.source.Begin(ctx); err != nil {
		return err
	}
	for _, phase := range c.source.phases() {
		if phase < c.at.Phase {
			continue
		}
		if phase > c.at.Phase {
			c.at.Phase, c.at.After = phase, nil
		}
		if err := c.phase(ctx, f, i, campaign, phase); err != nil {
			return err
		}
	}
	return nil
}

// progressEvery is how many events pass between two reports.
const progressEvery = 4096

func (c *copier) phase(ctx context.Context, f *filling, i int, campaign string, phase Phase) (err error) {
	events, err := c.source.Read(ctx, campaign, phase, c.at.After, c.o.Only)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	for n := 1; ; n++ {
		more, err := events.Next(ctx)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		c.event(f, campaign, phase, events)
		if n%progressEvery == 0 {
			c.report(i)
		}
		if events.Whole() && f.isFull(c.o.ChunkRows) {
			c.at.After, c.at.Counts.Highest = events.Key().Clone(nil), higher(c.at.Counts.Highest, events.Newest())
			if err := c.handOver(ctx, f, true); err != nil {
				return err
			}
			c.report(i)
		}
	}
	c.at.Counts.Highest = higher(c.at.Counts.Highest, events.Newest())
	c.report(i)
	return nil
}

// higher returns the higher one of two versions, "" being none.
func higher(a, b string) string {
	if len(a) > len(b) || len(a) == len(b) && a > b {
		return a
	}
	return b
}

func (c *copier) report(i int) {
	c.o.Progress(Progress{Campaign: c.at.Campaign, Index: i, Phase: c.at.Phase, Counts: c.at.Counts})
}

// event maps one event into the chunk, or counts why not.
func (c *copier) event(f *filling, campaign string, phase Phase, e *Events) {
	counts := &c.at.Counts
	if phase == Live {
		counts.Rows++
	} else {
		counts.Deletions++
	}
	f.seen++
	if e.Repeated() {
		counts.Repeated++
		counts.refuse(Refusal{
			Campaign: campaign, Shard: e.Shard(), Query: phase.String(), Key: e.Key().String(), Class: "repeated",
			Reason: "the source has more than one live row of this record, on one shard or on several: only a person can say which one counts",
		})
		return
	}
	rows := f.rows[phase]
	err := c.source.plans[phase].Append(rows, e.Event(), c.origin.Lineage(e.Shard(), c.at.Sequence))
	if err != nil {
		counts.Refused++
		counts.refuse(refusal(err, campaign, phase, e))
		return
	}
	c.at.Sequence++
	if len(f.campaigns) == 0 || f.campaigns[len(f.campaigns)-1] != campaign {
		f.campaigns = append(f.campaigns, campaign)
	}
}

func refusal(err error, campaign string, phase Phase, e *Events) Refusal {
	r := Refusal{Campaign: campaign, Shard: e.Shard(), Query: phase.String(), Key: e.Key().String(), Reason: err.Error()}
	if m, ok := errors.AsType[*mapping.Error](err); ok {
		r.Class, r.Column, r.Value, r.Reason = string(m.Class), m.Column, m.Value, m.Reason
	}
	return r
}

func (c *Counts) refuse(r Refusal) {
	if len(c.Refusals) < MaxRefusals {
		c.Refusals = append(c.Refusals[:len(c.Refusals):len(c.Refusals)], r)
	}
}
