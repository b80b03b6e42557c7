package replay

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/time/rate"

	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

// Origin is what the rows of the plan have in _origin.
func (p *Plan) Origin() string { return "replay:" + p.ID }

// run is a replay under way.
type run struct {
	*Job
	plan   *Plan
	ctx    context.Context         //nolint:containedctx // of reads that the engine's callbacks make; they get none
	end    context.CancelCauseFunc // in good order: the group learns that the member has left
	turn   string                  // of its notes
	until  map[int32]int64         // where the lane ends: after the last chosen letter
	stored atomic.Int64

	mu     sync.Mutex
	failed deadletter.Summary
}

// Run replays the letters of a plan. It returns nil when each is acknowledged: by ClickHouse as a row, or by the
// dead-letter topic as a letter that was replayed once more. When ctx is done it stops in good order, when hard is
// done at once; the error then says what was not done, and the same command again goes on from there. It must have the
// turn (see AwaitTurn). If another replay was at work since the letters were read, the plan is not carried out: what
// that one has parked again it would park once more. The error wraps ErrBusy.
func (j *Job) Run(ctx, hard context.Context, plan *Plan) (result Result, err error) {
	if err := cmp.Or(plan.busy, j.busy(ctx)); err != nil {
		return result, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &run{Job: j, plan: plan, ctx: hard, end: cancel, turn: rand.Text(), until: map[int32]int64{}}
	r.failed.Now = j.deps.Clock()
	err = r.engine(ctx, hard)
	result = Result{Stored: int(r.stored.Load()), Failed: r.failed.Groups()}
	if cause := context.Cause(ctx); errors.Is(cause, kafka.ErrGroupBusy) {
		err = cause
	} else if err == nil && cause != nil {
		err = errors.New("stopped before the end; the same command goes on from here")
	}
	if err != nil {
		return result, lockLost(err)
	}
	for _, chosen := range plan.chosen {
		for i := range chosen {
			switch c := &chosen[i]; {
			case !c.read:
				result.Expired++
			case c.ignored:
				result.Ignored++
			}
		}
	}
	return result, nil
}

// lockLost names what it means that the group is another's.
func lockLost(err error) error {
	if errors.Is(err, kafka.ErrGroupBusy) || errors.Is(err, projector.ErrShared) {
		return fmt.Errorf("%w, or was since these were read; when it has ended, give the same command again: %w", ErrBusy, err)
	}
	return err
}

// engine runs a lane over the chosen letters.
func (r *run) engine(ctx, hard context.Context) error {
	config := r.deps.Engine
	config.StopRatio, config.StopRun = 0, 0 // letters are known to be bad: many that fail again are no news
	config.SessionTimeout = sessionTimeout(config)
	config.HeartbeatInterval = min(config.HeartbeatInterval, config.SessionTimeout/3)
	if r.options.Rate > 0 {
		config.Batch.Rows = min(config.Batch.Rows, r.options.Rate) // so that a batch waits for a second at most
	}
	kept, err := r.deps.Letters.Since(ctx, r.target.Topic, time.Time{})
	if err != nil {
		return err
	}
	from := map[int32]int64{}
	for _, o := range kept { // what has expired since the plan was made never comes
		s, planned := r.plan.spans[o.Partition]
		if !planned {
			continue
		}
		from[o.Partition] = max(s.start, o.Start)
		r.until[o.Partition] = from[o.Partition]
		if chosen := r.plan.chosen[o.Partition]; len(chosen) > 0 {
			r.until[o.Partition] = max(from[o.Partition], chosen[len(chosen)-1].offset+1)
		}
	}
	engine, err := projector.New(config, []projector.Projection{{
		Name: r.target.Projection, Topics: []string{r.target.Topic}, Group: r.Group(), Plan: r.target.Plan, Lanes: 1,
		Origin: r.plan.Origin(), Append: r.append, OnCommit: r.annotate,
		From: map[string]map[int32]int64{r.target.Topic: from}, Until: map[string]map[int32]int64{r.target.Topic: r.until},
	}}, projector.Deps{
		Kafka:       append(r.deps.Kafka[:len(r.deps.Kafka):len(r.deps.Kafka)], kgo.OnOffsetsFetched(r.mine)),
		NewInserter: r.newInserter,
		DeadLetters: r,
		Records:     r,
		Log:         r.deps.Log.Level(max(zerolog.WarnLevel, r.deps.Log.GetLevel())),
		Registerer:  prometheus.NewRegistry(),
		Clock:       r.deps.Clock,
	})
	if err != nil {
		return err
	}
	told := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { r.tell(told) })
	err = engine.Run(ctx, hard)
	close(told)
	wg.Wait()
	return err
}

