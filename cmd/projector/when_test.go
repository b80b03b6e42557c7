package main

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseWhen(t *testing.T) {
	now := time.Date(2026, 6, 2, 2, 10, 0, 0, time.FixedZone("CST", 8*3600))
	for _, c := range []struct{ text, want string }{ // want "": an error
		{"2026-06-01", "2026-06-01T00:00:00Z"},
		{"2026-06-01T02:30:00Z", "2026-06-01T02:30:00Z"},
		{"2026-06-01T02:30:00+08:00", "2026-05-31T18:30:00Z"},
		{"2026-06-01T02:30:00.25Z", "2026-06-01T02:30:00.25Z"},
		{"2026-06-01T02:30", "2026-06-01T02:30:00Z"},
		{"2026-06-01 02:30", "2026-06-01T02:30:00Z"},
		{"2h", "2026-06-01T16:10:00Z"},
		{"3d", "2026-05-29T18:10:00Z"},
		{"1w2d3h4m5s", "2026-05-23T15:05:55Z"},
		{"0s", "2026-06-01T18:10:00Z"},
		{"", ""},
		{"2", ""},
		{"-2h", ""},
		{"2h 30m", ""},
		{"yesterday", ""},
		{"2026-06-31", ""},
		{"2026-6-1", ""},
		{"01.06.2026", ""},
		{"99999999999999999999d", ""},
		{"9999999999999w", ""},
	} {
		t.Run(c.text, func(t *testing.T) {
			got, err := parseWhen(c.text, now)
			if text := got.Format(time.RFC3339Nano); (err != nil) != (c.want == "") || err == nil && text != c.want {
				t.Errorf("%s, %v; want %s", text, err, c.want)
			}
		})
	}
}

func TestParseWhenTakesWhatIsPrinted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "seconds"), 0)
		got, err := parseWhen(instant(want), time.Unix(0, 0))
		if err != nil || !got.Equal(want) {
			t.Fatalf("%s became %s, %v", instant(want), got, err)
		}
	})
}

func FuzzParseWhen(f *testing.F) {
	for _, s := range []string{"2026-06-01", "2h", "1w2d3h4m5s", "9223372036854775807s", "2026-06-01T02:30:00+23:59"} {
		f.Add(s)
	}
	now := time.Date(2026, 6, 2, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseWhen(s, now)
		if err == nil && (got.Year() < 0 || got.Location() != time.UTC) {
			t.Errorf("%q became %v", s, got)
		}
	})
}
