package deadletter

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// AgeLimits bound the first three of a Group's ages; the last has no bound.
var AgeLimits = [3]time.Duration{time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

// Group is the letters that have the same thing wrong with them.
type Group struct {
	Projection string
	Class      string
	Column     string
	Count      int
	Replayed   int    // how many of them have failed a replay already
	Ages       [4]int // parked less than an hour ago, a day, seven days, and longer
	Oldest     time.Time
	Newest     time.Time
	Sample     string // what the newest one says
}

// Summary counts letters by what is wrong with them.
type Summary struct {
	Now    time.Time // what ages are counted from
	groups map[groupKey]*Group
}

type groupKey struct{ projection, class, column string }

// Add counts one more and returns the group that it belongs to.
func (s *Summary) Add(l *Letter) *Group {
	key := groupKey{l.Info.Projection, l.Info.Class, l.Info.Column}
	g := s.groups[key]
	if g == nil {
		g = &Group{Projection: key.projection, Class: key.class, Column: key.column}
		if s.groups == nil {
			s.groups = map[groupKey]*Group{}
		}
		s.groups[key] = g
	}
	s.count(g, l.Record.Timestamp, l.Info.Replays)
	if g.Sample == "" || !l.Record.Timestamp.Before(g.Newest) {
		g.Sample = l.Info.Error
	}
	return g
}

func (s *Summary) count(g *Group, parked time.Time, replays int) {
	g.Count++
	if replays > 0 {
		g.Replayed++
	}
	g.Ages[s.age(parked)]++
	if g.Oldest.IsZero() || parked.Before(g.Oldest) {
		g.Oldest = parked
	}
	if parked.After(g.Newest) {
		g.Newest = parked
	}
}

// Remove takes a letter back that Add has counted in g: a newer copy of it was
// found. Oldest and Newest stay.
func (s *Summary) Remove(g *Group, parked time.Time, replays int) {
	g.Count--
	if replays > 0 {
		g.Replayed--
	}
	g.Ages[s.age(parked)]--
}

func (s *Summary) age(parked time.Time) int {
	age := s.Now.Sub(parked)
	for i, limit := range AgeLimits {
		if age < limit {
			return i
		}
	}
	return len(AgeLimits)
}

// Total is the number of letters counted.
func (s *Summary) Total() (n int) {
	for g := range maps.Values(s.groups) {
		n += g.Count
	}
	return n
}

// Groups lists the groups that have letters, the largest first.
func (s *Summary) Groups() []Group {
	var all []Group
	for g := range maps.Values(s.groups) {
		if g.Count > 0 {
			all = append(all, *g)
		}
	}
	slices.SortFunc(all, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Projection, b.Projection), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Column, b.Column))
	})
	return all
}
