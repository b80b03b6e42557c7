package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chprojector/projector/internal/deadletter"
)

// letterListing collects the letters of one dead-letter topic.
type letterListing struct {
	now       time.Time
	selection deadletter.Selection
	max       int

	summary        deadletter.Summary
	newest         map[letterPlace]*listedLetter
	samples        []letterOfList // at least the newest of each partition
	older, foreign int
}

// letterPlace is what makes two letters the same one: which record was read,
// and for which projection.
type letterPlace struct {
	projection string
	place      deadletter.Place
}

// listedLetter is the newest copy of a letter so far.
type listedLetter struct {
	replays int
	parked  time.Time
	group   *deadletter.Group // that counts it; nil: the selection does not name it
	place   string
}

// topic reads the letters of a source topic, from the selection's start to the
// end of the topic.
func (l *letterListing) topic(ctx context.Context, r *deadletter.Reader, source string) (*letterTopic, error) {
	l.summary.Now = l.now
	t := &letterTopic{Topic: r.Topic(source), Source: source, now: l.now}
	if s := l.selection; !s.From.IsZero() {
		t.From = &s.From
	}
	if s := l.selection; !s.To.IsZero() {
		t.To = &s.To
	}
	ranges, err := r.Since(ctx, t.Topic, l.selection.From)
	if err != nil {
		return nil, err
	}
	for _, o := range ranges {
		if err := r.Scan(ctx, t.Topic, o.Partition, o.Start, o.End, l.add); err != nil {
			return nil, err
		}
		l.trim()
	}
	t.Groups, t.Letters, t.Older, t.Foreign = letterGroups(l.summary.Groups()), l.summary.Total(), l.older, l.foreign
	t.Newest = orEmpty(l.samples)
	return t, nil
}

func (l *letterListing) add(letter *deadletter.Letter) error {
	chosen := l.selection.Has(letter)
	if letter.Foreign {
		if chosen {
			l.foreign++
		}
		return nil
	}
	i := letter.Info
	key := letterPlace{i.Projection, deadletter.PlaceOf(i.Lineage())}
	place := fmt.Sprintf("%s/%d/%d", letter.Record.Topic, letter.Record.Partition, letter.Record.Offset)
	if was := l.newest[key]; was != nil {
		if i.Replays < was.replays {
			l.older++
			return nil
		}
		if was.group != nil { // this one tells what is wrong now
			l.older++
			l.summary.Remove(was.group, was.parked, was.replays)
			l.samples = slices.DeleteFunc(l.samples, func(s letterOfList) bool { return s.Place == was.place })
		}
	}
	now := &listedLetter{replays: i.Replays, parked: letter.Record.Timestamp, place: place}
	l.newest[key] = now
	if !chosen {
		return nil
	}
	now.group = l.summary.Add(letter)
	l.samples = append(l.samples, letterOfList{
		Place: place, Parked: letter.Record.Timestamp.UTC(), Projection: i.Projection, Class: i.Class, Column: i.Column, Key: string(letter.Record.Key),
		Replays: i.Replays, Event: fmt.Sprintf("%s/%d/%d", i.Topic, i.Partition, i.Offset), EventTime: deadletter.FormatTime(i.Timestamp), Reason: i.Error,
		partition: letter.Record.Partition, offset: letter.Record.Offset,
	})
	if len(l.samples) > 2*l.max+100 {
		l.trim()
	}
	return nil
}

// trim keeps the newest samples. A batch is parked within one millisecond: what
// lies behind in its partition is newer.
func (l *letterListing) trim() {
	slices.SortFunc(l.samples, func(a, b letterOfList) int {
		return cmp.Or(b.Parked.Compare(a.Parked), cmp.Compare(a.partition, b.partition), cmp.Compare(b.offset, a.offset))
	})
	l.samples = l.samples[:min(len(l.samples), max(0, l.max))]
}

func (t *letterTopic) print(w io.Writer) error {
	line := fmt.Sprintf("%s: %s", t.Topic, count(t.Letters, "dead letter"))
	if span := spanOf(t.From, t.To); span != "" {
		line += " parked " + span
	}
	if t.Older > 0 {
		line += fmt.Sprintf(" (and %d older copies of letters that were parked again)", t.Older)
	}
	if t.Foreign > 0 {
		line += fmt.Sprintf(", %s that no projector wrote", count(t.Foreign, "record"))
	}
	fmt.Fprintln(w, line)
	if len(t.Groups) > 0 {
		fmt.Fprintln(w)
		if err := printGroups(w, t.Groups, t.now); err != nil {
			return err
		}
	}
	if len(t.Newest) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nthe newest %s:\n\n", strings.TrimPrefix(count(len(t.Newest), "letter"), "1 "))
	tab := newTable(w, "LETTER", "PARKED", "CLASS", "COLUMN", "KEY", "REPLAYS", "REASON")
	for _, l := range t.Newest {
		tab.row(l.Place, instant(l.Parked), l.Class, l.Column, cut(l.Key, 40), strconv.Itoa(l.Replays), cut(l.Reason, 100))
	}
	return tab.flush()
}

// printGroups is the table by what is wrong.
func printGroups(w io.Writer, groups []letterGroup, now time.Time) error {
	tab := newTable(w, append([]string{"PROJECTION", "CLASS", "COLUMN", "COUNT", "REPLAYED"}, append(upper(ageNames[:]), "OLDEST", "NEWEST", "FOR EXAMPLE")...)...)
	for _, g := range groups {
		cells := []string{orDash(g.Projection), g.Class, orDash(g.Column), strconv.Itoa(g.Count), strconv.Itoa(g.Replayed)}
		for _, name := range ageNames {
			cells = append(cells, strconv.Itoa(g.Ages[name]))
		}
		tab.row(append(cells, ago(g.Oldest, now), ago(g.Newest, now), cut(g.Sample, 80))...)
	}
	return tab.flush()
}

func upper(names []string) []string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = strings.ToUpper(n)
	}
	return all
}

// spanOf says which time is meant: a date alone must not leave anybody guessing.
func spanOf(from, to *time.Time) string {
	switch {
	case from != nil && to != nil:
		return "from " + instant(*from) + " until " + instant(*to)
	case from != nil:
		return "since " + instant(*from)
	case to != nil:
		return "before " + instant(*to)
	}
	return ""
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// cut shortens s to about n characters, on one line.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
