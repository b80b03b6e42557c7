package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/internal/deadletter"
)

// gate holds back each commit of a group, before the broker sees it, until it is clear whether the commit is due: every
// offset below must be a row in ClickHouse or a letter at this very moment. A program that commits first waits for the
// answer in vain and has not stored anything when it is asked.
//
// Each offset is looked at once, when a commit covers it for the first time. That needs a table that keeps every row,
// so nothing is merged during a schedule.
type gate struct {
	w       *world
	letters *letterbox

	mu        sync.Mutex
	proven    map[int32]int64 // every offset below is a row or a letter
	commits   int             // offsets of partitions that were checked
	unchecked int             // commits that were kept from the broker, because nobody answered whether they are due
	early     []string        // commits that were not due
	history   []string        // of each partition that was committed
	began     time.Time
}

func newGate(w *world) *gate {
	return &gate{w: w, letters: &letterbox{w: w, all: map[place][]letter{}}, proven: map[int32]int64{}, began: time.Now()}
}

func (g *gate) close() { g.letters.close() }

// check returns an error if the commit must not reach the broker: it could not be checked. One that is not due is noted
// and goes on, as in life.
func (g *gate) check(member string, commit *kmsg.OffsetCommitRequest) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	ctx, cancel := context.WithTimeout(g.w.t.Context(), 3*time.Second)
	defer cancel()
	wanted := map[int32]int64{}
	for _, t := range commit.Topics {
		for _, p := range t.Partitions {
			g.commits++
			g.history = append(g.history, fmt.Sprintf("%6.2f s  %s, generation %d of %s, partition %d: %d", time.Since(g.began).Seconds(), member, commit.Generation, commit.MemberID, p.Partition, p.Offset))
			if p.Offset > g.proven[p.Partition] {
				wanted[p.Partition] = p.Offset
			}
		}
	}
	missing, err := g.missing(ctx, wanted)
	for err != nil && wait(ctx, 50*time.Millisecond) { // ClickHouse may be down for a moment
		missing, err = g.missing(ctx, wanted)
	}
	if err != nil {
		g.unchecked++
		return err
	}
	for p, offsets := range missing {
		g.early = append(g.early, fmt.Sprintf("offset %d of partition %d was committed by %s (%s) while %d records below were neither rows nor letters, the first at %d",
			wanted[p], p, member, commit.MemberID, len(offsets), offsets[0]))
	}
	maps.Copy(g.proven, wanted)
	return nil
}

// missing returns the offsets that are neither rows nor letters, of each partition from what is proven up to what is
// wanted.
func (g *gate) missing(ctx context.Context, wanted map[int32]int64) (map[int32][]int64, error) {
	var ranges []string
	for p, end := range wanted {
		ranges = append(ranges, fmt.Sprintf("(_partition = %d AND _offset >= %d AND _offset < %d)", p, g.proven[p], end))
	}
	if len(ranges) == 0 {
		return nil, nil
	}
	out, err := g.w.db.Query(ctx, "SELECT DISTINCT _partition, _offset FROM fitness_results_g1 WHERE _topic = '"+g.w.topic+"' AND ("+strings.Join(ranges, " OR ")+")")
	if err != nil {
		return nil, err
	}
	rows := map[place]bool{}
	for line := range strings.Lines(out) {
		var at place
		if _, err := fmt.Sscan(line, &at.partition, &at.offset); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		rows[at] = true
	}
	missing := map[int32][]int64{}
	fresh := false
	for p, end := range wanted {
		for o := g.proven[p]; o < end; o++ {
			at := place{p, o}
			if rows[at] {
				continue
			}
			if _, parked := g.letters.all[at]; !parked && !fresh {
				if err := g.letters.read(ctx); err != nil {
					return nil, err
				}
				fresh = true
			}
			if _, parked := g.letters.all[at]; !parked {
				missing[p] = append(missing[p], o)
			}
		}
	}
	return missing, nil
}

// letterbox reads the dead letters of a topic as they come. It belongs to one goroutine at a time.
type letterbox struct {
	w      *world
	reader *kgo.Client
	next   map[int32]int64
	all    map[place][]letter // by the place of the record
	bad    []string           // what is no letter
}

func (b *letterbox) close() {
	if b.reader != nil {
		b.reader.Close()
	}
}

// read reads all letters that there are now.
func (b *letterbox) read(ctx context.Context) error {
	topic := b.w.topic + "-dlq"
	ends, err := b.w.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask for the end of %s: %w", topic, err)
	}
	if b.reader == nil {
		b.reader, err = kgo.NewClient(kgo.SeedBrokers(b.w.broker.Brokers()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			return err
		}
		b.next = map[int32]int64{}
	}
	behind := func() bool {
		for _, end := range ends[topic] {
			if b.next[end.Partition] < end.Offset {
				return true
			}
		}
		return false
	}
	for behind() {
		fetches := b.reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read %s: %w", topic, err)
		}
		for r := range fetches.RecordsAll() {
			b.next[r.Partition] = r.Offset + 1
			_, info, ok := deadletter.Parse(r)
			if !ok || info.Topic != b.w.topic {
				b.bad = append(b.bad, fmt.Sprintf("%s/%d offset %d is no letter of %s: %v", topic, r.Partition, r.Offset, b.w.topic, r.Headers))
				continue
			}
			at := place{info.Partition, info.Offset}
			b.all[at] = append(b.all[at], letter{r, info})
		}
	}
	return nil
}

// wait waits for a while and reports whether ctx is still good.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
