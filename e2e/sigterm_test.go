package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chprojector/projector/internal/fitness"
)

// interrupted is a process with one lane that is in the middle of inserting its only batch, through a proxy.
type interrupted struct {
	*world
	*member
	*proxy
	g *fitness.Generator
}

// newInterrupted prepares everything and produces the batch. hold says what to hold back before; the result waits for
// it. The table keeps every physical row.
func newInterrupted(t *testing.T, hold func(*proxy) <-chan struct{}, set ...string) *interrupted {
	t.Helper()
	w := newWorld(t, setup{partitions: 2})
	w.apply()
	w.exec("SYSTEM STOP MERGES fitness_results_g1")
	i := &interrupted{world: w, proxy: newProxy(t, w.db.Addr()), g: events(t, 10_000, 2)}
	// One batch, however slowly its events come.
	i.member = w.start("projector", append(set, "clickhouse.addresses="+i.proxy.Addr(), "lanes=1",
		fmt.Sprint("batch.rows=", i.g.Len()), "batch.delay=5m")...)
	i.ready()
	reached := hold(i.proxy)
	w.fill(i.g)
	select {
	case <-reached:
	case <-time.After(soon):
		t.Fatal("no insert came")
	}
	return i
}

// stored is how many rows are in the table.
func (i *interrupted) stored() int {
	i.world.t.Helper()
	n, err := strconv.Atoi(i.ask("SELECT count() FROM fitness_results_versions"))
	if err != nil {
		i.world.t.Fatal(err)
	}
	return n
}

// terminate sends SIGTERM and waits until the process has taken notice.
func (i *interrupted) terminate() {
	i.world.t.Helper()
	i.signal(syscall.SIGTERM)
	i.says("draining")
}

// once holds that every event is committed and in the table once, physically.
func (i *interrupted) once(when string) {
	i.world.t.Helper()
	i.intact()
	if got := i.ask("SELECT count() FROM (SELECT _partition, _offset FROM fitness_results_versions GROUP BY ALL HAVING count() > 1)"); got != "0" {
		i.world.t.Errorf("%s: %s events are in the table more than once", when, got)
	}
	if got := i.stored(); got != i.g.Len() {
		i.world.t.Errorf("%s: %d rows in the table, want %d", when, got, i.g.Len())
	}
}

// again starts the process again and holds that there is nothing left to do.
func (i *interrupted) again() {
	i.world.t.Helper()
	i.restart()
	i.owns()
	i.once("after the next start")
	i.equals(model(i.world.t, i.g))
	i.drain()
}

// The insert has come half way when so many bytes have passed, of about 900 KiB.
const half = 256 << 10

func holdRequests(p *proxy) <-chan struct{} { return p.holdRequests(half) }
func holdAnswers(p *proxy) <-chan struct{}  { return p.holdAnswers(half) }

// TestSIGTERMInMidInsert ends the process in each stage of an insert.
func TestSIGTERMInMidInsert(t *testing.T) {
	t.Parallel()
	t.Run("before the server has all rows", func(t *testing.T) {
		i := newInterrupted(t, holdRequests)
		if n := i.stored(); n != 0 {
			t.Fatalf("%d rows are stored: the insert is not under way but done", n)
		}
		i.terminate()
		i.release()
		i.ends(drainTimeout, 0)
		i.once("at the end")
		i.again()
	})
	t.Run("before the answer", func(t *testing.T) {
		i := newInterrupted(t, holdAnswers)
		i.until(soon, "the rows are stored", func() bool { return i.stored() == i.g.Len() })
		i.terminate()
		if lag := i.lag(); lag != int64(i.g.Len()) {
			t.Errorf("lag %d: something was committed before its acknowledgement", lag)
		}
		i.release()
		i.ends(drainTimeout, 0)
		i.once("at the end")
		i.again()
	})
	t.Run("and the answer is lost", func(t *testing.T) {
		i := newInterrupted(t, holdAnswers)
		i.until(soon, "the rows are stored", func() bool { return i.stored() == i.g.Len() })
		i.terminate()
		i.cut()
		i.release()
		i.ends(drainTimeout, 0)
		// The process had to insert again; the token told the server that it has the rows.
		i.once("at the end")
		i.again()
	})
	t.Run("and the server does not come back in time", func(t *testing.T) {
		i := newInterrupted(t, holdRequests,
			"clickhouse.insert_timeout=1s", "drain_timeout=2s")
		i.terminate()
		i.ends(drainTimeout, 1)
		if log := i.log(); !strings.Contains(log, "are not acknowledged and will be read again") || !strings.Contains(log, "the drain timeout passed") {
			t.Error("the log does not say what was left")
		}
		if lag := i.lag(); lag != int64(i.g.Len()) {
			t.Errorf("lag %d: something was committed without an acknowledgement", lag)
		}
		i.cut()
		i.release()
		i.restart()
		i.settle()
		i.once("after the next start")
		i.equals(model(t, i.g))
		i.drain()
	})
}

// TestSecondSignal ends a drain that hangs.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	i := newInterrupted(t, holdRequests)
	i.terminate()
	began := time.Now()
	i.signal(syscall.SIGINT) // another one: the same at once could be an echo
	i.ends(10*time.Second, 130)
	t.Logf("ended after %v", time.Since(began))
	if lag := i.lag(); lag != int64(i.g.Len()) {
		t.Errorf("lag %d: something was committed without an acknowledgement", lag)
	}
	i.cut()
	i.release()
	i.restart()
	i.settle()
	i.once("after the next start")
	i.drain()
}
