package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/deadletter"
)

// TestLettersOfOnePlace: a letter that was parked again is counted once. One of another record at the same place, in a
// topic that was created anew, is another letter.
func TestLettersOfOnePlace(t *testing.T) {
	first := time.UnixMilli(1_780_000_000_000).UTC()
	l := letterListing{now: first.Add(time.Hour), max: 10, newest: map[letterPlace]*listedLetter{}}
	for i, info := range []deadletter.Info{
		{Timestamp: first, Offset: 7, Class: "range"},
		{Timestamp: first, Offset: 7, Class: "type", Replays: 1},
		{Timestamp: first.Add(time.Millisecond), Offset: 7, Class: "null"},
		{Timestamp: first, Offset: 8, Class: "range"},
		{Timestamp: first, Offset: 7, Class: "range", Projection: "other"},
		{Timestamp: time.UnixMilli(1_780_000_000_000_000), Offset: 7, Class: "range"},
		{Offset: 7, Class: "gone"},
	} {
		info.Topic = "results"
		if err := l.add(&deadletter.Letter{Record: &kgo.Record{Topic: "results-dlq", Offset: int64(i), Timestamp: first.Add(time.Duration(i))}, Info: info}); err != nil {
			t.Fatal(err)
		}
	}
	l.trim()
	if l.summary.Total() != 6 || l.older != 1 {
		t.Errorf("%d letters and %d older copies, want 6 and 1", l.summary.Total(), l.older)
	}
	var got []string
	for _, s := range slices.Backward(l.samples) {
		got = append(got, fmt.Sprintf("%s %s%s %s", s.Event, s.Projection, s.Class, s.EventTime))
	}
	want := []string{
		"results/0/7 type 2026-05-28T20:26:40.000Z", "results/0/7 null 2026-05-28T20:26:40.001Z", "results/0/8 range 2026-05-28T20:26:40.000Z",
		"results/0/7 otherrange 2026-05-28T20:26:40.000Z", "results/0/7 range 1780000000000000", "results/0/7 gone ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
