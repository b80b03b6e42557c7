package main

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// part is one of several that a process works on at a time. It ends what it has
// begun once work is done, and gives up when hard is.
type part func(work, hard context.Context) error

// together runs all parts until ctx is done or one of them fails for good; then
// all of them end, within grace. A process of which a part is dead would look
// alive. asked is called when the end begins because ctx is done, and has
// returned when together does.
func together(ctx context.Context, parts []part, grace time.Duration, asked func()) error {
	group, work := errgroup.WithContext(ctx)
	hard, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	var ending sync.WaitGroup
	ending.Go(func() {
		<-work.Done()
		if ctx.Err() != nil {
			asked()
		}
		time.AfterFunc(grace, giveUp)
	})
	for _, p := range parts {
		group.Go(func() error { return p(work, hard) })
	}
	err := group.Wait() // which ends work as well
	ending.Wait()
	return err
}

// beside runs works until ctx is done or the function that it returns is called, which waits for them.
func beside(ctx context.Context, works ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, work := range works {
		running.Go(func() { work(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}
