package ops

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// asked is a server that counts how often it is asked.
type asked struct {
	calls, now, most atomic.Int32
	takes            atomic.Int64 // nanoseconds
	err              error
}

func (a *asked) ask(ctx context.Context) (int, error) {
	defer a.now.Add(-1)
	a.most.Store(max(a.most.Load(), a.now.Add(1)))
	n := a.calls.Add(1)
	select {
	case <-time.After(time.Duration(a.takes.Load())):
		return int(n), a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// questioned runs f in a bubble with a running question of at most one in 5 s and 10 s each.
func questioned(t *testing.T, f func(*asked, *Question[int])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &asked{}
		q := NewQuestion(5*time.Second, 10*time.Second, a.ask)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { q.Run(ctx) })
		f(a, q)
		cancel()
		running.Wait()
	})
}

// answered is what somebody gets who waits for a second.
func answered(q *Question[int]) Answer[int] {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return q.Answer(ctx)
}

func TestQuestionIsSharedByAll(t *testing.T) {
	questioned(t, func(a *asked, q *Question[int]) {
		a.takes.Store(int64(100 * time.Millisecond))
		var viewers sync.WaitGroup
		for range 100 { // each looks twice a second for a minute
			viewers.Go(func() {
				for range 120 {
					if got := answered(q); got.Err != nil || got.Value < 1 {
						t.Errorf("%+v", got)
					}
					time.Sleep(500 * time.Millisecond) //nolint:forbidigo // the bubble's clock is fake
				}
			})
		}
		viewers.Wait()
		if n := a.calls.Load(); n < 10 || n > 13 || a.most.Load() != 1 {
			t.Errorf("asked %d times in a minute, %d at once", n, a.most.Load())
		}
	})
}

func TestQuestionIsNotAskedWhenNobodyLooks(t *testing.T) {
	questioned(t, func(a *asked, q *Question[int]) {
		time.Sleep(time.Hour) //nolint:forbidigo // the bubble's clock is fake
		if n := a.calls.Load(); n != 0 {
			t.Fatalf("asked %d times", n)
		}
		if got := answered(q); got.Value != 1 || got.Err != nil {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Hour) //nolint:forbidigo // the bubble's clock is fake
		if n := a.calls.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		// What was true an hour ago is not shown as true now.
		if got := answered(q); got.Value != 2 || got.Err != nil || time.Since(got.At) != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A question that takes two seconds is asked each 40: a server works on it for a twentieth of the time.
func TestQuestionSparesTheServer(t *testing.T) {
	questioned(t, func(a *asked, q *Question[int]) {
		a.takes.Store(int64(2 * time.Second))
		for range 600 {
			answered(q)
			time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock is fake
		}
		if n := a.calls.Load(); n < 12 || n > 17 {
			t.Errorf("asked %d times in 600 to 640 s", n)
		}
	})
}

func TestQuestionWithoutAnAnswer(t *testing.T) {
	questioned(t, func(a *asked, q *Question[int]) {
		a.takes.Store(int64(time.Hour)) // a server that hangs
		if got := answered(q); got.Err == nil || !got.At.IsZero() {
			t.Errorf("%+v", got)
		}
		time.Sleep(9 * time.Second) //nolint:forbidigo // the bubble's clock is fake
		synctest.Wait()
		if got := answered(q); !errors.Is(got.Err, context.DeadlineExceeded) {
			t.Errorf("%+v", got)
		}
		// The last answer stands in while the next one is awaited.
		for range 60 {
			if got := answered(q); !errors.Is(got.Err, context.DeadlineExceeded) {
				t.Errorf("%+v", got)
			}
			time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock is fake
		}
		a.takes.Store(0)
		time.Sleep(20 * time.Second) //nolint:forbidigo // the bubble's clock is fake
		if got := answered(q); got.Err != nil || got.Value == 0 {
			t.Errorf("%+v", got)
		}
	})
}
