package fitness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestEventIsThePublishedExample(t *testing.T) {
	e := Event{
		DataID: 900001, DetectID: 10001, UserID: 4, ProjectID: 3, Version: 2, Result: 2310, Decimals: 2, Unit: "m",
	}
	if got := string(e.AppendJSON(nil)); got != sound {
		t.Errorf("event\n%s\nwant\n%s", got, sound)
	}
	if got := string(e.AppendKey(nil)); got != "900001" {
		t.Errorf("key %q, want 900001", got)
	}
}

func TestAppendResult(t *testing.T) {
	for _, test := range []struct {
		thousandths int64
		decimals    uint8
		want        string
	}{
		{2310, 2, "2.31"},
		{2310, 3, "2.310"},
		{-12_000, 1, "-12.0"},
		{-500, 1, "-0.5"},
		{0, 0, "0"},
		{7_000, 0, "7"},
		{600_000, 0, "6E+2"},
		{1_200_000, 0, "12E+2"},
		{5_000_000, 0, "5E+3"},
		{5_050_000, 0, "5050"},
		{64_320, 2, "64.32"},
	} {
		if got := string(appendResult(nil, test.thousandths, test.decimals)); got != test.want {
			t.Errorf("%d thousandths with %d decimals: %s, want %s", test.thousandths, test.decimals, got, test.want)
		}
	}
}

func TestSequenceIsWhatTheConfigurationSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			Seed:       rapid.Uint64().Draw(t, "seed"),
			Records:    rapid.IntRange(1, 200).Draw(t, "records"),
			Versions:   rapid.IntRange(1, 5).Draw(t, "versions"),
			Duplicates: float64(rapid.IntRange(0, 9).Draw(t, "duplicates")) / 10,
			Deletions:  float64(rapid.IntRange(0, 10).Draw(t, "deletions")) / 10,
			Shuffled:   rapid.Bool().Draw(t, "shuffled"),
		}
		g, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		again, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		times, contents := map[string]int{}, map[string]string{}
		for i := range g.Len() {
			value := string(g.AppendValue(nil, i))
			if value != string(again.AppendValue(nil, i)) {
				t.Fatalf("event %d differs between two generators of one configuration", i)
			}
			e := g.At(i)
			key := fmt.Sprint(e.DataID, " ", e.Version)
			if other, ok := contents[key]; ok && other != value {
				t.Fatalf("two contents of one version:\n%s\n%s", other, value)
			}
			contents[key] = value
			times[value]++
		}
		if want := cfg.Records * cfg.Versions; len(times) != want {
			t.Errorf("%d different events, want %d: every version of every record once", len(times), want)
		}
		if want := int(float64(len(times))/(1-cfg.Duplicates) + 0.5); g.Len() != want {
			t.Errorf("%d events, want %d", g.Len(), want)
		}
	})
}

func TestOrder(t *testing.T) {
	versions := func(shuffled bool) (versions []uint64) {
		g, err := New(Config{Records: 500, Versions: 3, Shuffled: shuffled})
		if err != nil {
			t.Fatal(err)
		}
		for i := range g.Len() {
			versions = append(versions, g.At(i).Version)
		}
		return versions
	}
	if !slices.IsSorted(versions(false)) {
		t.Error("unshuffled versions do not rise")
	}
	descents := 0
	shuffled := versions(true)
	for i := 1; i < len(shuffled); i++ {
		if shuffled[i] < shuffled[i-1] {
			descents++
		}
	}
	// Of independent draws from three equal shares a third descends: 500 of 1,500, give or take.
	if descents < 400 || descents > 600 {
		t.Errorf("%d descents in %d shuffled versions, want about a third", descents, len(shuffled))
	}
}