// tell logs how far it is.
func (r *run) tell(end <-chan struct{}) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.mu.Lock()
			failed := r.failed.Total()
			r.mu.Unlock()
			r.deps.Log.Info().Int64("stored", r.stored.Load()).Int("failed_again", failed).Int("of", r.plan.Chosen).Msg("replaying")
		case <-end:
			return
		}
	}
}

// append makes the row of a chosen letter, for the lane.
func (r *run) append(rows *mapping.Rows, record *kgo.Record) error {
	c := r.plan.chose(record.Partition, record.Offset)
	if c == nil {
		return mapping.ErrIgnored
	}
	c.read = true
	err := r.deps.Letters.Append(r.ctx, r.target.Plan, rows, deadletter.Open(record), r.plan.Origin())
	c.ignored = errors.Is(err, mapping.ErrIgnored)
	return err
}

// annotate writes the progress beside each commit.
func (r *run) annotate(req *kmsg.OffsetCommitRequest) error {
	for t := range req.Topics {
		for p := range req.Topics[t].Partitions {
			partition := &req.Topics[t].Partitions[p]
			partition.Metadata = new(r.note(partition.Partition, partition.Offset).text())
		}
	}
	return nil
}

// mine is told the group's commits when the lane has been given its partitions: no other replay commits from then on. It
// ends the run unless they are what they were before the letters were read, or this run's own: another replay was at
// work in between.
func (r *run) mine(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) (err error) {
	check := func(partition int32, offset int64, metadata *string) {
		was, known := r.plan.commits[partition]
		switch note := unpointed(metadata); {
		case offset < 0 && !known, offset >= 0 && known && offset == was.Offset && note == was.Metadata:
		default:
			if state, _ := parseProgress(note); state.Turn != r.turn {
				err = fmt.Errorf("offset %d of %s/%d is committed by replay %q: %w", offset, r.target.Topic, partition, state.Replay, kafka.ErrGroupBusy)
			}
		}
	}
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				check(p.Partition, p.Offset, p.Metadata)
			}
		}
	}
	if err != nil {
		r.end(err)
	}
	return err
}

func unpointed(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Park parks letters that failed again, and counts them.
func (r *run) Park(ctx context.Context, letters []projector.Letter) error {
	if err := r.deps.Parker.Park(ctx, letters); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range letters {
		l := &letters[i]
		again := deadletter.Open(&kgo.Record{Headers: l.Headers, Timestamp: r.failed.Now})
		again.Info.Class, again.Info.Column, again.Info.Error = string(l.Error.Class), l.Error.Column, l.Error.Error()
		again.Info.Replays++
		again.Info.Projection = r.target.Projection
		r.failed.Add(again)
	}
	return nil
}

// Again finds a letter again by the place of its record, which is what the rows of a replay carry as lineage.
func (r *run) Again(ctx context.Context, of mapping.Lineage) (*kgo.Record, error) {
	at := deadletter.PlaceOf(of)
	for parkedIn, chosen := range r.plan.chosen {
		for i := range chosen {
			if chosen[i].place == at {
				l, err := r.deps.Letters.At(ctx, r.target.Topic, parkedIn, chosen[i].offset)
				if err != nil {
					return nil, err
				}
				return l.Record, nil
			}
		}
	}
	return nil, fmt.Errorf("no letter of %s/%d@%d was chosen: %w", r.target.Source, of.Partition, of.Offset, projector.ErrRecordGone)
}

func (r *run) newInserter(projector.Projection) (projector.Inserter, error) {
	in, err := r.deps.NewInserter()
	if err != nil {
		return nil, err
	}
	limit := rate.NewLimiter(rate.Inf, 0)
	if n := r.options.Rate; n > 0 {
		limit = rate.NewLimiter(rate.Limit(n), n)
	}
	return &inserter{in, limit, &r.stored}, nil
}

// inserter counts what it inserts and keeps to a rate.
type inserter struct {
	projector.Inserter
	limit  *rate.Limiter
	stored *atomic.Int64
}

// Insert inserts b when its turn has come.
func (in *inserter) Insert(ctx context.Context, b projector.Batch) error {
	if err := in.limit.WaitN(ctx, b.To-b.From); err != nil {
		return &projector.InsertError{Class: projector.Transient, Err: fmt.Errorf("wait for the rate limit: %w", err)}
	}
	if err := in.Inserter.Insert(ctx, b); err != nil {
		return err
	}
	in.stored.Add(int64(b.To - b.From))
	return nil
}
