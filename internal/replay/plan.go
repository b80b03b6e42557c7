package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/mapping"
)

const (
	// compareAtOnce is how many rows are compared with the table at a time.
	compareAtOnce = 10_000
	// progressInterval is between two lines of a long read.
	progressInterval = 10 * time.Second
)

// Plan is what a replay would do: which letters it has chosen, and why not the
// others. Each letter is counted once, by its newest copy.
type Plan struct {
	// ID is that of the replay that did not come to its end and that this one goes on with; "" for a new one, whose
	// ID the caller sets before Run.
	ID    string
	Began time.Time

	Read       int                // letters and other records looked at
	Selected   []deadletter.Group // letters that the selection names, by what is wrong with them
	Superseded int                // of them: the table has their version or a newer one already
	Left       int                // of them: replayed too often
	Remaining  int                // of them: beyond Options.Max
	Chosen     int                // of them: the rest, which is replayed
	WouldFail  []deadletter.Group // of the chosen: the mapping still refuses them, by what is wrong now

	Older   int            // letters of which a newer copy exists
	Others  map[string]int // letters of other projections, by name; "" names none
	Foreign int            // records that are no letters, or letters of another topic

	// Earlier is what a replay that is resumed did with the letters before those, and Since how many letters were
	// parked since it began that would be of its selection: another replay is needed for them.
	Earlier Earlier
	Since   int

	commits map[int32]kafka.Commit // of the replays' group before the letters were read
	busy    error                  // another replay was at work then
	spans   map[int32]span
	chosen  map[int32][]choice // by partition of the dead-letter topic, by offset
	passed  map[int32][]int64  // offsets of letters that remain because they are not tried, likewise
}

// Earlier counts letters that remain, of a replay that was stopped, behind the place where it goes on.
type Earlier struct {
	Failed int // parked again
	Passed int // not tried: replayed too often, or of no configured projection
}

// Selection is how many letters the selection names.
func (p *Plan) Selection() (n int) {
	for i := range p.Selected {
		n += p.Selected[i].Count
	}
	return n
}

// choice is a letter that may be replayed.
type choice struct {
	offset  int64 // in its dead-letter partition
	place   deadletter.Place
	replays int
	parked  time.Time

	group, fails *deadletter.Group // that count it; fails: nil if it would be a row
	superseded   bool

	read, ignored bool // by the lane
}

// survey is the state of making a plan.
type survey struct {
	*Job
	plan            *Plan
	selected, fails deadletter.Summary
	newest          map[deadletter.Place]copied
	candidates      map[int32][]*choice
	inserter        Inserter
	rows            *mapping.Rows
	waiting         []*choice                     // those whose rows are in rows
	again           map[deadletter.Place]struct{} // parked again since the replay began
	told            time.Time
}

// copied is the newest copy of a letter.
type copied struct {
	replays   int
	partition int32
	offset    int64
}

// Plan reads the letters and decides about each. It changes nothing.
func (j *Job) Plan(ctx context.Context) (_ *Plan, err error) {
	plan, err := j.begin(ctx)
	if err != nil {
		return nil, err
	}
	inserter, err := j.deps.NewInserter()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, inserter.Close()) }()
	plan.Others, plan.passed = map[string]int{}, map[int32][]int64{}
	s := &survey{
		Job: j, plan: plan, newest: map[deadletter.Place]copied{}, candidates: map[int32][]*choice{}, inserter: inserter, rows: j.target.Plan.NewRows(), told: plan.Began,
		again: map[deadletter.Place]struct{}{},
	}
	s.selected.Now, s.fails.Now = plan.Began, plan.Began
	for _, partition := range slices.Sorted(maps.Keys(plan.spans)) {
		sp := plan.spans[partition]
		err := j.deps.Letters.Scan(ctx, j.target.Topic, partition, sp.start, sp.end, func(l *deadletter.Letter) error { return s.look(ctx, l) })
		if err != nil {
			return nil, err
		}
	}
	if err := s.compare(ctx); err != nil {
		return nil, err
	}
	s.decide()
	return plan, nil
}

