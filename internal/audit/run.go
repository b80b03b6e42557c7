package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// patience is how long a change of state is tried while the server does not
// answer: as long as the rows themselves would be.
const patience = 5 * time.Minute

// endTimeout bounds the last line of a record, when all else has ended.
const endTimeout = 15 * time.Second

// Run is one process's hold of an operation. Its methods may be called by
// several goroutines.
type Run struct {
	log *Log

	mu sync.Mutex
	op Operation
}

// Operation returns the operation as this process last wrote it.
func (r *Run) Operation() Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.op
}

// Advance edits the operation and writes it, as a checkpoint or a change of
// state. It repeats what the server does not answer for up to five minutes, and
// writes nothing twice: it looks first what the record holds. ErrTaken says
// that another process has the operation now; this one must stop.
func (r *Run) Advance(ctx context.Context, edit func(*Operation)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	op := r.op
	edit(&op)
	if !slices.Contains(next[r.op.State], op.State) {
		return &StateError{r.op.ID, r.op.State, op.State}
	}
	op.ID, op.Holder, op.Sequence = r.op.ID, r.op.Holder, r.op.Sequence+1
	var cause error
	op, err := backoff.Retry(ctx, func() (tried Operation, err error) {
		tried, err = r.attempt(ctx, op)
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			cause = err
		}
		return tried, err
	}, backoff.WithBackOff(backoff.NewExponentialBackOff()), backoff.WithMaxElapsedTime(patience))
	switch {
	case err != nil && ctx.Err() != nil && cause != nil: // else it would be said only that the time is over
		return fmt.Errorf("%w: %w", err, cause)
	case err != nil:
		return err
	}
	r.op = op
	return nil
}

// End writes how this process's work has ended: the operation is applied, or
// failed with failed's text, unless edit says otherwise. It returns failed, joined
// with what kept it from writing. A signal ends the work and not the record of it:
// that ctx is done does not matter, and what is written is tried for 15 s.
func (r *Run) End(ctx context.Context, failed error, edit func(*Operation)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return errors.Join(failed, r.Advance(ctx, func(op *Operation) {
		op.State = Applied
		if failed != nil {
			op.State, op.Error = Failed, failed.Error()
		}
		edit(op)
	}))
}

func (r *Run) attempt(ctx context.Context, op Operation) (Operation, error) {
	now, _, err := r.log.current(ctx, op.ID)
	switch {
	case errors.Is(err, ErrUnknown):
		return op, backoff.Permanent(err)
	case err != nil:
		return op, err
	case now.Holder != op.Holder:
		return op, backoff.Permanent(fmt.Errorf("operation %s: %w: %s", op.ID, ErrTaken, now.Holder))
	case now.Sequence == op.Sequence: // written by an attempt whose answer was lost
		return now, nil
	}
	return op, r.log.insert(ctx, op, "")
}

// Keep gives a sign of life whenever nothing else was written for a third of
// the lease, until ctx is done. It returns nil then, and an error if another
// process has taken the operation over or the record cannot be written.
func (r *Run) Keep(ctx context.Context) error {
	tick := time.NewTicker(r.log.lease / 3)
	defer tick.Stop()
	last := r.Operation().Sequence
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if op := r.Operation(); op.Sequence != last || op.State != Running {
			last = op.Sequence
			continue
		}
		if err := r.Advance(ctx, func(*Operation) {}); err != nil {
			if ctx.Err() != nil {
				return nil // the work is over, and with it the need for signs
			}
			return err
		}
		last = r.Operation().Sequence
	}
}
