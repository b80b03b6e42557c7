package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// parseWhen reads an instant as people write it: RFC 3339, a date, which is the
// start of that day in UTC, or a time span before now, such as 2h or 3d.
func parseWhen(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.UTC); err == nil {
			return t.UTC(), nil
		}
	}
	if ago, ok := parseSpan(text); ok {
		return now.UTC().Add(-ago), nil
	}
	return time.Time{}, fmt.Errorf("%q is no time: write 2026-06-01 (the start of that day, UTC), 2026-06-01T02:30:00Z, or how long ago, such as 2h or 3d", text)
}

var spanPart = regexp.MustCompile(`^(\d+)(w|d|h|m|s)`)

var spanUnits = map[string]time.Duration{"w": 7 * 24 * time.Hour, "d": 24 * time.Hour, "h": time.Hour, "m": time.Minute, "s": time.Second}

// parseSpan reads 90m, 2h30m, 3d or 1w: Go's own form stops at hours.
func parseSpan(text string) (d time.Duration, ok bool) {
	const longest = 100 * 365 * 24 * time.Hour
	for rest := text; rest != ""; {
		part := spanPart.FindStringSubmatch(rest)
		if part == nil {
			return 0, false
		}
		n, err := strconv.ParseInt(part[1], 10, 64)
		if err != nil || n > int64(longest/spanUnits[part[2]]) {
			return 0, false
		}
		if d += time.Duration(n) * spanUnits[part[2]]; d > longest {
			return 0, false
		}
		rest = strings.TrimPrefix(rest, part[0])
	}
	return d, text != ""
}

// instant is a time as it is shown: in UTC, to the second.
func instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// ago is how long ago something was, in the largest unit that says enough.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	switch d := max(0, now.Sub(t)); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
