package main

import (
	"fmt"
	"slices"
	"strings"
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

// TestNewestLettersOfOneMoment: a batch is parked within a millisecond. The newest of its letters are those that were
// parked last, in each partition, and not those whose places come first as texts.
func TestNewestLettersOfOneMoment(t *testing.T) {
	l := letterListing{max: 4, newest: map[letterPlace]*listedLetter{}}
	for partition := range int32(2) {
		for offset := range int64(200) {
			letter := &deadletter.Letter{
				Record: &kgo.Record{Topic: "results-dlq", Partition: partition, Offset: offset, Timestamp: time.UnixMilli(1_780_000_000_000 + int64(partition))},
				Info:   deadletter.Info{Topic: "results", Partition: partition, Offset: offset, Class: "range"},
			}
			if err := l.add(letter); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.trim()
	var got []string
	for _, s := range l.samples {
		got = append(got, s.Place)
	}
	if diff := cmp.Diff([]string{"results-dlq/1/199", "results-dlq/1/198", "results-dlq/1/197", "results-dlq/1/196"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestLetterClasses: a letter of each class can be asked for, one that a replay has found gone included.
func TestLetterClasses(t *testing.T) {
	for _, class := range []string{"range", "rejected", "gone"} {
		c := chosenLetters{Class: []string{class}}
		if _, err := c.selection(time.Now()); err != nil {
			t.Error(err)
		}
	}
}

// TestLettersToCome: a time that is yet to come is a mistake, mostly one of the zone. Taken as it is, a replay of nothing
// would say that all is done.
func TestLettersToCome(t *testing.T) {
	now := time.Date(2026, 6, 1, 2, 0, 0, 0, time.UTC)
	for from, want := range map[string]string{
		"2026-06-01":           "",
		"2026-06-01 02:00":     "",
		"2026-06-01T10:00+08":  "is no time",
		"2026-06-01 10:00":     "--from 2026-06-01T10:00:00Z is yet to come: it is 2026-06-01T02:00:00Z, and a time without a zone is UTC",
		"2062-06-01":           "--from 2062-06-01T00:00:00Z is yet to come",
		"2026-06-01T10:00:00Z": "--from 2026-06-01T10:00:00Z is yet to come",
	} {
		c := chosenLetters{From: from}
		if _, err := c.selection(now); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", from, err, want)
		}
	}
}
