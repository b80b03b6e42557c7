package projector

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/mapping"
)

const (
	// maxPollWait bounds one wait for records or for room, so that a loop with nothing to do still shows that it is
	// alive.
	maxPollWait = 5 * time.Second
	// firstPortion is how many records the very first poll asks for, when the size of a record is not yet known.
	firstPortion = 1000
	// errorPause slows the loop down after an error that kgo reports: it tries again at once, for ever.
	errorPause = 100 * time.Millisecond
)

// lane is one franz-go client, a few cuts and three goroutines: the poll loop, which maps records into the open cut,
// the sender, which settles sealed cuts, and one that watches the topics. docs/decisions/lane.md has the reasons.
//
// The poll loop touches open and positions only between a return of PollRecords and AllowRebalance: the bracket.
// franz-go runs rebalance callbacks only outside it, so the bracket is their lock.
type lane struct {
	cfg        *Config
	projection *Projection
	deps       *Deps
	metrics    *laneMetrics
	health     *laneHealth
	freshness  freshness
	log        zerolog.Logger
	number     int

	token    string // of this life of the lane; begins the tokens of its batches
	client   *kgo.Client
	abandon  context.CancelFunc // ends every request of client
	inserter Inserter
	begun    map[string]bool // topics for which it has been settled where the group starts; beyond a life
	member   atomic.Value    // string; the ID under which the group gave this lane its partitions
	ledger   *ledger
	fetches  *fetchSize

	free      chan *cut     // empty cuts. Holding one is the right to poll.
	queue     chan *cut     // sealed cuts, oldest first; it has room for every cut there is
	sent      chan struct{} // closed when the sender has ended
	open      *cut          // bracket
	positions positions     // bracket
	lags      lags
	cuts      uint64  // bracket; counts the cuts opened
	badRun    int     // bracket; refused records in a row
	lastBad   uint64  // bracket; number of the last refused record
	consumed  uint64  // bracket; counts records
	troubled  bool    // bracket; kgo has reported an error
	shared    bool    // bracket; another member took part of a bounded projection
	complete  bool    // bracket, and sender once the queue is closed; a bounded projection has been read to its end
	perRecord float64 // poll loop; bytes held per record, as seen in the last fetch

	robbed atomic.Bool // offsets were given up after the end of a bounded projection was reached: nobody reads there again

	rejectedRun int // sender; rows that ClickHouse rejected since it last took one
}

// newLane makes a lane that start can bring to life.
func newLane(cfg *Config, p *Projection, deps *Deps, m *metrics, number int) *lane {
	l := &lane{cfg: cfg, projection: p, deps: deps, metrics: m.lane(p, number), number: number, begun: map[string]bool{}}
	l.log = deps.Log.With().Str("projection", p.Name).Int("lane", number).Logger()
	l.freshness.reset(deps.Clock(), 0)
	l.lags.reset()
	l.health = newLaneHealth(&l.log, deps.Clock)
	return l
}

// poll fills cuts until ctx is done or Kafka needs a new client. It returns the reason if it was Kafka or a record;
// what was read up to then is sealed and the queue closed.
func (l *lane) poll(ctx context.Context) error {
	var (
		spare *cut
		due   time.Time // when the open cut must be sealed; zero while there is none
		room  = min(firstPortion, l.cfg.Batch.Rows)
		err   error
	)
	for err == nil && ctx.Err() == nil && !l.complete {
		// A spare cut must be in hand before every poll, even while a cut is open: a rebalance callback may seal the
		// open one while the poll waits, and what the poll then returns must have a place. Waiting for it happens
		// outside the bracket, so that a stalled database never blocks a rebalance.
		if spare == nil {
			if spare = l.await(ctx); spare == nil {
				break
			}
		}
		l.fetches.adjust(l.client)
		fetches := l.fetch(ctx, due, room)

		now := l.deps.Clock()
		if l.open == nil && !fetches.Empty() {
			l.begin(spare, now)
			spare = nil
		}
		err = l.absorb(fetches, now)
		if l.projection.Until != nil && err == nil {
			if l.complete, err = l.completed(fetches.Empty()); l.complete {
				if l.open == nil {
					l.begin(spare, now)
				}
				l.passGaps()
			}
		}
		due, room = l.sealIfFull(l.deps.Clock())
		troubled := l.troubled
		l.troubled = false
		l.client.AllowRebalance()
		if troubled {
			sleep(ctx, errorPause)
		}
	}
	l.finish()
	return err
}

// begin opens an empty cut. Bracket.
func (l *lane) begin(c *cut, now time.Time) {
	l.cuts++
	l.open = c
	c.begin(l.cuts, now)
}

