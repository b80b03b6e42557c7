package replay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
)

// progress is what a replay writes beside each commit, so that the same command
// goes on where a killed one stopped, and a different one does not skip what it
// alone has chosen.
type progress struct {
	Replay    string `json:"replay"`
	Selection string `json:"selection"` // digest of what was chosen
	Until     int64  `json:"until"`     // end of the partition when the replay began
	Done      bool   `json:"done,omitempty"`
}

func (p progress) text() string {
	b, _ := json.Marshal(p) // strings and a number do not fail
	return string(b)
}

func parseProgress(text string) (p progress, ok bool) {
	err := json.Unmarshal([]byte(text), &p)
	return p, err == nil && p.Replay != "" && p.Selection != "" && p.Until >= 0
}

// digest is the same for selections that choose the same letters, and different
// for others.
func digest(s deadletter.Selection) string {
	h := sha256.New()
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
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// span is the part of a partition that a replay reads.
type span struct {
	start int64 // the first offset
	until int64 // the end when the replay began
	end   int64 // the end now: copies that were parked meanwhile lie before it
}

// begin settles which parts of the topic are read: those of an unfinished replay
// of the same selection, or from Selection.From to the end.
func (j *Job) begin(ctx context.Context) (p *Plan, err error) {
	p = &Plan{Began: j.deps.Clock(), spans: map[int32]span{}}
	offsets, err := j.deps.Letters.Since(ctx, j.target.Topic, j.options.Selection.From)
	if err != nil {
		return nil, err
	}
	commits, err := j.deps.Admin.Commits(ctx, j.Group())
	if err != nil {
		return nil, err
	}
	before, resumed := unfinished(commits[j.target.Topic], j.selection, offsets)
	if resumed {
		p.ID = before
	}
	for _, o := range offsets {
		s := span{start: o.Start, until: o.End, end: o.End}
		if resumed {
			c := commits[j.target.Topic][o.Partition]
			was, _ := parseProgress(c.Metadata)
			s.start, s.until = min(c.Offset, was.Until), was.Until
		}
		p.spans[o.Partition] = s
	}
	return p, nil
}

// unfinished returns the replay whose commits these are, if it had the same
// selection and has not come to its end. A commit that is missing, or from
// another replay, or of a topic that was replaced since, leaves nothing to
// resume.
func unfinished(commits map[int32]kafka.Commit, selection string, offsets []kafka.PartitionOffsets) (id string, ok bool) {
	open := false
	for _, o := range offsets {
		c, have := commits[o.Partition]
		was, understood := parseProgress(c.Metadata)
		if !have || !understood || was.Selection != selection || id != "" && was.Replay != id || c.Offset > o.End || was.Until > o.End {
			return "", false
		}
		id = was.Replay
		open = open || !was.Done
	}
	return id, open
}

// commits are the offsets and the progress to write for every partition.
func (j *Job) commits(p *Plan, at func(span) int64, done bool) kafka.Commits {
	all := kafka.Commits{}
	for partition, s := range p.spans {
		state := progress{Replay: p.ID, Selection: j.selection, Until: s.until, Done: done}
		all.Set(j.target.Topic, partition, kafka.Commit{Offset: at(s), Epoch: -1, Metadata: state.text()})
	}
	return all
}
