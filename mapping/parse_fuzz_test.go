package mapping

import (
	"strings"
	"testing"
	"time"
)

// FuzzTimestamp: no panic, and whatever is a time here and in RFC 3339 is the same instant in both.
func FuzzTimestamp(f *testing.F) {
	for _, text := range []string{
		"2026-09-30T08:15:00Z", "2026-09-30 08:15", "2026-02-29T00:00:00Z", "2024-02-29T23:59:59.999999999+14:00", "0000-00-00T00:00:00Z",
		"2026-09-30T24:00:00Z", "2026-06-30T23:59:60Z", "2026-09-30T08:15:00-0330", "1969-12-31t23:59:59.5z", "9999-12-31T23:59:59-99:99",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, form := parseTimestamp([]byte(text))
		// Time.Parse takes a comma for the point and hours of one digit, which is not RFC 3339.
		want, err := time.Parse(time.RFC3339Nano, text)
		_, offset := want.Zone() // Go takes one of a day and more, and the year 0
		if strings.ContainsRune(text, ',') || len(text) < 20 || text[13] != ':' || offset >= 86400 || offset <= -86400 || text[:4] == "0000" {
			return
		}
		if err == nil && form != isTime {
			t.Fatalf("%q is no time, but %v", text, want)
		}
		if err != nil || form != isTime {
			return
		}
		if !at.hasOffset || at.local-at.offset != want.Unix() {
			t.Fatalf("%q is %d s since 1970, want %d", text, at.local-at.offset, want.Unix())
		}
		if digits := "." + (string(at.fraction) + "000000000")[:9]; digits != want.Format(".000000000") {
			t.Fatalf("%q has the fraction %s, want %s", text, digits, want.Format(".000000000"))
		}
	})
}

// FuzzPath: no panic, and the steps of a path put together again are the path.
func FuzzPath(f *testing.F) {
	for _, path := range []string{"a", "a.b", `a\.b`, `a\\.b`, ".", "a..b", `\`, `a\b`, "\xff", strings.Repeat("a.", 200)} {
		f.Add(path)
	}
	escape := strings.NewReplacer(`\`, `\\`, `.`, `\.`)
	f.Fuzz(func(t *testing.T, path string) {
		steps, err := splitPath(path)
		if err != nil {
			return
		}
		for i := range steps {
			steps[i] = escape.Replace(steps[i])
		}
		if again := strings.Join(steps, "."); again != path {
			t.Fatalf("%q is read as %q", path, again)
		}
	})
}
