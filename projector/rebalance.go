package projector

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// assigned is called by kgo when the group has given its partitions out, even if this member got none.
func (l *lane) assigned(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	n := count(partitions)
	member, _ := l.client.GroupMetadata()
	l.member.Store(member)
	l.health.joined.Store(true)
	l.freshness.own(partitions)
	l.shared = l.shared || l.projection.Until != nil && !holdsAll(partitions, l.projection.Until)
	l.metrics.assigned.Add(float64(n))
	l.log.Info().Int("partitions", n).Any("assigned", partitions).Msg("joined the group")
}

// revoked is called by kgo, outside the bracket, before partitions go to another member. It seals the open cut and
// waits for the cuts that hold rows of those partitions, so that the next owner begins where this one stopped. The
// group waits meanwhile, hence the budget; past it the offsets are given up: the rows may still be inserted, which is
// harmless, and are read again.
//
// A lane that is another member by now was expelled, and learnt it from a refused commit and not from a heartbeat:
// kgo then joins anew and calls this instead of lost.
func (l *lane) revoked(ctx context.Context, _ *kgo.Client, partitions map[string][]int32) {
	n := count(partitions)
	if n == 0 { // the end of a group session in which nothing changed hands
		return
	}
	l.shared = l.projection.Until != nil
	if member, _ := l.client.GroupMetadata(); member != l.member.Load() {
		l.lost(ctx, nil, partitions)
		return
	}
	start := l.deps.Clock()
	l.seal()
	inTime := l.settled(partitions)
	if inTime && l.ledger.dueOf(partitions) { // refused by the group earlier: this is the last chance
		ctx, cancel := context.WithTimeout(ctx, l.cfg.CommitTimeout)
		_ = l.ledger.flush(ctx) // counted; the next owner reads again what stays due
		cancel()
	}
	forgotten := l.release(nil, partitions)
	l.metrics.revoked.Add(float64(n))
	level := zerolog.InfoLevel
	if forgotten > 0 {
		level = zerolog.WarnLevel
	}
	l.log.WithLevel(level).Int("partitions", n).Int("forgotten", forgotten).Dur("took", l.deps.Clock().Sub(start)).Any("revoked", partitions).Msg("gave partitions back")
}

// settled waits until no sealed cut would commit an offset of the partitions, at most for the budget, and reports
// whether that was in time.
func (l *lane) settled(partitions map[string][]int32) bool {
	budget := time.NewTimer(l.cfg.RevokeBudget)
	defer budget.Stop()
	for _, done := range l.ledger.holding(partitions) {
		select {
		case <-done:
		case <-l.sent: // nothing will be settled any more
			return false
		case <-budget.C:
			return false
		}
	}
	return true
}

// lost is called by kgo, outside the bracket, when the group has already given the partitions to others: nothing of
// them may be committed any more.
func (l *lane) lost(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	l.health.joined.Store(false)
	n := count(partitions)
	if n == 0 { // kgo says so again for every attempt to join while the coordinator is away
		return
	}
	forgotten := l.release(l.open, partitions)
	l.metrics.lost.Add(float64(n))
	l.log.Warn().Int("forgotten", forgotten).Any("lost", partitions).Msg("was expelled from the group")
}

// release lets go of partitions and returns how many offsets were given up by that, those of open among them.
func (l *lane) release(open *cut, partitions map[string][]int32) (forgotten int) {
	forgotten = l.ledger.forget(open, partitions)
	l.positions.drop(partitions)
	l.lags.drop(partitions)
	l.freshness.disown(partitions)
	l.metrics.forgotten.Add(float64(forgotten))
	if forgotten > 0 && l.complete {
		l.robbed.Store(true)
	}
	return forgotten
}

// errOtherMember is why a commit is not sent.
var errOtherMember = errors.New("the group has expelled this lane, which joins again: what it held before is no longer its to commit")

// commitOffsets commits as the member that was given the partitions, or not at all. A broker accepts an offset of any
// partition from any member, so after an expulsion that a refused commit has told, what is still due would overwrite
// the next owner's higher offsets.
func (l *lane) commitOffsets(ctx context.Context, o offsets, done onCommit) {
	ctx = kgo.PreCommitFnContext(ctx, func(r *kmsg.OffsetCommitRequest) error {
		if r.MemberID != l.member.Load() {
			return errOtherMember
		}
		if l.projection.OnCommit != nil {
			return l.projection.OnCommit(r)
		}
		return nil
	})
	l.client.CommitOffsetsSync(ctx, o, done)
}

// count returns how many partitions there are.
func count(partitions map[string][]int32) int {
	n := 0
	for _, ps := range partitions {
		n += len(ps)
	}
	return n
}
