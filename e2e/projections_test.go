package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestTwoProjections: one process fills two tables from two topics, and trouble with one table holds up its own topic
// only.
func TestTwoProjections(t *testing.T) {
	t.Parallel()
	second := `
projections:
  - name: orders
    topics: [fitness-results-orders]
    table: orders
    identity: [id]
    order_by: [id]
    version: version
    columns:
      - {name: id, from: id, type: UInt64}
      - {name: version, from: version, type: UInt64}
`
	w := newWorld(t, setup{config: replaced(t, repositoryConfig(t), "\nprojections:\n", second)})
	topic, group := w.topic+"-orders", w.topic+".orders.g1"
	w.createTopic(topic, 2)
	order := func(id int) {
		t.Helper()
		w.produce(&kgo.Record{Topic: topic, Value: fmt.Appendf(nil, `{"id":%d,"version":1}`, id)})
	}
	orders := func(want string) {
		t.Helper()
		w.settleOf(topic, group)
		if got := w.ask("SELECT arrayStringConcat(groupArray(toString(id)), ' ') FROM (SELECT id FROM orders_current ORDER BY id)"); got != want {
			t.Errorf("orders %q, want %q", got, want)
		}
	}
	// held holds that the orders wait for a reason while results come and go.
	next := uint64(0)
	held := func(lag int64) {
		t.Helper()
		next++
		e := storyEvent(next)
		w.produce(&e)
		w.settle()
		if got := w.ask("SELECT count() FROM fitness_results_current"); got != fmt.Sprint(next) {
			t.Errorf("%s results, want %d", got, next)
		}
		if o, err := w.offsetsOf(t.Context(), topic, group); err != nil || o.lag() != lag {
			t.Errorf("lag of the orders is %d, want %d (%v)", o.lag(), lag, err)
		}
	}

	// A table that does not exist yet.
	w.apply("--projection", "fitness_results")
	p := w.start("projector")
	order(1)
	held(1)
	w.until(soon, "only the missing table is in the way", func() bool {
		code, body := p.probe("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "orders_g1 does not exist") && !strings.Contains(body, "fitness_results")
	})
	w.apply()
	orders("1")
	p.ready()

	// A table that is overloaded.
	w.exec("SYSTEM STOP MERGES orders_g1", "ALTER TABLE orders_g1 MODIFY SETTING parts_to_delay_insert = 1, parts_to_throw_insert = 1")
	order(2)
	p.says(`Too many parts`)
	held(1)
	held(1)
	if n := p.metric("projector_insert_retries_total", `projection="orders"`, `class="transient"`); n < 1 {
		t.Errorf("%v retries are counted", n)
	}
	w.exec("ALTER TABLE orders_g1 RESET SETTING parts_to_delay_insert, parts_to_throw_insert", "SYSTEM START MERGES orders_g1")
	orders("1 2")
	p.says("can insert into ClickHouse again")

	// A table that is gone ends the process, which would otherwise look alive, and loses nothing.
	w.exec("DROP TABLE orders_g1 SYNC")
	order(3)
	p.ends(soon, 1)
	if log := p.log(); !strings.Contains(log, "`projector schema apply` creates it anew") {
		t.Errorf("the log does not say what to do")
	}
	w.apply()
	p.restart()
	orders("3")
	held(0)
	w.intact()
	p.drain()
}

// storyEvent is a good event of the repository's projection.
func storyEvent(id uint64) kgo.Record {
	return kgo.Record{Value: fmt.Appendf(nil, `{"eventId":"e","dataId":%d,"detectId":1,"userId":4,"projectId":3,"version":1,"result":2.31,"unit":"m","isDeleted":false,"schemaVersion":1}`, id)}
}
