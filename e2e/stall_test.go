package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const documents = `
  - name: fitness_results
    topics: [fitness-results]
    table: fitness_results
    identity: [id]
    order_by: [id]
    version: version
    columns:
      - {name: id, from: id, type: UInt64}
      - {name: version, from: version, type: UInt64}
      - {name: text, from: text, type: String}
`

// TestStall sends records of 150 KB and then lets ClickHouse fall silent, with far more in the topic than a process may
// hold: the process must stay within its budget, must not be expelled, and must have no more goroutines and connections
// afterwards than before. E2E_STALL is the silence in seconds; `make e2e-stall` takes 600.
func TestStall(t *testing.T) {
	t.Parallel()
	const size, n = 150_000, 1500
	stall := time.Duration(number(t, "E2E_STALL", 15)) * time.Second
	w := newWorld(t, setup{partitions: 6, config: withProjections(t, documents)})
	w.apply()
	link := newProxy(t, w.db.Addr())
	p := w.start("projector", "lanes=2", "batch.bytes=16MiB", "clickhouse.insert_timeout=5s", "clickhouse.addresses="+link.Addr())
	p.ready()
	budget := p.metric("projector_memory_budget_bytes")
	random := rand.New(rand.NewPCG(18, 18))
	letters := make([]byte, size)
	document := func(id int) *kgo.Record { // compresses to about two thirds
		for i := range letters {
			letters[i] = "abcdefghijklmnopqrstuvwxyz 012345"[random.IntN(33)]
		}
		return &kgo.Record{Value: fmt.Appendf(nil, `{"id":%d,"version":1,"text":"%s"}`, id, letters)}
	}
	feed := func(from, to int) {
		for i := from; i < to; i += 100 {
			var some []*kgo.Record
			for id := i; id < i+100; id++ {
				some = append(some, document(id))
			}
			w.produce(some...)
		}
	}
	feed(0, 400)
	w.settle()
	goroutines, sockets := p.metric("go_goroutines"), p.sockets()
	t.Logf("at rest: %v goroutines, %d sockets, %d MiB", goroutines, sockets, p.resident()>>20)

	reached := link.holdRequests(1 << 20)
	feed(400, n)
	select {
	case <-reached:
	case <-time.After(soon):
		t.Fatal("no insert came")
	}
	end := time.NewTimer(stall)
	defer end.Stop()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	most := 0
	watch := func() { most = max(most, p.resident()) }
	for stalled := true; stalled; {
		select {
		case <-end.C:
			stalled = false
		case <-look.C:
			watch()
		}
	}
	during := most
	link.cut()
	link.release()
	w.until(2*time.Minute, "everything is committed", func() bool {
		watch()
		return w.lag() == 0
	})
	t.Logf("%d records of %d KB, %v of silence: at most %d MiB resident during it and %d MiB in all, of a budget of %.0f MiB", n, size/1000, stall, during>>20, most>>20, budget/(1<<20))
	if limit := 1.3 * budget; budget == 0 || float64(most) > limit {
		t.Errorf("%d MiB resident, more than the budget of %.0f MiB and 30 %%", most>>20, budget/(1<<20))
	}
	if got, want := w.ask("SELECT count(), uniqExact(id), min(length(text)), max(length(text)) FROM fitness_results_current"), fmt.Sprintf("%d\t%[1]d\t%d\t%[2]d", n, size); got != want {
		t.Errorf("the view has %s, want %s", got, want)
	}
	w.intact()
	if lost := p.metric("projector_partitions_lost_total"); lost != 0 {
		t.Errorf("%v partitions were lost", lost)
	}
	w.until(soon, "goroutines and connections are back at their base", func() bool {
		return p.metric("go_goroutines") <= goroutines+2 && p.sockets() <= sockets+2
	})
	p.drain()
}

// resident is the memory of the process in RAM, in bytes.
func (m *member) resident() int {
	m.w.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.PID()))
	if err != nil {
		m.w.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				m.w.t.Fatal(err)
			}
			return kib << 10
		}
	}
	m.w.t.Fatalf("no VmRSS in\n%s", text)
	return 0
}

// sockets is how many sockets the process has open.
func (m *member) sockets() (n int) {
	m.w.t.Helper()
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", m.PID()))
	if err != nil {
		m.w.t.Fatal(err)
	}
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}
