package replay

import (
	"context"
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
	ctx    context.Context //nolint:containedctx // of reads that the engine's callbacks make; they get none
	cancel context.CancelCauseFunc
	stored atomic.Int64

	mu     sync.Mutex
	failed deadletter.Summary
}

// Run replays the letters of a plan. It returns nil when each is acknowledged: by ClickHouse as a row, or by the
// dead-letter topic as a letter that was replayed once more. When ctx is done it stops in good order, when hard is
// done at once; the error then says what was not done, and the same Plan again goes on from there. It must have the
// turn (see AwaitTurn).
func (j *Job) Run(ctx, hard context.Context, plan *Plan) (result Result, err error) {
	if err := j.busy(ctx); err != nil {
		return result, err
	}
	start := func(s span) int64 { return s.start }
	if err := j.deps.Admin.Commit(ctx, j.Group(), j.commits(plan, start, false)); err != nil {
		return result, j.lockLost(err)
	}
	if plan.Chosen > 0 {
		hard, cancel := context.WithCancelCause(hard)
		defer cancel(nil)
		r := &run{Job: j, plan: plan, ctx: hard, cancel: cancel}
		r.failed.Now = j.deps.Clock()
		err = r.engine(ctx, hard)
		result = Result{Stored: int(r.stored.Load()), Failed: r.failed.Groups()}
		if err == nil && ctx.Err() != nil {
			err = errors.New("stopped before the end; the same command goes on from here")
		}
		if err != nil {
			return result, j.lockLost(err)
		}
		result.Ignored = plan.Chosen - result.Stored - result.FailedLetters()
	}
	if plan.Remaining > 0 {
		return result, nil // the same command goes on with them
	}
	until := func(s span) int64 { return s.until }
	return result, j.lockLost(j.deps.Admin.Commit(hard, j.Group(), j.commits(plan, until, true)))
}

// lockLost names what it means that the group is another's.
func (j *Job) lockLost(err error) error {
	if errors.Is(err, kafka.ErrGroupBusy) || errors.Is(err, projector.ErrShared) {
		return fmt.Errorf("%w: it began at the same time; wait until it has ended, then give the same command again: %w", ErrBusy, err)
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
	until := map[int32]int64{}
	for partition, s := range r.plan.spans {
		until[partition] = s.start
		if chosen := r.plan.chosen[partition]; len(chosen) > 0 {
			until[partition] = chosen[len(chosen)-1].offset + 1
		}
	}
	engine, err := projector.New(config, []projector.Projection{{
		Name: r.target.Projection, Topics: []string{r.target.Topic}, Group: r.Group(), Plan: r.target.Plan, Lanes: 1,
		Origin: r.plan.Origin(), Append: r.append, Until: map[string]map[int32]int64{r.target.Topic: until}, OnCommit: r.annotate,
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
	if cause := context.Cause(hard); errors.Is(cause, kafka.ErrGroupBusy) {
		return cause
	}
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
	if !r.plan.chose(record.Partition, record.Offset) {
		return mapping.ErrIgnored
	}
	return r.deps.Letters.Append(r.ctx, r.target.Plan, rows, deadletter.Open(record), r.plan.Origin())
}

// annotate writes the progress beside each commit.
func (r *run) annotate(req *kmsg.OffsetCommitRequest) error {
	for t := range req.Topics {
		for p := range req.Topics[t].Partitions {
			partition := &req.Topics[t].Partitions[p]
			state := progress{Replay: r.plan.ID, Selection: r.selection, Until: r.plan.spans[partition.Partition].until}
			partition.Metadata = new(state.text())
		}
	}
	return nil
}

// mine ends the run if the commits that it would go on from are not its own: another replay has begun between the
// look at the group and the joining of it.
func (r *run) mine(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	check := func(metadata *string) {
		var state progress
		if metadata != nil {
			state, _ = parseProgress(*metadata)
		}
		if state.Replay != r.plan.ID {
			r.cancel(fmt.Errorf("its commits are those of replay %s: %w", state.Replay, kafka.ErrGroupBusy))
		}
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			check(p.Metadata)
		}
	}
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				check(p.Metadata)
			}
		}
	}
	return context.Cause(r.ctx)
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
