package projector

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// startsAt is called by kgo with the committed offsets of newly assigned partitions, before it reads from them. An
// error ends the group session; kgo joins again and asks again.
func (l *lane) startsAt(ctx context.Context, fetched map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	if l.projection.Start == StartLatest {
		for topic, partitions := range fetched {
			if l.begun[topic] { // a group without commits has lost them with a topic that was created anew
				continue
			}
			if err := l.pinLatest(ctx, topic, partitions); err != nil {
				l.log.Warn().Err(err).Str("topic", topic).Msg("cannot settle where to start: joining the group again")
				return nil, fmt.Errorf("settle where to start in %s: %w", topic, err)
			}
			l.begun[topic] = true
		}
	}
	for topic, from := range l.projection.From {
		if partitions := fetched[topic]; partitions != nil && !l.begun[topic] {
			at := map[int32]kgo.EpochOffset{}
			for p, offset := range from {
				at[p] = kgo.EpochOffset{Epoch: -1, Offset: offset}
			}
			if err := l.pin(ctx, topic, partitions, at); err != nil {
				l.log.Warn().Err(err).Str("topic", topic).Msg("cannot commit where to start: joining the group again")
				return nil, fmt.Errorf("settle where to start in %s: %w", topic, err)
			}
			l.begun[topic] = true
		}
	}
	l.positions.begin(fetched)
	l.lags.begin(fetched)
	return fetched, nil
}

// pinLatest makes "latest" safe. Taken literally, each partition without a commit would start at its end, every time:
// a lane that crashes before its first commit would skip what came meanwhile, and so would a partition added to the
// topic later. So the first lane of a group commits the ends of all partitions before anything is read, and a
// partition that has no commit while others of its topic have one is new, and read from its beginning.
//
// "Latest" is when the group began, so a lane pins a topic once. If the topic is deleted and created again while the
// lane lives, its commits are gone, and everything in the new one came after the start: it is read from its beginning.
//
// Two lanes that are first at the same time both pin. The later one wins, which only moves the moment at which the
// group starts: ends are read before commits, so that a pin never skips what another lane has read in between.
func (l *lane) pinLatest(ctx context.Context, topic string, partitions map[int32]kgo.Offset) error {
	pinned := true
	for _, at := range partitions {
		pinned = pinned && at.EpochOffset().Offset >= 0
	}
	if pinned {
		return nil
	}
	admin := kadm.NewClient(l.client)
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("list the ends of the topic: %w", err)
	}
	commits, err := admin.FetchOffsets(ctx, l.projection.Group)
	if err == nil {
		err = commits.Error()
	}
	if err != nil {
		return fmt.Errorf("read the group's commits: %w", err)
	}
	if len(commits[topic]) == 0 {
		at := map[int32]kgo.EpochOffset{}
		for p, end := range ends[topic] {
			at[p] = kgo.EpochOffset{Epoch: end.LeaderEpoch, Offset: end.Offset}
		}
		return l.pin(ctx, topic, partitions, at)
	}
	for p, at := range partitions {
		if at.EpochOffset().Offset >= 0 {
			continue
		}
		if c, ok := commits[topic][p]; ok { // pinned by another lane since kgo asked
			partitions[p] = kgo.NewOffset().At(c.At).WithEpoch(c.LeaderEpoch)
		}
	}
	return nil
}

// pin commits offsets of all partitions of a topic and starts this lane's there.
func (l *lane) pin(ctx context.Context, topic string, partitions map[int32]kgo.Offset, at map[int32]kgo.EpochOffset) error {
	pins := offsets{topic: at}
	for p, start := range at {
		if _, ok := partitions[p]; ok {
			partitions[p] = kgo.NewOffset().At(start.Offset).WithEpoch(start.Epoch)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.CommitTimeout)
	defer cancel()
	if l.projection.OnCommit != nil {
		ctx = kgo.PreCommitFnContext(ctx, l.projection.OnCommit)
	}
	var result error
	l.client.CommitOffsetsSync(ctx, pins, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if result = err; err == nil {
			result = refusals(pins, resp)
		}
	})
	if result != nil {
		return fmt.Errorf("commit the ends of the topic: %w", result)
	}
	l.log.Info().Str("topic", topic).Any("offsets", pins[topic]).Msg("settled where the group starts")
	return nil
}
