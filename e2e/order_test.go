package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/fitness"
)

// permutations yields every order of n things.
func permutations(n int, yield func(order []int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var rest func(k int)
	rest = func(k int) {
		if k == n {
			yield(order)
			return
		}
		for i := k; i < n; i++ {
			order[k], order[i] = order[i], order[k]
			rest(k + 1)
			order[k], order[i] = order[i], order[k]
		}
	}
	rest(0)
}

// TestBornAgain delivers a record's version 1, its deletion as version 2, its return as version 3, and the first two
// once more, in each of the 120 orders, to a record for each order. Version 3 must stay, whatever was in one batch.
func TestBornAgain(t *testing.T) {
	t.Parallel()
	deliveries := []struct {
		version uint64
		deleted bool
	}{{1, false}, {2, true}, {3, false}, {2, true}, {1, false}}
	for name, set := range map[string][]string{
		"a batch for each delivery": {"batch.rows=120"},
		"all in one batch":          {"batch.rows=600", "batch.delay=1m"},
		"batches of 7":              {"batch.rows=7"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{partitions: 1})
			w.apply()
			rounds := make([][]*kgo.Record, len(deliveries))
			var m fitness.Model
			record := uint64(0)
			permutations(len(deliveries), func(order []int) {
				record++
				for round, d := range order {
					e := fitness.Event{
						DataID: record, DetectID: 10_000, UserID: 4, ProjectID: 3, Version: deliveries[d].version,
						Result: 1000 * int64(deliveries[d].version), Unit: "m", IsDeleted: deliveries[d].deleted,
					}
					value := e.AppendJSON(nil)
					rounds[round] = append(rounds[round], &kgo.Record{Key: e.AppendKey(nil), Value: value})
					if err := m.Add(value); err != nil {
						t.Fatal(err)
					}
				}
			})
			for _, records := range rounds {
				w.produce(records...)
			}
			p := w.start("projector", append(set, "lanes=1")...)
			w.settle()
			for range 2 {
				w.equals(&m)
				if got, want := w.ask("SELECT count(), min(version), max(version), min(result), max(result) FROM fitness_results_current"), fmt.Sprintf("%d\t3\t3\t3\t3", record); got != want {
					t.Errorf("the view has %s, want %s", got, want)
				}
				w.exec("OPTIMIZE TABLE fitness_results_g1 FINAL")
			}
			w.intact()
			p.drain()
		})
	}
}

// TestConflicts: two contents with one version are the producer's fault. They are counted, and both are found with the
// places they came from: in the log when they meet in one batch, in the view in any case.
func TestConflicts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 1})
	w.apply()
	w.exec("SYSTEM STOP MERGES fitness_results_g1")
	p := w.start("projector", "lanes=1", "batch.delay=500ms")
	p.ready()
	event := func(record uint64, result int64) *kgo.Record {
		e := fitness.Event{DataID: record, DetectID: 10_000, UserID: 4, ProjectID: 3, Version: 7, Result: result, Unit: "m"}
		return &kgo.Record{Value: e.AppendJSON(nil)}
	}
	w.produce(event(1, 1000), event(2, 1000), event(1, 2000)) // offsets 0 to 2: a conflict within a batch
	w.settle()
	w.produce(event(2, 3000), event(3, 1000), event(3, 1000)) // with another batch, and a mere repetition
	w.settle()
	p.says("two events have the same identity and version and different content")
	for line := range strings.Lines(p.log()) {
		if !strings.Contains(line, "same identity and version") {
			continue
		}
		for _, want := range []string{`"identity":"data_id=1"`, `"version":"7"`, `"first":"` + w.topic + `/0@0"`, `"second":"` + w.topic + `/0@2"`} {
			if !strings.Contains(line, want) {
				t.Errorf("the log does not say %s: %s", want, line)
			}
		}
	}
	if n := p.metric("projector_conflicts_total"); n != 1 {
		t.Errorf("projector_conflicts_total is %v, want 1", n)
	}
	if got, want := w.ask("SELECT data_id, version, result, _topic, _partition, _offset FROM fitness_results_conflicts ORDER BY _offset"),
		strings.ReplaceAll("1\t7\t1\tT\t0\t0\n2\t7\t1\tT\t0\t1\n1\t7\t2\tT\t0\t2\n2\t7\t3\tT\t0\t3", "T", w.topic); got != want {
		t.Errorf("conflicts:\n%s\nwant:\n%s", got, want)
	}
	w.intact()
	p.drain()
}
