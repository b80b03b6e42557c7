package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/chprojector/projector/internal/audit"
)

// Worker repairs some records of one campaign and returns what became of each,
// in the same order. What it has done when it is killed, it recognises the next
// time.
type Worker interface {
	Work(ctx context.Context, campaign string, items []audit.Item) ([]audit.Item, error)
}

// Recorder keeps the states of items.
type Recorder interface {
	Add(ctx context.Context, list ...audit.Item) error
}

// Counts are how many records of a repair are in which state.
type Counts struct {
	Records  int `json:"records"`
	Applied  int `json:"applied"` // verified and refuted ones included
	Skipped  int `json:"skipped"`
	Verified int `json:"verified"`
	Refuted  int `json:"refuted"`
}

// Count counts the items.
func Count(items []audit.Item) Counts {
	c := Counts{Records: len(items)}
	for _, item := range items {
		switch item.State {
		case Applied:
			c.Applied++
		case Skipped:
			c.Skipped++
		case Verified:
			c.Verified++
		case Refuted:
			c.Refuted++
		}
	}
	return c
}

// chunkItems is how many records are asked for and written at once.
const chunkItems = 500

// Execute works on the items that are still to be repaired, perSecond records a
// second at most (0 is no limit), and keeps the record: what became of each
// item, signs of life, and in the end applied or failed. progress is told how
// many items are done.
func Execute(ctx context.Context, run *audit.Run, w Worker, record Recorder, items []audit.Item, perSecond int, progress func(done int)) error {
	group, work := errgroup.WithContext(ctx)
	keeping, done := context.WithCancel(work)
	group.Go(func() error { return run.Keep(keeping) })
	group.Go(func() error {
		defer done()
		return each(work, w, record, items, perSecond, progress)
	})
	err := group.Wait()
	if errors.Is(err, audit.ErrTaken) {
		return err
	}
	outcome, _ := json.Marshal(Count(items))
	return run.End(ctx, err, func(op *audit.Operation) { op.Outcome = outcome })
}

// each works through the items in chunks of one campaign, and puts what became
// of them back into the list.
func each(ctx context.Context, w Worker, record Recorder, items []audit.Item, perSecond int, progress func(int)) error {
	size, limiter := chunkItems, rate.NewLimiter(rate.Inf, chunkItems)
	if perSecond > 0 {
		size = min(size, perSecond)
		limiter = rate.NewLimiter(rate.Limit(perSecond), size)
	}
	for from := 0; from < len(items); {
		if s := items[from].State; s != Planned && s != Removing {
			from++
			continue
		}
		to := from
		for to < len(items) && to-from < size && items[to].Campaign == items[from].Campaign && (items[to].State == Planned || items[to].State == Removing) {
			to++
		}
		if err := limiter.WaitN(ctx, to-from); err != nil {
			return fmt.Errorf("wait for the rate of %d records a second: %w", perSecond, err)
		}
		changed, err := w.Work(ctx, items[from].Campaign, items[from:to])
		if err != nil {
			return err
		}
		if err := record.Add(ctx, changed...); err != nil {
			return err
		}
		copy(items[from:to], changed)
		from = to
		progress(from)
	}
	return nil
}
