package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/deadletter"
)

// canFail shows that what the schedules are judged by would notice: a program that commits first, and each kind of
// damage. A check that cannot fail proves nothing.
func canFail(t *testing.T, l *lab) {
	t.Helper()
	t.Run("a program that stores first", func(t *testing.T) {
		if early := l.simple(t, false); len(early) > 0 {
			t.Errorf("%d commits are called early, the first: %s", len(early), early[0])
		}
	})
	t.Run("a program that commits first", func(t *testing.T) {
		early := l.simple(t, true)
		if len(early) == 0 {
			t.Fatal("no commit is called early")
		}
		t.Logf("%d early commits, the first: %s", len(early), early[0])
	})
	t.Run("damage", l.damage)
	t.Run("inserts are cut where they should be", l.trapInserts)
	t.Run("commits are answered late or never", l.trapCommits)
}

// simple runs the simplest consumer there is, in one order or the other, and returns which of its commits were early.
// In the end it has stored everything either way.
func (l *lab) simple(t *testing.T, commitFirst bool) []string {
	t.Helper()
	r := l.newRun(t, &plan{seed: 1, events: 500})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := r.load.produce(ctx, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(l.roads[memberNames[0]].kafka.Addr()), kgo.ConsumerGroup(r.w.group), kgo.ConsumeTopics(r.w.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	for done := 0; done < len(r.load.events); {
		records := consumer.PollRecords(ctx, 100).Records()
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records came", done, len(r.load.events))
		}
		if len(records) == 0 {
			continue
		}
		done += len(records)
		var rows []string
		for _, record := range records {
			rows = append(rows, fmt.Sprintf("('%s', %d, %d, 1)", record.Topic, record.Partition, record.Offset))
		}
		steps := []func() error{
			func() error {
				_, err := r.ask(ctx, "INSERT INTO fitness_results_g1 (_topic, _partition, _offset, _generation) SETTINGS optimize_on_insert = 0, async_insert = 0 VALUES "+strings.Join(rows, ", "))
				return err
			},
			func() error { return consumer.CommitRecords(ctx, records...) },
		}
		if commitFirst {
			slices.Reverse(steps)
		}
		for _, do := range steps {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.seen.mu.Lock()
	defer r.seen.mu.Unlock()
	if r.seen.commits == 0 {
		t.Error("no commit was seen")
	}
	return r.seen.early
}

// damage does everything that must not happen to a schedule that went well, and holds that each is noticed.
func (l *lab) damage(t *testing.T) {
	// One lane finds everything at once, so the table has few parts and is quickly changed.
	r := l.newRun(t, &plan{seed: 1, events: 1000, poison: 3})
	if err := r.load.produce(t.Context(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	r.members = map[string]*actor{memberNames[0]: new(actor)}
	if err := r.start(t.Context(), r.members[memberNames[0]], memberNames[0]); err != nil {
		t.Fatal(err)
	}
	r.settled(t.Context())
	r.calm()
	judge := func() verdict {
		v, err := r.judge(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := judge(); len(v.lost)+len(v.invented)+len(v.wrong)+len(r.findings) > 0 {
		t.Fatalf("wrong before anything was done: %+v %v", v, r.findings)
	}
	shown := strings.Fields(r.w.ask("SELECT data_id, version FROM fitness_results_current WHERE version > 1 ORDER BY data_id LIMIT 2"))
	changed, reverted := shown[:2], shown[2:]
	at := inOrder(r.load.events)[0]
	parked := inOrder(r.load.parked)[0]
	const sync = " SETTINGS mutations_sync = 2"
	for _, c := range []struct {
		name string
		do   func()
		in   func(verdict) []string
		want string
	}{
		{
			"a row is gone",
			func() {
				r.w.exec(fmt.Sprintf("ALTER TABLE fitness_results_g1 DELETE WHERE _partition = %d AND _offset = %d", at.partition, at.offset) + sync)
			},
			func(v verdict) []string { return v.lost }, fmt.Sprintf("the event at %v is no row", at),
		},
		{
			"a value is another one",
			func() {
				r.w.exec("ALTER TABLE fitness_results_g1 UPDATE result = result + 1 WHERE data_id = " + changed[0] + " AND version = " + changed[1] + sync)
			},
			func(v verdict) []string { return v.wrong }, "data_id " + changed[0] + ": result is ",
		},
		{
			"an old state is back",
			func() {
				r.w.exec("ALTER TABLE fitness_results_g1 DELETE WHERE data_id = " + reverted[0] + " AND version = " + reverted[1] + sync)
			},
			func(v verdict) []string { return v.wrong }, "data_id " + reverted[0],
		},
		{
			"a row out of nothing",
			func() {
				r.w.exec("INSERT INTO fitness_results_g1 (data_id, detect_id, version, _topic, _partition, _offset, _generation) VALUES (1, 1, 1, '" + r.w.topic + "', 0, 1000000, 1)")
			},
			func(v verdict) []string { return v.invented }, "a row of 0/1000000, where no event was produced",
		},
		{
			"a good event is parked",
			func() {
				r.w.produce(&kgo.Record{Topic: r.w.topic + "-dlq", Headers: []kgo.RecordHeader{
					{Key: deadletter.HeaderClass, Value: []byte("type")},
					{Key: deadletter.HeaderTopic, Value: []byte(r.w.topic)},
					{Key: deadletter.HeaderPartition, Value: []byte(strconv.Itoa(int(at.partition)))},
					{Key: deadletter.HeaderOffset, Value: []byte(strconv.FormatInt(at.offset, 10))},
					{Key: deadletter.HeaderReplays, Value: []byte("0")},
				}})
			},
			func(v verdict) []string { return v.invented }, fmt.Sprintf("the letter of %v is no poison", at),
		},
		{
			"a letter is gone",
			func() { delete(r.seen.letters.all, parked) },
			func(v verdict) []string { return v.lost }, fmt.Sprintf("the poison at %v", parked),
		},
		{
			"a commit past the end that nobody saw",
			func() {
				var all kadm.Offsets
				all.Add(kadm.Offset{Topic: r.w.topic, Partition: at.partition, At: r.load.ends()[at.partition] + 1, LeaderEpoch: -1})
				if err := r.w.admin.CommitAllOffsets(t.Context(), r.w.group, all); err != nil {
					t.Fatal(err)
				}
			},
			func(v verdict) []string { return v.wrong }, "was committed past the check",
		},
	} {
		has := func() bool {
			return slices.ContainsFunc(c.in(judge()), func(s string) bool { return strings.Contains(s, c.want) })
		}
		if has() {
			t.Fatalf("%s: %q is said before it was done", c.name, c.want)
		}
		c.do()
		if !has() {
			t.Errorf("%s: nobody says %q: %+v", c.name, c.want, judge())
		}
	}
}

// trapInserts lets a member run into each trap and looks into the table at that moment.
func (l *lab) trapInserts(t *testing.T) {
	r := l.newRun(t, &plan{seed: 1, events: 900})
	name := memberNames[0]
	if err := r.start(t.Context(), r.members[name], name); err != nil {
		t.Fatal(err)
	}
	r.members[name].ready()
	rows := func() int {
		n, err := strconv.Atoi(r.w.ask("SELECT count() FROM fitness_results_g1"))
		if err != nil {
			t.Error(err)
		}
		return n
	}
	next := 0
	for _, c := range []struct {
		place  trapPlace
		stored bool
	}{{beforeRows, false}, {withinRows, false}, {afterStored, true}} {
		before := rows()
		var during int
		l.roads[name].inserts.set(trap{place: c.place, then: func() { during = rows() }})
		for range 300 { // one key, one partition, one lane
			r.load.send(t.Context(), &kgo.Record{Key: []byte("k"), Value: r.load.g.AppendValue(nil, next)}, func(place) {})
			next++
		}
		if err := r.w.client.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.settled(t.Context())
		if cut := l.roads[name].inserts.forget(); cut[c.place] != 1 || len(cut) != 1 {
			t.Errorf("cut %s: these inserts were cut: %v", c.place, cut)
		}
		after := rows()
		t.Logf("cut %s: %d rows before, %d at that moment, %d in the end", c.place, before, during, after)
		if stored := during > before; stored != c.stored {
			t.Errorf("cut %s: %d rows before and %d at that moment", c.place, before, during)
		}
		// A block that is stored and comes again with its token may be recognised by ClickHouse.
		if got, want := after-before, 300; got != want && got != 2*want {
			t.Errorf("cut %s: %d rows came to the table, of %d events", c.place, got, want)
		}
	}
	if len(r.findings)+len(r.seen.early) > 0 {
		t.Error(r.findings, r.seen.early)
	}
	r.members[name].drain()
}

// trapCommits commits through a member's road.
func (l *lab) trapCommits(t *testing.T) {
	r := l.newRun(t, &plan{seed: 1, events: 100})
	if err := r.load.produce(t.Context(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	road := l.roads[memberNames[0]]
	client, err := kgo.NewClient(kgo.SeedBrokers(road.kafka.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	commit := func(at int64, patience time.Duration) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var all kadm.Offsets
		all.Add(kadm.Offset{Topic: r.w.topic, Partition: 0, At: at, LeaderEpoch: -1})
		began := time.Now()
		err := kadm.NewClient(client).CommitAllOffsets(ctx, r.w.group, all)
		return time.Since(began), err
	}
	if _, err := commit(1, soon); err != nil { // what is slow the first time
		t.Fatal(err)
	}
	const late = 700 * time.Millisecond
	road.commits.next(delay{late: late})
	if took, err := commit(2, soon); err != nil || took < late {
		t.Errorf("the late answer came after %v (%v), want %v or more", took, err, late)
	}
	road.commits.next(delay{late: 2 * time.Second})
	if took, err := commit(3, 500*time.Millisecond); err == nil {
		t.Errorf("the commit was answered after %v", took)
	}
	if o, err := r.w.offsets(t.Context()); err != nil || o.committed[0] != 3 {
		t.Errorf("the commit whose answer is late did not happen: %v (%v)", o.committed, err)
	}
	road.commits.next(delay{lost: true}) // the client asks again
	if _, err := commit(4, soon); err != nil {
		t.Error(err)
	}
	if late, lost := road.commits.forget(); late != 2 || lost != 1 {
		t.Errorf("%d answers were late and %d lost, want 2 and 1", late, lost)
	}
	// Nothing was stored, so none of these commits was due.
	if n := len(r.seen.early); n != 4 {
		t.Errorf("%d commits are called early, want 4: %v", n, r.seen.early)
	}
}
