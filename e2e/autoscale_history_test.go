package e2e

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// history is what a group has done, as the broker has written it down: each commit, and who owned what in each
// generation. Nothing needs to be asked, and so nothing is missed, while it happens.
type history struct {
	generations []generation
	commits     map[int32][]commit
	written     map[int32][]time.Time // when the record of each offset came
}

// generation is what the members of a group agreed on in one rebalance. A cooperative rebalance has two: the second
// hands over what was given up in the first.
type generation struct {
	number  int32
	at      time.Time
	members int
	owners  map[int32]string
}

type commit struct {
	at     time.Time
	offset int64
}

// history reads the group of the projection fitness_results.
func (w *world) history() history {
	w.t.Helper()
	h := history{commits: map[int32][]commit{}, written: map[int32][]time.Time{}}
	for _, r := range w.everything(w.topic) {
		h.written[r.Partition] = append(h.written[r.Partition], r.Timestamp)
	}
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	for _, r := range w.everything("__consumer_offsets") {
		if len(r.Key) < 2 || r.Value == nil {
			continue
		}
		switch binary.BigEndian.Uint16(r.Key) { // what kind of key it is
		case 0, 1:
			var key kmsg.OffsetCommitKey
			must(key.ReadFrom(r.Key))
			if key.Group == w.group && key.Topic == w.topic {
				var value kmsg.OffsetCommitValue
				must(value.ReadFrom(r.Value))
				h.commits[key.Partition] = append(h.commits[key.Partition], commit{r.Timestamp, value.Offset})
			}
		case 2:
			var key kmsg.GroupMetadataKey
			must(key.ReadFrom(r.Key))
			if key.Group == w.group {
				var value kmsg.GroupMetadataValue
				must(value.ReadFrom(r.Value))
				g := generation{value.Generation, r.Timestamp, len(value.Members), map[int32]string{}}
				for _, m := range value.Members {
					var a kmsg.ConsumerMemberAssignment
					must(a.ReadFrom(m.Assignment))
					for _, topic := range a.Topics {
						for _, p := range topic.Partitions {
							g.owners[p] = m.MemberID
						}
					}
				}
				h.generations = append(h.generations, g)
			}
		}
	}
	return h
}

// everything is all records of a topic up to now.
func (w *world) everything(topic string) (all []*kgo.Record) {
	w.t.Helper()
	ends, err := w.admin.ListEndOffsets(w.t.Context(), topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	left := map[int32]int64{} // the end of each partition that is not read
	for _, end := range ends[topic] {
		if end.Offset > 0 {
			left[end.Partition] = end.Offset
		}
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(w.broker.Brokers()...), kgo.ConsumeTopics(topic), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		w.t.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), soon)
	defer cancel()
	for len(left) > 0 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			w.t.Fatalf("read %s: %v", topic, err)
		}
		for r := range fetches.RecordsAll() {
			if r.Offset >= left[r.Partition]-1 {
				delete(left, r.Partition)
			}
			all = append(all, r)
		}
	}
	return all
}

// at is the last generation that began before a moment.
func (h history) at(moment time.Time) (last generation) {
	for _, g := range h.generations {
		if g.at.Before(moment) {
			last = g
		}
	}
	return last
}

// moved are the partitions that have another owner at the end of a time than at its beginning.
func (h history) moved(from, to time.Time) (partitions []int32) {
	before, after := h.at(from), h.at(to)
	for p := range after.owners {
		if before.owners[p] != after.owners[p] {
			partitions = append(partitions, p)
		}
	}
	slices.Sort(partitions)
	return partitions
}

// pause is the longest time that touches the given one in which records of a partition waited and none was committed.
func (h history) pause(partition int32, from, to time.Time) (longest time.Duration) {
	var last commit // of which the offset is committed
	for _, c := range h.commits[partition] {
		if c.offset <= last.offset {
			continue
		}
		since := last.at
		if came := h.written[partition][last.offset]; came.After(since) {
			since = came
		}
		if since.Before(to) && c.at.After(from) {
			longest = max(longest, c.at.Sub(since))
		}
		last = c
	}
	return longest
}

// partitions are all that anything was committed of.
func (h history) partitions() []int32 { return slices.Sorted(maps.Keys(h.commits)) }
