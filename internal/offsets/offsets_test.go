package offsets

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/chprojector/projector/internal/kafka"
)

// history is a partition as the engine leaves it: cuts in order, each inserted, then its letters parked, then
// committed; the last one of each life may have been cut off at any point.
type history struct {
	records []int64        // the offsets that exist: compaction and transactions leave gaps
	done    map[int64]bool // stored, parked or ignored
	stored  map[int64]bool // of them, those that are rows now
}

// live consumes from an offset on in cuts of at most batch records and is killed in the middle of one.
func (h *history) live(t *rapid.T, from int64, batch int) (committed int64) {
	committed = from
	at, _ := slices.BinarySearch(h.records, from)
	for lives := rapid.IntRange(1, 8).Draw(t, "cuts"); lives > 0 && at < len(h.records); lives-- {
		cut := h.records[at:min(len(h.records), at+rapid.IntRange(1, batch).Draw(t, "cut"))]
		last := lives == 1
		kind := func() int { return rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2}).Draw(t, "row, letter or ignored") }
		var rows, others []int64
		for _, o := range cut {
			if kind() == 0 {
				rows = append(rows, o)
			} else {
				others = append(others, o)
			}
		}
		inserted := len(rows) // a block is inserted by halves when it is divided, in order
		if last {
			inserted = rapid.IntRange(0, len(rows)).Draw(t, "inserted before the crash")
		}
		for _, o := range rows[:inserted] {
			h.done[o], h.stored[o] = true, true
		}
		if last {
			return committed
		}
		for _, o := range others {
			h.done[o] = true
		}
		at += len(cut)
		committed = cut[len(cut)-1] + 1
	}
	return committed
}

// anchor is the (batch+1)th highest stored offset, as the statement asks for it.
func (h *history) anchor(batch int) (stored, anchor int64) {
	all := slices.Sorted(maps.Keys(h.stored))
	stored, anchor = -1, -1
	if len(all) > 0 {
		stored = all[len(all)-1]
	}
	if len(all) > batch {
		anchor = all[len(all)-1-batch]
	}
	return stored, anchor
}

// TestRestoreNeverSkips: whatever the cuts were, wherever the processes died, and whichever rows merges have removed
// since, everything below the restored offset is done with. With one row less above the anchor that would not hold.
func TestRestoreNeverSkips(t *testing.T) {
	higher := false
	rapid.Check(t, func(t *rapid.T) {
		batch := rapid.IntRange(1, 6).Draw(t, "batch.rows")
		h := &history{done: map[int64]bool{}, stored: map[int64]bool{}}
		next := int64(0)
		for range rapid.IntRange(1, 80).Draw(t, "records") {
			next += rapid.Int64Range(1, 3).Draw(t, "gap")
			h.records = append(h.records, next)
		}
		committed := int64(0)
		for range rapid.IntRange(1, 5).Draw(t, "lives") {
			committed = h.live(t, committed, batch)
		}
		for _, o := range slices.Sorted(maps.Keys(h.stored)) {
			if rapid.IntRange(0, 9).Draw(t, "merged") == 0 {
				delete(h.stored, o) // a newer version has replaced it
			}
		}
		p := Partition{PartitionLag: kafka.PartitionLag{End: next + 1, Committed: -1}, Verified: true}
		p.Stored, p.Anchor = h.anchor(batch)
		p.conclude(batch)
		for _, o := range h.records {
			if o < p.Restore && !h.done[o] {
				t.Fatalf("restored to %d, but %d is not done", p.Restore, o)
			}
		}
		higher = higher || p.Restore > 0
	})
	if !higher {
		t.Error("no group was restored above the start: the test shows nothing")
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name                          string
		start, end, committed, stored int64
		want                          State
	}{
		{"up to date", 0, 100, 100, 99, OK},
		{"behind", 0, 100, 10, 9, OK},
		{"stored, not yet committed", 0, 100, 10, 99, OK},
		{"nothing read", 0, 100, -1, -1, Unread},
		{"only letters", 0, 100, 100, -1, OK},
		{"group forgotten", 0, 100, -1, 50, Forgotten},
		{"retention was faster", 60, 100, 40, 39, Expired},
		{"retention, all read", 60, 100, 60, 59, OK},
		{"replaced, group kept", 0, 10, 100, 99, Replaced},
		{"replaced, group cleared", 0, 10, -1, 99, Replaced},
		{"replaced and grown", 0, 200, -1, 99, Forgotten},
		{"empty topic", 0, 0, -1, -1, Unread},
		{"all expired and read", 100, 100, 100, 99, OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := kafka.PartitionLag{Start: c.start, End: c.end, Committed: c.committed}
			if got := Judge(l, c.stored); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestConclude(t *testing.T) {
	for _, c := range []struct {
		name                       string
		start, end, stored, anchor int64
		verified                   bool
		restore, lost, certain     int64
	}{
		{"a batch below", 0, 1000, 900, 800, true, 801, 0, 0},
		{"nothing stored", 5, 1000, -1, -1, false, 5, 0, 0},
		{"too few rows", 5, 1000, 900, -1, false, 5, 0, 0},
		{"another topic", 5, 1000, 900, 800, false, 5, 0, 0},
		{"beyond the end", 5, 100, 900, 800, false, 5, 0, 0},
		{"the anchor has expired", 850, 1000, 900, 800, true, 850, 49, 0},
		{"all stored has expired", 950, 1000, 900, 800, true, 950, 149, 49},
		{"too few rows, and a gap", 950, 1000, 900, -1, false, 950, 49, 49},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Partition{PartitionLag: kafka.PartitionLag{Start: c.start, End: c.end}, Stored: c.stored, Anchor: c.anchor, Verified: c.verified}
			p.conclude(100)
			if p.Restore != c.restore || p.Lost != c.lost || p.Certain != c.certain || p.Reason == "" {
				t.Errorf("restore %d, lost %d, surely %d, want %d, %d and %d (%s)", p.Restore, p.Lost, p.Certain, c.restore, c.lost, c.certain, p.Reason)
			}
		})
	}
}
