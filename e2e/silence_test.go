package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The shortest times that the configuration admits, so that the tests outlast a rebalance within seconds.
var hurried = []string{"clickhouse.insert_timeout=2s", "kafka.rebalance_timeout=12s", "lanes=1"}

const rebalanceTimeout = 12 * time.Second

// TestSilentLink swallows an insert half way and lets nothing more through, without closing anything, for longer than
// the group waits for a member. The member goes on telling the group that it lives: it is not expelled, and nothing is
// lost or parked.
func TestSilentLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 2})
	w.apply()
	g := events(t, 10_000, 13)
	link := newProxy(t, w.db.Addr())
	p := w.start("projector", append(hurried, "clickhouse.addresses="+link.Addr(), fmt.Sprint("batch.rows=", g.Len()), "batch.delay=5m")...) // one batch
	p.ready()
	reached := link.holdRequests(half)
	w.fill(g)
	select {
	case <-reached:
	case <-time.After(soon):
		t.Fatal("no insert came")
	}
	silence := time.NewTimer(rebalanceTimeout + 8*time.Second)
	defer silence.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for waiting := true; waiting; {
		select {
		case <-silence.C:
			waiting = false
		case <-look.C:
			if code, body := p.probe("/livez"); code != http.StatusOK {
				t.Fatalf("/livez answers %d: %s", code, body)
			}
			if lag := w.lag(); lag != int64(g.Len()) {
				t.Fatalf("lag %d: something was committed without an acknowledgement", lag)
			}
		}
	}
	groups, err := w.admin.DescribeGroups(t.Context(), w.group)
	if err != nil || len(groups[w.group].Members) != 1 || groups[w.group].Members[0].InstanceID != nil {
		t.Errorf("the group has the members %+v (%v), want one that has no identity of its own from one life to the next", groups[w.group].Members, err)
	}
	if attempts := p.metric("projector_inserts_total", `outcome="failed"`); attempts < 3 {
		t.Errorf("%v attempts failed in %v, each has 2 s", attempts, rebalanceTimeout)
	}
	link.cut()
	link.release()
	w.settle()
	w.equals(model(t, g))
	w.intact()
	if lost := p.metric("projector_partitions_lost_total"); lost != 0 || strings.Contains(p.log(), "expelled") {
		t.Errorf("the member was expelled from the group: %v partitions lost", lost)
	}
	p.drain()
}

// TestSlowOwner: an insert takes longer than the group waits, and another member takes a partition over meanwhile. When
// the insert is acknowledged at last, its first owner commits what it still has and nothing of what it gave up.
func TestSlowOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 2})
	w.apply()
	g := events(t, 10_000, 14)
	links := []*proxy{newProxy(t, w.db.Addr()), newProxy(t, w.db.Addr())}
	first := w.start("first", append(hurried, "clickhouse.addresses="+links[0].Addr(), fmt.Sprint("batch.rows=", g.Len()), "batch.delay=5m")...)
	first.ready()
	reached := links[0].holdAnswers(half)
	w.fill(g)
	select {
	case <-reached:
	case <-time.After(soon):
		t.Fatal("no insert came")
	}
	links[1].holdRequests(half / 4) // the other one gets no further than to own
	second := w.start("second", append(hurried, "clickhouse.addresses="+links[1].Addr(), "batch.rows=1000", "batch.delay=10s")...)
	second.owns()
	w.until(soon, "the first owner has given up a partition", func() bool { return first.metric("projector_offsets_forgotten_total") == 1 })
	if lag := w.lag(); lag != int64(g.Len()) {
		t.Fatalf("lag %d: something was committed without an acknowledgement", lag)
	}
	links[0].release()
	w.until(soon, "the first owner's insert is acknowledged", func() bool { return first.metric("projector_rows_total") == float64(g.Len()) })
	w.until(soon, "the first owner has committed", func() bool { return first.metric("projector_commits_total", `outcome="accepted"`) == 1 })
	o, err := w.offsets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for p, end := range o.ends {
		switch o.committed[p] {
		case end:
			kept++
		case 0:
		default:
			t.Errorf("partition %d: %d of %d are committed", p, o.committed[p], end)
		}
	}
	if kept != 1 {
		t.Errorf("%d of 2 partitions are committed, want the one that the first owner kept: %+v", kept, o)
	}
	links[1].cut()
	links[1].release()
	w.settle()
	w.equals(model(t, g))
	w.intact()
	for _, m := range []*member{first, second} {
		m.drain()
		if strings.Contains(m.log(), "expelled") {
			t.Errorf("%s was expelled from the group", m.name)
		}
	}
}
