package projector

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Run starts every lane in order and works until ctx is done, which is a drain: polling stops, sealed cuts are
// acknowledged and committed within Config.DrainTimeout, the groups are left, and Run returns nil. When hard is done,
// Run gives up at once; nothing is lost by that, what is not committed is read again.
//
// Trouble that passes holds up only the projection it concerns. A fatal error of one lane drains all the others and is
// returned: a process of which a part is dead would look alive.
//
// Lanes do not depend on one another, so all of them drain at the same time: DrainTimeout bounds the whole, and no
// lane is handed partitions of a sibling only to give them up again.
func (e *Engine) Run(ctx, hard context.Context) error {
	ctx, drain := context.WithCancel(ctx)
	defer drain()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	fail := func(l *lane, err error) {
		if err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, fmt.Errorf("projection %s lane %d: %w", l.projection.Name, l.number, err))
		drain()
	}
	e.running.Store(true)
	defer e.running.Store(false)
	for _, l := range e.lanes {
		if ctx.Err() != nil {
			break
		}
		if err := l.start(); err != nil {
			fail(l, err)
			break
		}
		wg.Go(func() { fail(l, l.keep(ctx, hard)) })
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wg.Wait()
	}()
	if stuck := e.watch(ended); stuck != nil {
		// A goroutine that does not move cannot be ended from here, only with the process. The others get their drain.
		mu.Lock()
		errs = append(errs, fmt.Errorf("ending the process, because a part of it is dead: %w", stuck))
		mu.Unlock()
		drain()
		rest := time.NewTimer(e.cfg.DrainTimeout + e.cfg.LeaveTimeout)
		defer rest.Stop()
		select {
		case <-ended:
		case <-rest.C:
		}
	}
	mu.Lock()
	defer mu.Unlock()
	return errors.Join(errs...)
}

// watch returns nil when ended is closed, or an error when Live has found the same process dead several times in a
// row: a single look proves nothing after the machine was suspended. Where nobody asks /livez, or asks and does
// nothing, a process whose client is dead would otherwise hold its partitions for ever and project nothing.
func (e *Engine) watch(ended <-chan struct{}) error {
	const looks = 3
	tick := time.NewTicker(e.cfg.StuckAfter / 4)
	defer tick.Stop()
	for dead := 0; ; {
		select {
		case <-ended:
			return nil
		case <-tick.C:
		}
		err := e.Live()
		if err == nil {
			dead = 0
			continue
		}
		if dead++; dead == looks {
			return err
		}
	}
}

// keep runs the started lane, and starts it over with a new client whenever Kafka asks for that.
func (l *lane) keep(ctx, hard context.Context) error {
	pause := newBackoff(l.cfg)
	for {
		err := l.run(ctx, hard)
		l.stop(hard)
		again, ok := errors.AsType[*rejoinError](err)
		if !ok {
			return err
		}
		l.log.Warn().Err(again.err).Msg("starting over with a new Kafka client")
		l.metrics.restarts.Inc()
		if !sleep(ctx, pause.NextBackOff()) {
			return nil // drained meanwhile
		}
		if err := l.start(); err != nil {
			return err
		}
	}
}

// start makes everything that one life of the lane needs. What a lane remembers beyond a life is in its metrics and
// its health.
func (l *lane) start() error {
	l.token = rand.Text()
	l.ledger = newLedger(l.commitOffsets, l.metrics.committed)
	l.fetches = &fetchSize{budget: l.cfg.FetchBytes}
	l.freshness.reset(l.deps.Clock(), time.Duration(l.metrics.busy.Load()))
	l.shared = false
	l.robbed.Store(false)
	l.positions = newPositions(l.metrics.recordsOf, l.projection.below)
	l.lags.reset()
	l.free = make(chan *cut, cutsPerLane)
	l.queue = make(chan *cut, cutsPerLane)
	l.sent = make(chan struct{})
	for range cutsPerLane {
		l.free <- newCut(l.projection.Plan)
	}
	var err error
	if l.inserter, err = l.deps.NewInserter(*l.projection); err != nil {
		return fmt.Errorf("make an inserter: %w", err)
	}
	life, abandon := context.WithCancel(context.Background())
	if err := l.connect(life); err != nil {
		abandon()
		return errors.Join(err, l.inserter.Close())
	}
	l.abandon = abandon
	return nil
}

