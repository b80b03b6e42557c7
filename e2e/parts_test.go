package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestTooManyParts overloads the table until ClickHouse takes nothing more, and relieves it later. Overload is waited
// for with growing pauses; it is never taken for bad data.
func TestTooManyParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 1})
	w.apply()
	g := events(t, 2000, 12)
	w.exec("SYSTEM STOP MERGES fitness_results_g1")
	p := w.start("projector", "lanes=1")
	f := w.feed(g)
	f.upTo(0.1, 0) // makes a part of each partition, or some if it is more than one batch
	f.flush()
	w.settle()
	w.exec("ALTER TABLE fitness_results_g1 MODIFY SETTING parts_to_delay_insert = 1, parts_to_throw_insert = 1")
	taken := w.lag()
	f.upTo(1, 0)
	f.flush()
	p.says("Too many parts")
	began := time.Now()
	w.until(soon, "some attempts were made", func() bool {
		return time.Since(began) > 12*time.Second && p.metric("projector_insert_retries_total", `class="transient"`) >= 4
	})
	attempts := p.metric("projector_insert_retries_total", `class="transient"`)
	if lag := w.lag(); lag <= taken || lag == 0 {
		t.Errorf("lag %d during the overload", lag)
	}
	w.exec("ALTER TABLE fitness_results_g1 RESET SETTING parts_to_delay_insert, parts_to_throw_insert", "SYSTEM START MERGES fitness_results_g1")
	p.says("can insert into ClickHouse again")
	w.settle()
	w.equals(model(t, g))
	w.intact()
	p.drain()
	// With pauses that double there are about eight attempts in so many seconds; with equal ones there would be over a
	// hundred.
	t.Logf("%v attempts in %.0f s of overload", attempts, time.Since(began).Seconds())
	if attempts > 30 {
		t.Errorf("%v attempts: the pauses do not grow", attempts)
	}
}

const monthly = `
  - name: fitness_results
    topics: [fitness-results]
    table: fitness_results
    identity: [id]
    order_by: [day, id]
    partition_by: toYYYYMM(day)
    version: version
    columns:
      - {name: id, from: id, type: UInt64}
      - {name: day, from: day, type: Date}
      - {name: version, from: version, type: UInt64}
`

// TestManyPartitions: one batch over 150 monthly partitions, in which the months alternate, is stored by one insert.
// Where the server's limit is lower the batch is divided, as often as it takes and no more.
func TestManyPartitions(t *testing.T) {
	t.Parallel()
	const months, each = 150, 10
	for _, c := range []struct {
		name, settings string
		most           int // inserts
	}{
		{"within the projector's own limit", "", 1},
		{"beyond a limit of 100", "{max_partitions_per_insert_block: 100}", 4 * months * each / 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := withProjections(t, monthly)
			if c.settings != "" {
				config = replaced(t, config, "  # settings: {} ", "  settings: "+c.settings+" ")
			}
			w := newWorld(t, setup{partitions: 1, config: config})
			w.apply()
			var records []*kgo.Record
			for i := range months * each {
				month := i % months
				records = append(records, &kgo.Record{Value: fmt.Appendf(nil, `{"id":%d,"day":"%d-%02d-01","version":1}`, i, 2014+month/12, 1+month%12)})
			}
			w.produce(records...)
			p := w.start("projector", "lanes=1", fmt.Sprint("batch.rows=", len(records)), "batch.delay=1m")
			w.settle()
			w.intact()
			if got, want := w.ask("SELECT count(), uniqExact(id), uniqExact(toYYYYMM(day)) FROM fitness_results_current"), fmt.Sprintf("%d\t%[1]d\t%d", len(records), months); got != want {
				t.Errorf("rows, records and months in the view: %s, want %s", got, want)
			}
			inserts, rows := w.inserted("fitness_results_g1")
			divided, retries := p.metric("projector_divided_inserts_total"), p.metric("projector_insert_retries_total")
			t.Logf("%d rows over %d partitions by %d inserts; %v inserts of parts of the batch, %v retries", rows, months, inserts, divided, retries)
			if inserts > c.most || rows != len(records) || retries != 0 || (divided > 0) != (c.settings != "") || int(divided) > 2*c.most {
				t.Errorf("%d inserts of %d rows, %v divided, %v retries: at most %d inserts of %d rows are allowed", inserts, rows, divided, retries, c.most, len(records))
			}
			if log := p.log(); strings.Contains(log, "cannot insert") {
				t.Error("the log speaks of trouble")
			}
			p.drain()
		})
	}
}
