package projector

import "fmt"

// holdsAll reports whether partitions has all that until names.
func holdsAll(partitions map[string][]int32, until map[string]map[int32]int64) bool {
	for topic, ps := range until {
		for p := range ps {
			if !contains(partitions, topic, p) {
				return false
			}
		}
	}
	return true
}

// completed reports whether a bounded projection has been read to its end. idle says that the last fetch brought no
// record: what was fetched before it expired is still to be had, and only then it is asked what is gone. Bracket.
func (l *lane) completed(idle bool) (bool, error) {
	if l.shared {
		return false, fmt.Errorf("group %s: %w", l.projection.Group, ErrShared)
	}
	for topic, ps := range l.projection.Until {
		for p := range ps {
			if !l.positions.reached(topic, p) && !(idle && l.expired(topic, p)) {
				return false, nil
			}
		}
	}
	return true, nil
}

// expired reports whether retention has removed all that a partition still held below its bound. Where nothing follows,
// no fetch says so. Bracket.
func (l *lane) expired(topic string, partition int32) bool {
	start := l.lags.start(topic, partition)
	if start < l.projection.below(topic, partition) {
		return false
	}
	pos := l.positions.at(topic, partition)
	l.reportExpired(pos, start, start)
	pos.past = true
	return true
}

// passGaps adds to the open cut what lies below the bounds and never comes: records that expired, or were compacted
// away. Whoever asks the group later sees that the run has come to its end. Bracket.
func (l *lane) passGaps() {
	for topic, ps := range l.projection.Until {
		for p := range ps {
			pos := l.positions.known[topic][p]
			if pos == nil || pos.next >= pos.until {
				continue
			}
			slot, _ := pos.slotIn(l.open, max(0, pos.next))
			slot.next, slot.epoch = pos.until, -1
			pos.next = pos.until
		}
	}
}
