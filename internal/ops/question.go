package ops

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Question asks a server one thing for everybody who wants to know it. However
// many ask for the answer, the server is asked at most once at a time and not
// again before a pause, which grows with the time that answers take. While
// nobody asks, neither is the server.
type Question[T any] struct {
	every   time.Duration
	timeout time.Duration
	ask     func(context.Context) (T, error)
	wanted  chan struct{} // of capacity 1: that it is, not how often

	mu       sync.Mutex
	answer   Answer[T]
	pause    time.Duration // after answer
	took     time.Duration // the answer
	answered chan struct{} // closed by the next answer
}

// Answer is what a server said, or why it did not.
type Answer[T any] struct {
	Value T
	Err   error
	At    time.Time // when the answer came; zero: not asked yet
}

// busyShare bounds the share of time for which a server works on one question:
// one twentieth. A table whose newest row takes two seconds to find is not
// asked for it every five.
const busyShare = 20

// NewQuestion makes a question that is asked at most once in every, and each
// time for at most timeout. Nothing is asked before Run.
func NewQuestion[T any](every, timeout time.Duration, ask func(context.Context) (T, error)) *Question[T] {
	return &Question[T]{every: every, timeout: timeout, ask: ask, wanted: make(chan struct{}, 1), answered: make(chan struct{})}
}

// Run asks whenever an answer is wanted, until ctx is done.
func (q *Question[T]) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.wanted:
		}
		pause := time.NewTimer(q.once(ctx))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// once asks and returns how long to pause then.
func (q *Question[T]) once(ctx context.Context) time.Duration {
	limited, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	begin := time.Now()
	value, err := q.ask(limited)
	now := time.Now()
	took := now.Sub(begin)
	if err != nil { // a server that does not answer is not kept busy by asking
		took = 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	// The faster of two: one answer that came late because a server has just
	// started is not what the question costs.
	q.answer, q.pause, q.took = Answer[T]{value, err, now}, max(q.every, busyShare*min(took, q.took)), took
	close(q.answered)
	q.answered = make(chan struct{})
	return q.pause
}

// Answer returns the newest answer. When that is due to be asked for again, the
// next one is awaited until ctx is done. If it has not come by then, the last
// one stands in for it; but one from a time when nobody asked is old news, and
// the answer is then an error that says so.
func (q *Question[T]) Answer(ctx context.Context) Answer[T] {
	q.mu.Lock()
	answer, pause, answered := q.answer, q.pause, q.answered
	q.mu.Unlock()
	age := time.Since(answer.At)
	if !answer.At.IsZero() && age < pause {
		return answer
	}
	select {
	case q.wanted <- struct{}{}:
	default: // somebody else has asked
	}
	select {
	case <-answered:
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.answer
	case <-ctx.Done():
	}
	if !answer.At.IsZero() && age < pause+q.timeout+oldNews {
		return answer
	}
	return Answer[T]{Err: fmt.Errorf("no answer yet; it is waited for %s", q.timeout)}
}

// oldNews is how long after an answer is due the next one must have come, if
// somebody asks all the time.
const oldNews = 10 * time.Second
