package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/chprojector/projector/internal/fitness"
)

// alter sets one configuration of a topic.
func (w *world) alter(topic, key, value string) error {
	responses, err := w.admin.AlterTopicConfigs(w.t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	if err == nil {
		_, err = responses.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	return err
}

// restored is `offsets show|restore -o json`.
type restored struct {
	Restored   string
	Partitions []struct {
		Partition                 int32
		Start, End, Restore, Lost int64
		Committed, Stored         *int64
		State                     string
	}
}

func (w *world) restore(code int, args ...string) (r restored) {
	w.t.Helper()
	got := w.must(code, append([]string{"offsets", "restore", "-o", "json", "--yes"}, args...)...)
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		w.t.Fatalf("%v in\n%s%s", err, got.stdout, got.stderr)
	}
	return r
}

// TestForgottenGroupIsRestored: Kafka has lost the group. It goes on below the last batch, and nothing is lost: not the
// letters, nor what came meanwhile.
func TestForgottenGroupIsRestored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 2})
	w.apply()
	small := []string{"batch.rows=100", "lanes=1"}
	g := events(t, 6000, 11)
	p := w.start("before", small...)
	w.fill(g)
	w.settle()
	if refused := w.run("offsets", "restore", "--yes", "--force"); refused.code != 1 || !strings.Contains(refused.stderr, "has members") {
		t.Errorf("beside a running process: %d\n%s", refused.code, refused.stderr)
	}
	p.drain()
	if refused := w.run("offsets", "restore", "--yes"); refused.code != 1 || !strings.Contains(refused.stderr, "is not lost; --force replaces them") {
		t.Errorf("with commits: %d\n%s", refused.code, refused.stderr)
	}
	w.until(soon, "the group is deleted", func() bool {
		r, err := w.admin.DeleteGroup(t.Context(), w.group)
		return err == nil && r.Err == nil
	})
	more, err := fitness.New(fitness.Config{Seed: 12, Records: 400, FirstID: 5_000_001})
	if err != nil {
		t.Fatal(err)
	}
	w.fill(more)
	status := w.must(0, "status")
	if !strings.Contains(status.stdout, "the group has no commit, but offset ") || !strings.Contains(status.stdout, "run `projector offsets restore --projection fitness_results`") {
		t.Errorf("status says\n%s", status.stdout)
	}
	// Where the group would begin at the end, it must not begin.
	latest := w.start("latest", "kafka.start=latest")
	latest.ends(soon, 1)
	if log := latest.log(); !strings.Contains(log, "run `projector offsets restore --projection fitness_results` first") {
		t.Error("a group that would skip records does not say what to do")
	}
	config := w.config
	w.write(replaced(t, repositoryConfig(t), "rows: 100000", "rows: 100"))
	dry := w.restore(0, "--dry-run")
	done := w.restore(0)
	o, err := w.offsets(t.Context()) // what Kafka itself says
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range done.Partitions {
		if p.State != "forgotten" || p.Restore != dry.Partitions[i].Restore || o.committed[p.Partition] != p.Restore {
			t.Errorf("partition %d: %+v, committed %d", p.Partition, p, o.committed[p.Partition])
		}
		if p.Restore > *p.Stored-99 || p.Restore < *p.Stored-1000 {
			t.Errorf("partition %d goes on at %d, with %d stored; want about a batch below", p.Partition, p.Restore, *p.Stored)
		}
	}
	if got := w.ask("SELECT kind, state FROM projector_operations WHERE id = '" + done.Restored + "' ORDER BY sequence DESC LIMIT 1"); got != "offsets_restore\tapplied" {
		t.Errorf("the record says %q", got)
	}
	w.config = config
	p = w.start("after", small...)
	w.settle()
	var m fitness.Model
	for _, g := range []*fitness.Generator{g, more} {
		for i := range g.Len() {
			if err := m.Add(g.AppendValue(nil, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.equals(&m)
	w.intact()
	p.drain()
}

// TestExpiredOffsets: retention was faster than the process. The gap is counted, logged and shown.
func TestExpiredOffsets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 1})
	w.apply()
	p := w.start("before")
	w.produce(numbered(1), numbered(2))
	w.settle()
	p.drain()
	for i := range 100 {
		w.produce(numbered(10 + i))
	}
	expired := kadm.Offsets{}
	expired.AddOffset(w.topic, 0, 52, -1)
	if _, err := w.admin.DeleteRecords(t.Context(), expired); err != nil {
		t.Fatal(err)
	}
	gap := w.topic + "/0: retention removed offsets 2 to 51 before they were read: backfill them"
	if status := w.must(0, "status"); !strings.Contains(status.stdout, gap) {
		t.Errorf("status does not say %q:\n%s", gap, status.stdout)
	}
	if shown := w.must(0, "offsets", "show"); !strings.Contains(shown.stdout, gap) {
		t.Errorf("offsets show does not say %q:\n%s", gap, shown.stdout)
	}
	p = w.start("after")
	w.settle()
	if got := w.ask("SELECT count() FROM fitness_results_current"); got != "52" {
		t.Errorf("%s rows, want 52", got)
	}
	if got := p.metric("projector_expired_records_total"); got != 50 {
		t.Errorf("projector_expired_records_total is %v, want 50", got)
	}
	if log := p.log(); !strings.Contains(log, `"expected":2,"found":52,"offsets":50`) {
		t.Error("the log does not tell the gap")
	}
	if status := w.must(0, "status"); strings.Contains(status.stdout, "retention") {
		t.Errorf("it was read past the gap, and status still says\n%s", status.stdout)
	}
	p.drain()
}

// TestRecreatedTopic: the topic was deleted and created again while the process was away. What is in the new one is
// read from its start, and neither status nor restore takes the old one's rows for its own.
func TestRecreatedTopic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 1, config: replaced(t, repositoryConfig(t), "rows: 100000", "rows: 10")})
	w.apply()
	p := w.start("before")
	for i := range 60 {
		w.produce(numbered(1 + i))
	}
	w.settle()
	p.drain()
	if _, err := w.admin.DeleteTopics(t.Context(), w.topic); err != nil {
		t.Fatal(err)
	}
	w.until(soon, "the topic is created again", func() bool {
		r, err := w.admin.CreateTopic(t.Context(), 1, 1, nil, w.topic)
		return err == nil && r.Err == nil
	})
	w.client.PurgeTopicsFromClient(w.topic)
	add := func(n int) {
		t.Helper()
		for i := range n {
			w.until(soon, "the new topic takes records", func() bool {
				r := numbered(1000 + n + i)
				r.Topic = w.topic
				return w.client.ProduceSync(t.Context(), r).FirstErr() == nil
			})
		}
	}
	add(20)
	if status := w.must(0, "status"); !strings.Contains(status.stdout, "the topic was created anew") {
		t.Errorf("status says\n%s", status.stdout)
	}
	add(100) // now the old offsets exist in the new topic
	if r := w.restore(0, "--dry-run"); r.Partitions[0].Restore != 0 {
		t.Errorf("restore would skip records of the new topic: %+v", r.Partitions[0])
	}
	p = w.start("after")
	w.settle()
	if got := p.metric("projector_forgotten_partitions_total"); got != 1 {
		t.Errorf("projector_forgotten_partitions_total is %v, want 1", got)
	}
	if got := w.ask("SELECT count() FROM fitness_results_current WHERE data_id >= 1000"); got != fmt.Sprint(20+100) {
		t.Errorf("%s rows of the new topic, want 120", got)
	}
	p.drain()
}
