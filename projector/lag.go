package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lags are how far a lane is behind in each of its partitions. A scaler acts on them and a person believes them, so
// they go on growing while ClickHouse takes nothing, when no batch says how far the log has come.
type lags struct {
	mu sync.Mutex
	of map[string]map[int32]*lag // the partitions owned
}

// lag is a stretch of a partition: what is not acknowledged.
type lag struct {
	start  int64     // of the log, when last seen; -1 before
	next   int64     // the first offset not acknowledged, -1 before it is known
	end    int64     // of the log, when last seen; -1 before
	newest time.Time // timestamp of the newest record acknowledged in this life; zero before
}

// records is how many are not acknowledged, if that is known.
func (of *lag) records() (n int64, known bool) {
	return max(0, of.end-of.next), of.next >= 0 && of.end >= 0
}

// reset begins a new life of the lane.
func (ls *lags) reset() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.of = map[string]map[int32]*lag{}
}

// behind is the lag of all partitions together, as far as it is known.
func (ls *lags) behind() (n int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, partitions := range ls.of {
		for _, of := range partitions {
			if records, known := of.records(); known {
				n += records
			}
		}
	}
	return n
}

// begin notes partitions that now belong to the lane, with the group's committed offsets.
func (ls *lags) begin(fetched map[string]map[int32]kgo.Offset) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for topic, partitions := range fetched {
		if ls.of[topic] == nil {
			ls.of[topic] = map[int32]*lag{}
		}
		for p, at := range partitions {
			ls.of[topic][p] = &lag{start: -1, next: max(-1, at.EpochOffset().Offset), end: -1}
		}
	}
}

// visible notes how far a partition has come with an acknowledged cut.
func (ls *lags) visible(s *slot) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if of := ls.of[s.topic][s.partition]; of != nil {
		of.next, of.end, of.newest = s.next, max(of.end, s.high), s.newest
	}
}

// drop forgets partitions that belong to another member now.
func (ls *lags) drop(partitions map[string][]int32) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for topic, ps := range partitions {
		for _, p := range ps {
			delete(ls.of[topic], p)
		}
	}
}

// collect adds what is known of the lane's partitions to held, under the projection's name.
func (ls *lags) collect(projection string, held map[ownership]lag) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for topic, partitions := range ls.of {
		for p, of := range partitions {
			mine := ownership{projection, topic, p}
			if other, ok := held[mine]; !ok || other.next < of.next {
				held[mine] = *of
			}
		}
	}
}

// start is where the log of a partition begins, -1 if that is not known.
func (ls *lags) start(topic string, partition int32) int64 {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if of := ls.of[topic][partition]; of != nil {
		return of.start
	}
	return -1
}

// look asks the leaders of the lane's partitions where their logs begin and end. A leader that does not answer is an error, of
// which a fetch says nothing: kgo asks it again and again while the other partitions go on.
func (ls *lags) look(ctx context.Context, client *kgo.Client) error {
	topics := ls.owned()
	if len(topics) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, topicsTimeout)
	defer cancel()
	admin := kadm.NewClient(client)
	ends, failed := admin.ListEndOffsets(ctx, topics...) // also when some leaders have answered
	starts := kadm.ListedOffsets{}
	if failed == nil {
		starts, failed = admin.ListStartOffsets(ctx, topics...)
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var silent error
	for topic, partitions := range ls.of {
		if !slices.Contains(topics, topic) {
			continue // given to the lane since, and not asked for
		}
		for p, of := range partitions {
			end, ok := ends.Lookup(topic, p)
			if !ok || end.Err != nil {
				silent = fmt.Errorf("ask the leader of %s/%d where it ends: %w", topic, p, cmp.Or(end.Err, failed, errNoAnswer))
				continue
			}
			of.end = end.Offset
			if start, ok := starts.Lookup(topic, p); ok && start.Err == nil {
				of.start = start.Offset
				if of.next < 0 {
					of.next = start.Offset
				}
			}
		}
	}
	return silent
}

var errNoAnswer = errors.New("no answer")

// owned are the topics of which the lane has partitions.
func (ls *lags) owned() (topics []string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for topic, partitions := range ls.of {
		if len(partitions) > 0 {
			topics = append(topics, topic)
		}
	}
	return topics
}