// look decides what can be decided of one letter alone.
func (s *survey) look(ctx context.Context, l *deadletter.Letter) error {
	p := s.plan
	if now := s.deps.Clock(); now.Sub(s.told) >= progressInterval {
		s.told = now
		s.deps.Log.Info().Int("letters", p.Read).Str("at", fmt.Sprintf("%s/%d/%d", s.target.Topic, l.Record.Partition, l.Record.Offset)).Msg("reading dead letters")
	}
	if l.Record.Offset >= p.spans[l.Record.Partition].until {
		s.since(l)
		return nil
	}
	switch {
	case l.Foreign || l.Info.Topic != s.target.Source:
		p.Read, p.Foreign = p.Read+1, p.Foreign+1
		return nil
	case !s.target.Has(l.Info.Projection):
		if s.options.Selection.Has(l) {
			p.Read, p.Others[l.Info.Projection] = p.Read+1, p.Others[l.Info.Projection]+1
			if !slices.Contains(s.target.Configured, l.Info.Projection) {
				p.passed[l.Record.Partition] = append(p.passed[l.Record.Partition], l.Record.Offset)
			}
		}
		return nil
	}
	at := deadletter.PlaceOf(l.Info.Lineage())
	if was, known := s.newest[at]; !known || l.Info.Replays >= was.replays { // the same number: parked twice, after an answer that was lost
		s.newest[at] = copied{l.Info.Replays, l.Record.Partition, l.Record.Offset}
	}
	p.Read++
	if !s.options.Selection.Has(l) {
		return nil
	}
	c := &choice{offset: l.Record.Offset, place: at, replays: l.Info.Replays, parked: l.Record.Timestamp, group: s.selected.Add(l)}
	s.candidates[l.Record.Partition] = append(s.candidates[l.Record.Partition], c)
	if c.replays >= s.options.MaxReplays {
		return nil // it will not be mapped again
	}
	switch err := s.deps.Letters.Append(ctx, s.target.Plan, s.rows, l, ""); {
	case errors.Is(err, mapping.ErrIgnored):
	case err != nil:
		reason, ok := errors.AsType[*mapping.Error](err)
		if !ok {
			return err
		}
		again := *l
		again.Info.Class, again.Info.Column, again.Info.Error = string(reason.Class), reason.Column, reason.Error()
		c.fails = s.fails.Add(&again)
	default:
		s.waiting = append(s.waiting, c)
		if s.rows.Len() >= compareAtOnce || s.rows.Size() >= s.deps.Engine.Batch.Bytes {
			return s.compare(ctx)
		}
	}
	return nil
}

// since looks at a letter that was parked since the replay began: by the replay itself, or it is another one.
func (s *survey) since(l *deadletter.Letter) {
	mine := s.target.Has(l.Info.Projection)
	if l.Foreign || l.Info.Topic != s.target.Source || !mine && slices.Contains(s.target.Configured, l.Info.Projection) {
		return
	}
	at := deadletter.PlaceOf(l.Info.Lineage())
	switch was, known := s.newest[at]; {
	case mine && l.Info.Replays > was.replays: // the letter before it is done with
		s.newest[at] = copied{l.Info.Replays, l.Record.Partition, l.Record.Offset}
		s.again[at] = struct{}{}
	case mine && known: // parked twice
	case s.options.Selection.Has(l):
		s.plan.Since++
	}
}

// compare asks the table about the rows collected so far.
func (s *survey) compare(ctx context.Context) error {
	superseded, err := s.inserter.Superseded(ctx, s.rows, 0, s.rows.Len(), s.target.Key, s.target.Version)
	if err != nil {
		return err
	}
	for i, c := range s.waiting {
		c.superseded = superseded[i]
	}
	s.rows.Reset()
	s.waiting = s.waiting[:0]
	return nil
}

// decide chooses, when all is known.
func (s *survey) decide() {
	p := s.plan
	p.chosen = map[int32][]choice{}
	drop := func(c *choice) {
		if c.fails != nil {
			s.fails.Remove(c.fails, c.parked, c.replays)
		}
	}
	for _, partition := range slices.Sorted(maps.Keys(s.candidates)) {
		for _, c := range s.candidates[partition] {
			switch {
			case s.newest[c.place] != copied{c.replays, partition, c.offset}:
				p.Older++
				s.selected.Remove(c.group, c.parked, c.replays)
				drop(c)
			case c.superseded:
				p.Superseded++
			case c.replays >= s.options.MaxReplays:
				p.Left++
				p.passed[partition] = append(p.passed[partition], c.offset)
			case s.options.Max > 0 && p.Chosen == s.options.Max:
				p.Remaining++
				drop(c)
			default:
				p.Chosen++
				p.chosen[partition] = append(p.chosen[partition], *c)
			}
		}
	}
	for _, offsets := range p.passed {
		slices.Sort(offsets)
	}
	p.Earlier.Failed = len(s.again)
	p.Selected, p.WouldFail = s.selected.Groups(), s.fails.Groups()
}

// Has reports whether a letter that names a projection is the target's.
func (t *Target) Has(projection string) bool {
	return projection == t.Projection || t.Strays && !slices.Contains(t.Configured, projection)
}

// chose returns the letter at an offset if it was chosen, else nil.
func (p *Plan) chose(partition int32, offset int64) *choice {
	chosen := p.chosen[partition]
	if i, ok := slices.BinarySearchFunc(chosen, offset, func(c choice, offset int64) int { return cmp.Compare(c.offset, offset) }); ok {
		return &chosen[i]
	}
	return nil
}
