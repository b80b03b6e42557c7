package replay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/chprojector/projector/internal/kafka"
)

// progress is what a replay writes beside each commit, so that the same command
// goes on where a killed one stopped, and any other one begins at the start of
// what it has chosen.
type progress struct {
	Replay   string `json:"replay"`
	Identity string `json:"identity"`
	Turn     string `json:"turn"`             // another one for each process: commits of two are never equal
	Until    int64  `json:"until"`            // end of the partition when the replay began
	Passed   int    `json:"passed,omitempty"` // letters before the commit that remain because they were not tried
	Done     bool   `json:"done,omitempty"`   // the partition's letters, all of them
}

func (p progress) text() string {
	b, _ := json.Marshal(p) // strings and a number do not fail
	return string(b)
}

func parseProgress(text string) (p progress, ok bool) {
	err := json.Unmarshal([]byte(text), &p)
	return p, err == nil && p.Replay != "" && p.Identity != "" && p.Turn != "" && p.Until >= 0 && p.Passed >= 0
}

// identity is what two invocations have in common if the second may go on where
// the first was stopped: all that decides which letters are tried, and what
// becomes of them. The rate does not. Its parts are those of the command and of
// the configuration alone, never of the time or of the topic, which differ
// between the two; the fixed end is in the progress.
func identity(t *Target, o *Options) string {
	h, s := sha256.New(), &o.Selection
	write := func(name string, values ...string) {
		values = slices.Compact(slices.Sorted(slices.Values(values)))
		fmt.Fprintf(h, "%s %d\n", name, len(values))
		for _, v := range values {
			fmt.Fprintln(h, strconv.Quote(v))
		}
	}
	instant := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return strconv.FormatInt(t.UnixMilli(), 10)
	}
	write("from", instant(s.From))
	write("to", instant(s.To))
	write("class", s.Classes...)
	write("column", s.Columns...)
	write("key", s.Keys...)
	write("max", strconv.Itoa(o.Max))
	write("max replays", strconv.Itoa(o.MaxReplays))
	write("digest", t.Digest)
	if t.Strays {
		write("strays beside", t.Configured...)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// span is the part of a partition that a replay reads.
type span struct {
	start int64 // the first offset
	until int64 // the end when the replay began
	end   int64 // the end now: copies that were parked meanwhile lie before it

	passed int // letters before start that remain because they were not tried
}

// begin settles which parts of the topic are read: those of this replay if it is
// unfinished, or from Selection.From to the end.
//
// The order is what makes a plan safe that is carried out later: Run finds out
// whether another replay has committed since the commits were read. What one
// that had done so before has parked lies before the ends, unless it was still
// at work.
func (j *Job) begin(ctx context.Context) (p *Plan, err error) {
	p = &Plan{Began: j.deps.Clock(), spans: map[int32]span{}}
	commits, err := j.deps.Admin.Commits(ctx, j.Group())
	if err != nil {
		return nil, err
	}
	if p.busy = j.busy(ctx); p.busy != nil && !errors.Is(p.busy, ErrBusy) {
		return nil, p.busy
	}
	offsets, err := j.deps.Letters.Since(ctx, j.target.Topic, j.options.Selection.From)
	if err != nil {
		return nil, err
	}
	p.commits = commits[j.target.Topic]
	before, resumed := unfinished(p.commits, j.identity, offsets)
	if resumed {
		p.ID = before
	}
	for _, o := range offsets {
		s := span{start: o.Start, until: o.End, end: o.End}
		if resumed {
			c := p.commits[o.Partition]
			was, _ := parseProgress(c.Metadata)
			s.start, s.until, s.passed = min(c.Offset, was.Until), was.Until, was.Passed
			p.Earlier.Passed += was.Passed
		}
		p.spans[o.Partition] = s
	}
	return p, nil
}

// unfinished returns the replay whose commits these are, if it is the same one
// and has not come to its end. A commit that is missing, or from
// another replay, or of a topic that was replaced since, leaves nothing to
// resume.
func unfinished(commits map[int32]kafka.Commit, identity string, offsets []kafka.PartitionOffsets) (id string, ok bool) {
	open := false
	for _, o := range offsets {
		c, have := commits[o.Partition]
		was, understood := parseProgress(c.Metadata)
		if !have || !understood || was.Identity != identity || id != "" && was.Replay != id || c.Offset > o.End || was.Until > o.End {
			return "", false
		}
		id = was.Replay
		open = open || !was.Done
	}
	return id, open
}

// note is the progress to write beside the commit of an offset.
func (r *run) note(partition int32, offset int64) progress {
	s := r.plan.spans[partition]
	passed, _ := slices.BinarySearch(r.plan.passed[partition], offset)
	return progress{
		Replay: r.plan.ID, Identity: r.identity, Turn: r.turn, Until: s.until, Passed: s.passed + passed,
		Done: r.plan.Remaining == 0 && offset >= r.until[partition],
	}
}
