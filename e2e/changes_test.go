package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/fitness"
)

// TestColumnAddedWhileRunning: a column that the configuration does not know disturbs nobody.
func TestColumnAddedWhileRunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 2})
	w.apply()
	p := w.start("projector", "batch.rows=200")
	g := events(t, 4000, 15)
	f := w.feed(g)
	f.upTo(0.5, 0)
	f.flush()
	w.until(soon, "rows are stored", func() bool { return w.ask("SELECT count() > 0 FROM fitness_results_versions") == "1" })
	w.exec("ALTER TABLE fitness_results_g1 ADD COLUMN grade LowCardinality(String) DEFAULT 'none' AFTER version")
	f.upTo(1, 0)
	f.flush()
	w.settle()
	w.equals(model(t, g))
	w.intact()
	if failed := p.metric("projector_inserts_total", `outcome="failed"`); failed != 0 {
		t.Errorf("%v inserts failed", failed)
	}
	if got := w.ask("SELECT DISTINCT grade FROM fitness_results_g1"); got != "none" {
		t.Errorf("the new column holds %q", got)
	}
	p.drain()
}

// TestViewThatThrows: a materialized view that fails is not the rows' fault. None of them leaves for the dead letters:
// the process stops and names the view. When the view is gone everything is stored.
func TestViewThatThrows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 2})
	w.apply()
	w.exec("CREATE MATERIALIZED VIEW picky ENGINE = MergeTree ORDER BY data_id AS SELECT data_id, throwIf(version = 3, 'no third tries') AS x FROM fitness_results_g1")
	g := events(t, 1000, 16)
	w.fill(g)
	p := w.start("projector")
	p.ends(soon, 1)
	for _, want := range []string{"no third tries", "while pushing to view " + w.db.Name + ".picky", "repair or drop the materialized view " + w.db.Name + ".picky: the rows themselves are good"} {
		if !strings.Contains(p.log(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	if lag := w.lag(); lag != int64(g.Len()) {
		t.Errorf("lag %d, want %d: something was committed", lag, g.Len())
	}
	w.exec("DROP TABLE picky SYNC")
	p.restart()
	w.settle()
	w.equals(model(t, g))
	w.intact()
	p.drain()
}

// TestOnlyTheBadRowLeaves: of 1,000 events one cannot be read and one is refused by a constraint of the table. Exactly
// these two become letters, and finding the second costs a few inserts.
func TestOnlyTheBadRowLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 1})
	w.apply()
	w.exec("ALTER TABLE fitness_results_g1 ADD CONSTRAINT plausible CHECK result < 1000000")
	const n, unreadable, refused = 1000, 300, 701
	var m fitness.Model
	values := make([][]byte, n)
	var records []*kgo.Record
	for i := range values {
		e := fitness.Event{DataID: uint64(i + 1), DetectID: 10_000, UserID: 4, ProjectID: 3, Version: 1, Result: 2_310, Unit: "m"}
		if i == refused {
			e.Result = 2_000_000_000
		}
		values[i] = e.AppendJSON(nil)
		switch i {
		case unreadable:
			values[i] = values[i][:40]
		case refused:
		default:
			if err := m.Add(values[i]); err != nil {
				t.Fatal(err)
			}
		}
		records = append(records, &kgo.Record{Value: values[i]})
	}
	w.produce(records...)
	p := w.start("projector", "lanes=1", fmt.Sprint("batch.rows=", n), "batch.delay=1m")
	w.settle()
	w.equals(&m)
	classes := map[string]int64{}
	for _, l := range w.letters() {
		classes[l.Class] = l.Info.Offset
		if string(l.Value) != string(values[l.Info.Offset]) {
			t.Errorf("the letter of offset %d is not what was sent", l.Info.Offset)
		}
	}
	if len(classes) != 2 || classes["malformed"] != unreadable || classes["rejected"] != refused {
		t.Errorf("letters by class %v", classes)
	}
	divided := p.metric("projector_divided_inserts_total")
	t.Logf("%v inserts of parts of the batch", divided)
	if divided < 2 || divided > 20 { // 2·log2(1000)
		t.Errorf("%v inserts of parts of the batch, want at most 20", divided)
	}
	p.drain()
}

// TestConstraintNobodyMeets: when the table refuses everything, the deployment is wrong. The process stops before it
// has parked the topic, and after the correction nothing is missing.
func TestConstraintNobodyMeets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		set  []string
		want string
		n    int // events
		most int // letters
	}{
		{"in one batch", []string{"dead_letter.stop_run=40"}, "ClickHouse rejected 40 rows in a row, stop_run is 40", 1000, 0},
		{"by its share", []string{"dead_letter.stop_run=0", "dead_letter.stop_ratio=0.1"}, "more than stop_ratio (0.1)", 1000, 0},
		{"on a slow topic", []string{"dead_letter.stop_run=60", "batch.rows=10"}, "ClickHouse rejected 60 rows in a row, stop_run is 60", 200, 59},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, setup{partitions: 1})
			w.apply()
			w.exec("ALTER TABLE fitness_results_g1 ADD CONSTRAINT nobody CHECK user_id = 0")
			w.exec("SYSTEM STOP MERGES fitness_results_g1")
			g := events(t, c.n, 17)
			w.fill(g)
			p := w.start("projector", append(c.set, "lanes=1")...)
			p.ends(soon, 1)
			for _, want := range []string{c.want, "wrong deployment", "Constraint `nobody`"} {
				if !strings.Contains(p.log(), want) {
					t.Errorf("the log does not say %q", want)
				}
			}
			letters := len(w.letters())
			if lag := w.lag(); letters > c.most || lag != int64(g.Len()-letters) {
				t.Errorf("%d letters and lag %d of %d, want at most %d letters", letters, lag, g.Len(), c.most)
			}
			w.exec("ALTER TABLE fitness_results_g1 DROP CONSTRAINT nobody")
			p.restart()
			w.settle()
			if letters == 0 {
				w.equals(model(t, g))
				w.intact()
			}
			if got, want := w.ask("SELECT count() FROM fitness_results_versions"), fmt.Sprint(g.Len()-letters); got != want {
				t.Errorf("%s rows, want %s", got, want)
			}
			p.drain()
		})
	}
}
