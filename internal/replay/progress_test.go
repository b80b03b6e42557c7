package replay

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
)

func TestIdentity(t *testing.T) {
	target := Target{Digest: "d", Strays: true, Configured: []string{"a", "b"}}
	options := Options{
		Selection: deadletter.Selection{From: time.UnixMilli(1_780_000_000_000), Classes: []string{"type", "range"}, Columns: []string{"a"}, Keys: []string{"k"}},
		Max:       10, MaxReplays: 3,
	}
	base := identity(&target, &options)
	for name, change := range map[string]func(*Target, *Options){
		"the order of flags and the zone of a time": func(_ *Target, o *Options) {
			o.Selection.From, o.Selection.Classes = o.Selection.From.In(time.FixedZone("CST", 8*3600)), []string{"range", "type", "range"}
		},
		"the order of projections": func(t *Target, _ *Options) { t.Configured = []string{"b", "a"} },
		"the rate":                 func(_ *Target, o *Options) { o.Rate = 100 },
	} {
		target, options := target, options
		change(&target, &options)
		if identity(&target, &options) != base {
			t.Errorf("%s: makes another replay", name)
		}
	}
	for name, change := range map[string]func(*Target, *Options){
		"from":               func(_ *Target, o *Options) { o.Selection.From = o.Selection.From.Add(time.Millisecond) },
		"to":                 func(_ *Target, o *Options) { o.Selection.To = o.Selection.From.Add(time.Hour) },
		"fewer classes":      func(_ *Target, o *Options) { o.Selection.Classes = o.Selection.Classes[:1] },
		"no classes":         func(_ *Target, o *Options) { o.Selection.Classes = nil },
		"another column":     func(_ *Target, o *Options) { o.Selection.Columns = []string{"b"} },
		"the column as key":  func(_ *Target, o *Options) { o.Selection.Columns, o.Selection.Keys = []string{"k"}, []string{"a"} },
		"two keys for one":   func(_ *Target, o *Options) { o.Selection.Keys = []string{"k", ""} },
		"a line break":       func(_ *Target, o *Options) { o.Selection.Keys = []string{"k\n\"\""} },
		"max":                func(_ *Target, o *Options) { o.Max = 3 },
		"max replays":        func(_ *Target, o *Options) { o.MaxReplays = 10 },
		"the mapping":        func(t *Target, _ *Options) { t.Digest = "e" },
		"no strays":          func(t *Target, _ *Options) { t.Strays = false },
		"a projection named": func(t *Target, _ *Options) { t.Configured = []string{"a"} },
	} {
		target, options := target, options
		change(&target, &options)
		if identity(&target, &options) == base {
			t.Errorf("%s: another replay has the same identity", name)
		}
	}
}

func TestUnfinished(t *testing.T) {
	offsets := []kafka.PartitionOffsets{{Partition: 0, End: 100}, {Partition: 1, End: 50}}
	note := func(replay, identity string, until int64, done bool) string {
		return progress{Replay: replay, Identity: identity, Turn: "t", Until: until, Done: done}.text()
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
		{"another identity", map[int32]kafka.Commit{0: commit(40, note("r1", "t", 90, false)), 1: commit(50, note("r1", "t", 50, false))}, ""},
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
			Replay: rapid.StringN(1, 40, 80).Draw(t, "replay"), Identity: rapid.StringMatching(`[0-9a-f]{24}`).Draw(t, "identity"),
			Turn: rapid.StringMatching(`[A-Z2-7]{26}`).Draw(t, "turn"), Until: rapid.Int64Min(0).Draw(t, "until"), Passed: rapid.IntMin(0).Draw(t, "passed"), Done: rapid.Bool().Draw(t, "done"),
		}
		if got, ok := parseProgress(want.text()); !ok || got != want {
			t.Fatalf("%+v became %+v, %v", want, got, ok)
		}
	})
}

// FuzzParseProgress: metadata is whatever has been committed for the group.
func FuzzParseProgress(f *testing.F) {
	f.Add(`{"replay":"r","identity":"s","turn":"t","until":3,"passed":2,"done":true}`)
	f.Add(`{"until":-1}`)
	f.Fuzz(func(t *testing.T, text string) {
		if p, ok := parseProgress(text); ok && (p.Replay == "" || p.Identity == "" || p.Turn == "" || p.Until < 0 || p.Passed < 0) {
			t.Errorf("%q became %+v", text, p)
		}
	})
}