// run lives until ctx or hard is done or something fails for good. When it returns, the sender has ended and nothing
// of the lane's is in flight.
func (l *lane) run(ctx, hard context.Context) error {
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	defer context.AfterFunc(hard, stopReading)()
	sending, giveUp := context.WithCancelCause(hard)
	defer giveUp(nil)

	var sendErr error
	go func() {
		defer close(l.sent)
		defer stopReading() // a sender that ends leaves nothing to read for
		sendErr = l.send(sending)
	}()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { l.watchTopics(reading) })
	pollErr := l.poll(reading)
	l.health.loop.rest() // the sender may have work for hours

	drained := time.AfterFunc(l.cfg.DrainTimeout, func() { giveUp(errDrainTimeout) })
	if l.complete { // nobody asks for haste before ctx does
		drained.Stop()
		defer context.AfterFunc(ctx, func() { drained.Reset(l.cfg.DrainTimeout) })()
	}
	<-l.sent
	drained.Stop()
	l.health.rest()
	return l.outcome(pollErr, sendErr, context.Cause(sending))
}

// outcome says how a life of the lane ended: nil, a *rejoinError if it is to start over, or an error that is final.
// gaveUp is why the sender was made to stop, if it was.
func (l *lane) outcome(pollErr, sendErr, gaveUp error) error {
	_, rejoin := errors.AsType[*rejoinError](pollErr)
	switch {
	case sendErr == nil:
		return pollErr
	case gaveUp == nil || !errors.Is(sendErr, gaveUp): // it failed by itself
		if rejoin {
			return sendErr
		}
		return errors.Join(pollErr, sendErr)
	case !errors.Is(gaveUp, errDrainTimeout):
		return l.ledger.unacknowledged(errHardStop)
	case rejoin: // ClickHouse may be down for as long as it takes; the next life reads those records again
		l.log.Warn().Err(l.ledger.unacknowledged(errDrainTimeout)).Msg("leaving records behind")
		return pollErr
	default:
		return errors.Join(pollErr, l.ledger.unacknowledged(errDrainTimeout))
	}
}

// stop leaves the group and closes the client and the inserter. If hard is done or the broker does not answer in
// time, the group finds out by itself when the session times out.
func (l *lane) stop(hard context.Context) {
	ctx, cancel := context.WithTimeout(hard, l.cfg.LeaveTimeout)
	defer cancel()
	// kgo closes only when it has an answer to what it last asked the group, whoever is leaving. A broker that is
	// silent, or a member that does not rejoin, keeps the answer to a join back for as long as a rebalance may take.
	defer context.AfterFunc(ctx, l.abandon)()
	defer l.abandon()
	if err := l.leave(ctx); err != nil {
		l.log.Warn().Err(err).Msg("left without telling the group, which waits for the session to time out")
	}
	l.client.CloseAllowingRebalance()
	// Close ends with a poll of its own. If that finds records, it leaves the bracket shut, and a goroutine of Close
	// that comes late waits for it for ever.
	l.client.AllowRebalance()
	if err := l.inserter.Close(); err != nil {
		l.log.Warn().Err(err).Msg("close the inserter")
	}
}

// leave tells the group, at most until ctx is done. kgo does so only when a join that is under way has been answered,
// and members that are slow or dead keep that answer back. A group in which members come and go would then collect
// dead ones, each of which holds up the next rebalance for as long as a rebalance may take. So after a while the lane
// tells the group itself, upon which the broker answers the join as well.
func (l *lane) leave(ctx context.Context) error {
	left := make(chan error, 1)
	go func() { left <- l.client.LeaveGroupContext(ctx) }()
	patience := time.NewTimer(l.cfg.LeaveTimeout / 3)
	defer patience.Stop()
	select {
	case err := <-left:
		return err
	case <-patience.C:
	}
	if member, _ := l.client.GroupMetadata(); member != "" {
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Group, r.MemberID = l.projection.Group, member // the member of brokers before 2.4, the list of those since
		r.Members = []kmsg.LeaveGroupRequestMember{{MemberID: member}}
		if _, err := r.RequestWith(ctx, l.client); err != nil {
			l.log.Debug().Err(err).Msg("tell the group without waiting for the join")
		}
	}
	return <-left
}