// await returns an empty cut, or nil when there is no more need of one.
func (l *lane) await(ctx context.Context) *cut {
	now := l.deps.Clock()
	spent := func() { // each turn by itself: an outage must show while it lasts
		since := now
		now = l.deps.Clock()
		l.metrics.spent(stateBlocked, now.Sub(since))
	}
	defer spent()
	for {
		spent()
		l.health.loop.beat(now)
		tick := time.NewTimer(maxPollWait)
		select {
		case c := <-l.free:
			tick.Stop()
			return c
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
	}
}

// fetch waits for up to n records until due, or for a while if nothing is due. It returns inside the bracket.
func (l *lane) fetch(ctx context.Context, due time.Time, n int) kgo.Fetches {
	start := l.deps.Clock()
	l.health.loop.beat(start)
	wait := maxPollWait
	if !due.IsZero() {
		wait = min(wait, due.Sub(start))
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	fetches := l.client.PollRecords(ctx, n)
	if len(fetches) == 0 { // what was ready was discarded meanwhile, and kgo has left the bracket
		fetches = l.enter()
	}
	now := l.deps.Clock()
	l.metrics.spent(stateIdle, now.Sub(start))
	l.health.loop.beat(now)
	return fetches
}

// enter enters the bracket with a poll that fetches nothing: kgo returns the end of its context, and only a poll that
// returns something is in the bracket.
func (l *lane) enter() kgo.Fetches {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	return l.client.PollRecords(done, 1)
}

// absorb maps what was fetched into the open cut and reacts to what kgo reports. Bracket.
func (l *lane) absorb(fetches kgo.Fetches, now time.Time) error {
	var errs []error
	for i := range fetches {
		for j := range fetches[i].Topics {
			t := &fetches[i].Topics[j]
			for k := range t.Partitions {
				p := &t.Partitions[k]
				if p.Err != nil {
					errs = append(errs, l.fetchError(t.Topic, p.Partition, p.Err))
				}
				if len(p.Records) == 0 {
					continue
				}
				if err := l.mapRecords(t.Topic, p); err != nil {
					l.open = nil // its offsets cover records that it does not hold: let it go unsealed
					return err
				}
			}
		}
	}
	l.metrics.spent(stateMapping, l.deps.Clock().Sub(now))
	l.health.kafka.quiet(now, kafkaQuiet)
	return errors.Join(errs...)
}

// mapRecords appends the records of one partition to the open cut. Nothing in its loop locks, looks anything up or
// asks for the time. Bracket.
func (l *lane) mapRecords(topic string, fetched *kgo.FetchPartition) error {
	c := l.open
	pos := l.positions.at(topic, fetched.Partition)
	l.checkContinuity(pos, fetched)
	if fetched.Records = pos.below(fetched.Records); len(fetched.Records) == 0 {
		return nil
	}
	first, last := fetched.Records[0], fetched.Records[len(fetched.Records)-1]
	slot, begun := pos.slotIn(c, first.Offset)
	if begun {
		l.freshness.hold(pos.topic, pos.partition, markOf(first, l.deps.Clock()))
	}
	slot.next, slot.epoch, slot.high = last.Offset+1, last.LeaderEpoch, fetched.HighWatermark
	if last.Timestamp.After(slot.newest) {
		slot.newest = last.Timestamp
	}
	if c.oldest.IsZero() || first.Timestamp.Before(c.oldest) {
		c.oldest = first.Timestamp
	}
	pos.next = slot.next

	appendTo, rows := l.projection.Append, c.rows
	before, n := c.size(), 0
	for _, r := range fetched.Records {
		if r.Attrs.IsControl() { // the mark at the end of a transaction
			r.Recycle()
			continue
		}
		n++
		l.consumed++
		if err := appendTo(rows, r); err != nil {
			if err := l.refuse(c, r, err); err != nil {
				return err
			}
		}
		r.Recycle()
	}
	pos.records.Add(float64(n))
	c.records += n
	if n > 0 {
		l.perRecord = float64(c.size()-before) / float64(n)
	}
	return nil
}

// refuse deals with a record that made no row. Bracket.
func (l *lane) refuse(c *cut, r *kgo.Record, err error) error {
	if errors.Is(err, mapping.ErrIgnored) {
		c.ignored++
		return nil
	}
	reason, ok := errors.AsType[*mapping.Error](err)
	if !ok { // the plan says that there is no such error; guessing would lose the record
		return fmt.Errorf("map %s/%d offset %d: %w", r.Topic, r.Partition, r.Offset, err)
	}
	c.refuse(letter(l.projection.Name, r, reason))
	if l.lastBad+1 == l.consumed {
		l.badRun++
	} else {
		l.badRun = 1
	}
	l.lastBad = l.consumed
	c.run = max(c.run, l.badRun)
	return nil
}

// sealIfFull seals the open cut if one of its limits is reached, and returns when it will be due and how many more
// records may be polled. How many bytes they take is not known before they are mapped, so the average of the last
// fetch stands in; a cut exceeds its bytes by at most what the client has buffered. Bracket.
func (l *lane) sealIfFull(now time.Time) (due time.Time, room int) {
	room, bytes := l.cfg.Batch.Rows, l.cfg.Batch.Bytes
	if c := l.open; c != nil {
		due, room, bytes = c.born.Add(l.cfg.Batch.Delay), room-c.records, bytes-c.size()
		if room <= 0 || bytes <= 0 || !now.Before(due) {
			l.seal()
			due, room, bytes = time.Time{}, l.cfg.Batch.Rows, l.cfg.Batch.Bytes
		}
	}
	if l.perRecord == 0 {
		return due, min(room, firstPortion)
	}
	return due, min(room, int(float64(bytes)/l.perRecord)+1)
}

// seal hands the open cut to the sender, if there is one. It never blocks, because the queue has room for every cut
// of the lane. Called inside the bracket, or by a rebalance callback outside it.
func (l *lane) seal() {
	if l.open == nil {
		return
	}
	c := l.open
	l.open = nil
	l.ledger.take(c)
	l.queue <- c
}

// finish seals what is open and closes the queue. It enters the bracket first: a rebalance callback may be running, and
// it owns the open cut until it returns.
func (l *lane) finish() {
	l.enter()
	l.seal()
	close(l.queue)
	l.client.AllowRebalance()
}