func TestSharesOfDeletionsAndDuplicates(t *testing.T) {
	g, err := New(Config{Records: 20_000, Versions: 4, Duplicates: 0.2, Deletions: 0.05, Shuffled: true})
	if err != nil {
		t.Fatal(err)
	}
	if g.Len() != 100_000 {
		t.Fatalf("%d events, want 100,000", g.Len())
	}
	deletions := 0
	for i := range g.Len() {
		if g.At(i).IsDeleted {
			deletions++
		}
	}
	if deletions < 4_500 || deletions > 5_500 {
		t.Errorf("%d deletions in 100,000 events, want about 5,000", deletions)
	}
}

func TestSize(t *testing.T) {
	for _, test := range []struct{ size, least, most int }{
		{0, 150, 200}, {170, 150, 200}, {300, 290, 310}, {1_000, 990, 1_010}, {10_000, 9_990, 10_010}, {100_000, 99_990, 100_010},
	} {
		t.Run(fmt.Sprint(test.size), func(t *testing.T) {
			g, err := New(Config{Records: 300, Versions: 2, Size: test.size})
			if err != nil {
				t.Fatal(err)
			}
			for i := range min(g.Len(), 10_000_000/max(test.size, 1)) {
				value := g.AppendValue(nil, i)
				if len(value) < test.least || len(value) > test.most {
					t.Fatalf("event of %d bytes, want %d..%d: %.300s", len(value), test.least, test.most, value)
				}
				if !json.Valid(value) {
					t.Fatalf("no JSON: %.300s", value)
				}
				plain := g.At(i)
				if !bytes.HasPrefix(value, plain.appendFields(nil)) {
					t.Fatalf("padding changed the fields: %.300s", value)
				}
			}
		})
	}
}

func TestAppendsIntoTheCallersBuffer(t *testing.T) {
	g, err := New(Config{Records: 100, Versions: 2, Duplicates: 0.2, Shuffled: true})
	if err != nil {
		t.Fatal(err)
	}
	buffer, i := make([]byte, 0, 512), 0
	allocations := testing.AllocsPerRun(100, func() {
		buffer = g.AppendValue(g.AppendKey(buffer[:0], i), i)
		i = (i + 1) % g.Len()
	})
	if allocations != 0 {
		t.Errorf("%v allocations an event, want none", allocations)
	}
}

func TestNewNamesEveryMistake(t *testing.T) {
	_, err := New(Config{Records: 0, Versions: -1, Campaigns: -1, Duplicates: 1, Deletions: 2, Size: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, name := range []string{"Records", "Versions", "Campaigns", "Duplicates", "Deletions", "Size"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in: %v", name, err)
		}
	}
	if _, err := New(Config{Records: 2, FirstID: 1<<64 - 1}); err == nil {
		t.Error("ids beyond UInt64 are accepted")
	}
	if _, err := New(Config{Records: 1, FirstID: 1<<64 - 1}); err != nil {
		t.Errorf("the greatest id is refused: %v", err)
	}
}

func TestPoisonsDifferFromTheSoundEvent(t *testing.T) {
	names := map[string]bool{}
	for i, p := range Poisons() {
		if names[p.Name] {
			t.Errorf("two poison events are named %q", p.Name)
		}
		names[p.Name] = true
		if bytes.Contains(p.Value, []byte("900001")) {
			t.Errorf("%s: speaks of a record that others write: %s", p.Name, p.Value)
		}
		if strings.ReplaceAll(string(p.Value), fmt.Sprint(FirstPoisonID+i), "900001") == sound {
			t.Errorf("%s: not spoilt: %s", p.Name, p.Value)
		}
	}
}

func BenchmarkGenerator(b *testing.B) {
	for _, size := range []int{0, 1_000, 10_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			g, err := New(Config{Records: 1 << 20, Versions: 2, Duplicates: 0.2, Shuffled: true, Size: size})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			var buffer []byte
			for i := 0; b.Loop(); i++ {
				buffer = g.AppendValue(g.AppendKey(buffer[:0], i%g.Len()), i%g.Len())
			}
		})
	}
}
