package e2e

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/fitness"
)

// TestPoison sends everything that can be wrong with an event, each between two good ones.
func TestPoison(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 2})
	w.apply()
	p := w.start("projector")
	p.ready()

	good := func(i int) *kgo.Record {
		e := fitness.Event{DataID: uint64(1000 + i), DetectID: 10_001, UserID: 4, ProjectID: 3, Version: 1, Result: 2_310, Decimals: 2, Unit: "m"}
		// What a newer producer sends along is no fault.
		value := append(bytes.TrimSuffix(e.AppendJSON(nil), []byte("}")), `,"weather":{"wind":"west"}}`...)
		return &kgo.Record{Key: []byte("k"), Value: value}
	}
	poisons := fitness.Poisons()
	sent := map[int64]*kgo.Record{} // all have one key, and so one partition
	records := []*kgo.Record{good(0)}
	for i, poison := range poisons {
		records = append(records, &kgo.Record{
			Key: []byte("k"), Value: poison.Value, Timestamp: time.UnixMilli(1_790_000_000_000 + int64(i)),
			Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte(poison.Name)}, {Key: "trace", Value: nil}},
		}, good(i+1))
	}
	w.produce(records...)
	for _, r := range records {
		sent[r.Offset] = r
	}
	w.settle()

	var m fitness.Model
	for i := range len(poisons) + 1 {
		if err := m.Add(good(i).Value); err != nil {
			t.Fatal(err)
		}
	}
	w.equals(&m)
	letters := w.letters()
	if len(letters) != len(poisons) {
		t.Errorf("%d letters, want %d", len(letters), len(poisons))
	}
	parked := map[string]letter{}
	for _, l := range letters {
		name := string(l.Headers[0].Value)
		if _, twice := parked[name]; twice {
			t.Errorf("%s: two letters", name)
		}
		parked[name] = l
	}
	for _, poison := range poisons {
		l, ok := parked[poison.Name]
		if !ok {
			t.Errorf("%s: no letter", poison.Name)
			continue
		}
		if l.Class != poison.Class || l.Column != poison.Column || l.Error == "" {
			t.Errorf("%s: class %q, column %q, reason %q; want class %q, column %q and a reason", poison.Name, l.Class, l.Column, l.Error, poison.Class, poison.Column)
		}
		was := sent[l.Info.Offset]
		if diff := cmp.Diff(was.Value, l.Value); diff != "" || was.Value == nil != (l.Value == nil) || string(l.Key) != "k" {
			t.Errorf("%s: the value is not as it was: key %q, %s", poison.Name, l.Key, diff)
		}
		if l.Info.Topic != w.topic || l.Info.Partition != was.Partition || !l.Info.Timestamp.Equal(was.Timestamp) || l.Replays != 0 || l.Code != 0 || l.Pointer != "" {
			t.Errorf("%s: its headers say %+v", poison.Name, l.Info)
		}
		if age := time.Since(l.FailedAt); age < 0 || age > 10*time.Minute {
			t.Errorf("%s: failed at %v", poison.Name, l.FailedAt)
		}
		if diff := cmp.Diff(was.Headers, l.Headers[:2]); diff != "" {
			t.Errorf("%s: the record's own headers are not as they were: %s", poison.Name, diff)
		}
	}
	if got := p.metric("projector_letters_total"); got != float64(len(poisons)) {
		t.Errorf("projector_letters_total is %v, want %d", got, len(poisons))
	}
	if got := p.metric("projector_unknown_fields_total"); got != float64(len(poisons)+1) {
		t.Errorf("projector_unknown_fields_total is %v, want %d", got, len(poisons)+1)
	}
	p.ready()
	p.drain()
}

// TestIgnoredTombstone: what the configuration ignores is counted and makes no letter.
func TestIgnoredTombstone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{config: replaced(t, repositoryConfig(t), "null_value: dead_letter", "null_value: ignore")})
	w.apply()
	p := w.start("projector")
	w.produce(&kgo.Record{Key: []byte("1")}, &kgo.Record{Key: []byte("2")})
	w.settle()
	w.intact()
	p.ready()
	if got := p.metric("projector_ignored_total"); got != 2 {
		t.Errorf("projector_ignored_total is %v, want 2", got)
	}
	p.drain()
}

// TestWrongDeployment: when almost everything is refused, the mapping is wrong and not the data. The process stops
// before it parks or commits anything, and a corrected deployment misses nothing.
func TestWrongDeployment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		events int
		set    []string
		want   string
	}{
		{"stop_ratio", 200, []string{"lanes=1"}, "records were refused, more than stop_ratio (0.5)"},
		{"stop_run", 60, []string{"lanes=1", "dead_letter.stop_run=50"}, "records in a row were refused, stop_run is 50"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, setup{partitions: 1})
			w.apply()
			right := w.config
			w.write(replaced(t, repositoryConfig(t), "from: userId", "from: user.id"))
			g := events(t, c.events, 3)
			w.fill(g)
			p := w.start("wrong", c.set...)
			p.ends(soon, 1)
			log := p.log()
			for _, want := range []string{c.want, "wrong deployment", "nothing of this batch was parked or committed", w.topic + "/0 offset ", "user_id", "correct "} {
				if !strings.Contains(log, want) {
					t.Errorf("the log does not say %q", want)
				}
			}
			if lag := w.lag(); lag != int64(g.Len()) {
				t.Errorf("lag %d, want %d: something was committed", lag, g.Len())
			}
			if letters := w.letters(); len(letters) > 0 {
				t.Errorf("%d letters were parked", len(letters))
			}
			w.config = right
			p = w.start("corrected", c.set...)
			w.settle()
			w.equals(model(t, g))
			w.intact()
			if got := w.ask("SELECT count() FROM fitness_results_versions"); got != strconv.Itoa(g.Len()) {
				t.Errorf("%s rows, want one of each of the %d events", got, g.Len())
			}
			p.drain()
		})
	}
}
