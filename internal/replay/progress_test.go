package replay

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
)

func TestDigest(t *testing.T) {
	base := deadletter.Selection{From: time.UnixMilli(1_780_000_000_000), Classes: []string{"type", "range"}, Columns: []string{"a"}, Keys: []string{"k"}}
	same := base
	same.From, same.Classes = base.From.In(time.FixedZone("CST", 8*3600)), []string{"range", "type", "range"}
	if digest(same) != digest(base) {
		t.Error("the order of flags and the zone of a time make another replay")
	}
	for name, change := range map[string]func(*deadletter.Selection){
		"from":              func(s *deadletter.Selection) { s.From = s.From.Add(time.Millisecond) },
		"to":                func(s *deadletter.Selection) { s.To = s.From.Add(time.Hour) },
		"fewer classes":     func(s *deadletter.Selection) { s.Classes = s.Classes[:1] },
		"no classes":        func(s *deadletter.Selection) { s.Classes = nil },
		"another column":    func(s *deadletter.Selection) { s.Columns = []string{"b"} },
		"the column as key": func(s *deadletter.Selection) { s.Columns, s.Keys = []string{"k"}, []string{"a"} },
		"two keys for one":  func(s *deadletter.Selection) { s.Keys = []string{"k", ""} },
		"a line break":      func(s *deadletter.Selection) { s.Keys = []string{"k\n\"\""} },
	} {
		other := base
		change(&other)
		if digest(other) == digest(base) {
			t.Errorf("%s: another selection has the same digest", name)
		}
	}
}

func TestUnfinished(t *testing.T) {
	offsets := []kafka.PartitionOffsets{{Partition: 0, End: 100}, {Partition: 1, End: 50}}
	note := func(replay, selection string, until int64, done bool) string {
		return progress{Replay: replay, Selection: selection, Until: until, Done: done}.text()
	}
	commit := func(offset int64, text string) kafka.Commit { return kafka.Commit{Offset: offset, Metadata: text} }
	for _, c := range []struct {
		name    string
		commits map[int32]kafka.Commit
		want    string
	}{
		{"never replayed", nil, ""},
		{"unfinished", map[int32]kafka.Commit{0: commit(40, note("r1", "s", 90, false)), 1: commit(50, note("r1", "s", 50, false))}, "r1"},
		{"finished", map[int32]kafka.Commit{0: commit(90, note("r1", "s", 90, true)), 1: commit(50, note("r1", "s", 50, true))}, ""},
		{"another selection", map[int32]kafka.Commit{0: commit(40, note("r1", "t", 90, false)), 1: commit(50, note("r1", "t", 50, false))}, ""},
		{"two replays", map[int32]kafka.Commit{0: commit(40, note("r1", "s", 90, false)), 1: commit(50, note("r2", "s", 50, false))}, ""},
		{"a partition is new", map[int32]kafka.Commit{0: commit(40, note("r1", "s", 90, false))}, ""},
		{"somebody else's commit", map[int32]kafka.Commit{0: commit(40, note("r1", "s", 90, false)), 1: commit(50, "")}, ""},
		{"the topic was replaced", map[int32]kafka.Commit{0: commit(40, note("r1", "s", 900, false)), 1: commit(50, note("r1", "s", 50, false))}, ""},
		{"no JSON", map[int32]kafka.Commit{0: commit(40, "{"), 1: commit(50, "null")}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, resumed := unfinished(c.commits, "s", offsets)
			if !resumed {
				got = ""
			}
			if got != c.want {
				t.Errorf("resumes %q, want %q", got, c.want)
			}
		})
	}
}

func TestProgressIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := progress{
			Replay: rapid.StringN(1, 40, 80).Draw(t, "replay"), Selection: rapid.StringMatching(`[0-9a-f]{24}`).Draw(t, "selection"),
			Until: rapid.Int64Min(0).Draw(t, "until"), Done: rapid.Bool().Draw(t, "done"),
		}
		if got, ok := parseProgress(want.text()); !ok || got != want {
			t.Fatalf("%+v became %+v, %v", want, got, ok)
		}
	})
}

// FuzzParseProgress: metadata is whatever has been committed for the group.
func FuzzParseProgress(f *testing.F) {
	f.Add(`{"replay":"r","selection":"s","until":3,"done":true}`)
	f.Add(`{"until":-1}`)
	f.Fuzz(func(t *testing.T, text string) {
		if p, ok := parseProgress(text); ok && (p.Replay == "" || p.Selection == "" || p.Until < 0) {
			t.Errorf("%q became %+v", text, p)
		}
	})
}
