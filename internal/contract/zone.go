package contract

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// zone turns a time on a wall into an instant. MySQL's own CONVERT_TZ needs
// tables that many servers lack, answers NULL without them, and returns a time
// before 1970 or after 2038 unconverted, without a word. So the comparison
// carries the offsets itself, and both sides use the same.
type zone struct {
	name  string
	first int64  // offset before the first step, in seconds
	steps []step // by rising wall
}

// step is a change of the offset.
type step struct {
	wall   int64 // seconds that the old clock shows at the change, as if UTC
	offset int64 // seconds east of UTC from then on
}

// Years within which a zone's changes are known to the comparison.
const firstYear, lastYear = 1900, 2100

// parseZone takes "", UTC, an offset such as +08:00, or a name such as
// Europe/Berlin.
func parseZone(name string) (zone, error) {
	if name == "" || name == "UTC" || name == "Z" {
		return zone{name: "UTC"}, nil
	}
	if name[0] == '+' || name[0] == '-' {
		t, err := time.Parse("-07:00", name)
		if err != nil {
			return zone{}, fmt.Errorf("zone %q: write an offset as +08:00", name)
		}
		_, offset := t.Zone()
		return zone{name: name, first: int64(offset)}, nil
	}
	if name == "Local" { // of the machine: another result on another machine
		return zone{}, fmt.Errorf("zone %q: name the zone, such as Europe/Berlin", name)
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return zone{}, fmt.Errorf("zone %q: unknown; use a name such as Europe/Berlin, or an offset such as +08:00", name)
	}
	offsetAt := func(unix int64) int64 {
		_, offset := time.Unix(unix, 0).In(location).Zone()
		return int64(offset)
	}
	// No zone has changed twice within a week. Time.ZoneBounds would name the changes, but does not always move on
	// beyond the last one that the database of zones lists.
	const week = 7 * 24 * 3600
	at := time.Date(firstYear, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	z := zone{name: name, first: offsetAt(at)}
	for offset := z.first; at < time.Date(lastYear, 1, 1, 0, 0, 0, 0, time.UTC).Unix(); at += week {
		next := offsetAt(at + week)
		if next == offset {
			continue
		}
		after := sort.Search(week, func(s int) bool { return offsetAt(at+int64(s)) != offset })
		z.steps = append(z.steps, step{at + int64(after) + offset, next})
		offset = next
	}
	return z, nil
}

// offset is how far the wall is ahead of UTC, in seconds. Of a time that the
// wall shows twice it takes the first, and a time that the wall skips has the
// new offset. The mapping refuses both, so what is compared with it is null or
// another row.
func (z *zone) offset(wall int64) int64 {
	i, found := slices.BinarySearchFunc(z.steps, wall, func(s step, w int64) int { return cmp.Compare(s.wall, w) })
	if found {
		i++
	}
	if i == 0 {
		return z.first
	}
	return z.steps[i-1].offset
}

// mysql is the offset in microseconds as an expression over the wall time in
// microseconds: a search tree of IF, so that a zone with four hundred changes
// costs nine comparisons.
func (z *zone) mysql(wall string) string {
	var b strings.Builder
	var tree func(lo, hi int)
	tree = func(lo, hi int) {
		if lo == hi { // no step left: the offset from the one before
			offset := z.first
			if lo > 0 {
				offset = z.steps[lo-1].offset
			}
			b.WriteString(strconv.FormatInt(offset*1e6, 10))
			return
		}
		mid := (lo + hi) / 2
		fmt.Fprintf(&b, "IF(%s<%d,", wall, z.steps[mid].wall*1e6)
		tree(lo, mid)
		b.WriteByte(',')
		tree(mid+1, hi)
		b.WriteByte(')')
	}
	tree(0, len(z.steps))
	return b.String()
}

// utc reports whether the zone is UTC itself.
func (z *zone) utc() bool { return z.first == 0 && len(z.steps) == 0 }
