package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/fitness"
	"github.com/chprojector/projector/internal/testenv"
)

// numbered is the event of a record of its own.
func numbered(i int) *kgo.Record {
	e := fitness.Event{DataID: uint64(i), DetectID: 10_001, UserID: 4, ProjectID: 3, Version: 1, Result: 2_310, Decimals: 2, Unit: "m"}
	return &kgo.Record{Key: e.AppendKey(nil), Value: e.AppendJSON(nil)}
}

// replayed is one projection in `replay -o json`, by the names that users script against.
type replayed struct {
	Replay                                                string
	Selected, Superseded, Left, Remaining, Chosen, Stored int
	Expired                                               int
	OlderCopies                                           int `json:"older_copies"`
	Earlier                                               struct {
		Failed int `json:"failed_again"`
	}
	Failed []struct {
		Class, Column string
		Count         int
	}
	WouldFail []struct {
		Class, Column string
		Count         int
	} `json:"would_fail"`
}

// replay runs the command for the test's letters and holds its exit code.
func (w *world) replay(code int, args ...string) replayed {
	w.t.Helper()
	return w.answered(w.must(code, w.replayCommand(args...)...))
}

// replayCommand is the command for the test's letters.
func (w *world) replayCommand(args ...string) []string {
	return append([]string{"replay", "--topic", w.topic + "-dlq", "-o", "json"}, args...)
}

// answered is what a replay has printed.
func (w *world) answered(got outcome) replayed {
	w.t.Helper()
	if strings.Contains(got.stderr, "kicked from the group") {
		w.t.Errorf("a warning that means nothing: %s", got.stderr)
	}
	var all []replayed
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || len(all) != 1 {
		w.t.Fatalf("%v in\n%s%s", err, got.stdout, got.stderr)
	}
	return all[0]
}

// failed is how many letters failed again.
func (r replayed) failed() (n int) {
	for _, g := range r.Failed {
		n += g.Count
	}
	return n
}

// constrained lets ClickHouse itself refuse rows until the test lifts it.
func (w *world) constrained(condition string) {
	w.t.Helper()
	w.exec("ALTER TABLE fitness_results_g1 ADD CONSTRAINT few CHECK " + condition)
}

func (w *world) lifted() {
	w.t.Helper()
	w.exec("ALTER TABLE fitness_results_g1 DROP CONSTRAINT few")
}

// TestReplayAfterTheCauseIsGone: of 1,000 events one is malformed and one is refused by a constraint of the table. 998
// are stored. When the constraint is lifted a replay brings the 999th; another one changes nothing. What fails again
// gets its count, and is left after three.
func TestReplayAfterTheCauseIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.apply()
	w.constrained("data_id != 500")
	p := w.start("projector")
	var records []*kgo.Record
	for i := range 1000 {
		r := numbered(i + 1)
		if i == 700 {
			r.Value = []byte(`{"dataId":`)
		}
		records = append(records, r)
	}
	w.produce(records...)
	w.settle()
	counts := func(when string, rows, letters int) {
		t.Helper()
		if got := w.ask("SELECT count() FROM fitness_results_current"); got != strconv.Itoa(rows) {
			t.Errorf("%s: %s rows, want %d", when, got, rows)
		}
		if got := w.ask("SELECT count() FROM fitness_results_versions"); got != strconv.Itoa(rows) {
			t.Errorf("%s: %s physical rows, want %d", when, got, rows)
		}
		if got := len(w.letters()); got != letters {
			t.Errorf("%s: %d letters, want %d", when, got, letters)
		}
	}
	counts("after the stream", 998, 2)
	for _, l := range w.letters() {
		if want := map[string]string{"malformed": "", "rejected": ""}; l.Projection != "fitness_results" || !hasKey(want, l.Class) {
			t.Errorf("letter %+v", l.Info)
		}
	}

	today := time.Now().UTC().Format(time.DateOnly)
	dry := w.replay(0, "--from", today, "--dry-run")
	if dry.Selected != 2 || dry.Chosen != 2 || len(dry.WouldFail) != 1 || dry.WouldFail[0].Class != "malformed" {
		t.Errorf("the dry run says %+v", dry)
	}
	w.lifted()
	first := w.replay(3, "--from", today, "--reason", "the constraint was wrong", "--actor", "eve")
	if first.Stored != 1 || first.failed() != 1 || first.Failed[0].Class != "malformed" {
		t.Errorf("the first replay says %+v", first)
	}
	counts("after a replay", 999, 3)
	want := fmt.Sprintf("replay:%s\t%s", first.Replay, w.topic)
	if got := w.ask("SELECT _origin, _topic FROM fitness_results_versions WHERE data_id = 500"); got != want {
		t.Errorf("the row's lineage is %q, want %q", got, want)
	}
	if got := w.ask("SELECT state, actor, reason FROM projector_operations WHERE id = '" + first.Replay + "' ORDER BY sequence DESC LIMIT 1"); got != "applied\teve\tthe constraint was wrong" {
		t.Errorf("the record says %q", got)
	}
	// The malformed one is tried twice more, and then left.
	for replays := 2; replays <= 3; replays++ {
		again := w.replay(3, "--from", today)
		if again.Stored != 0 || again.failed() != 1 || again.Superseded != 1 || again.OlderCopies != replays-1 {
			t.Errorf("replay %d says %+v", replays, again)
		}
		counts("after another replay", 999, 2+replays)
	}
	left := w.replay(3, "--from", today)
	if left.Chosen != 0 || left.Left != 1 || left.Superseded != 1 {
		t.Errorf("the fourth replay says %+v", left)
	}
	counts("after the fourth replay", 999, 5)
	most := 0
	for _, l := range w.letters() {
		most = max(most, l.Replays)
	}
	if most != 3 {
		t.Errorf("the letter's count is %d, want 3", most)
	}

	// The list counts each letter once, and show tells of one what the mapping makes of it.
	list := w.must(0, "deadletter", "list")
	if !strings.Contains(list.stdout, "2 dead letters (and 3 older copies") || !strings.Contains(list.stdout, "malformed") {
		t.Errorf("people read\n%s", list.stdout)
	}
	place := regexp.MustCompile(w.topic + `-dlq/\d+/\d+`).FindString(list.stdout)
	if shown := w.must(0, "deadletter", "show", place); !strings.Contains(shown.stdout, "now:") || !strings.Contains(shown.stdout, w.topic+"/") {
		t.Errorf("people read\n%s", shown.stdout)
	}
	if people := w.must(3, "replay", "--topic", w.topic+"-dlq", "--from", "2h"); !strings.Contains(people.stderr, "letters remain: 1 left after 3 replays") {
		t.Errorf("people read\n%s%s", people.stdout, people.stderr)
	}
	p.ready()
	p.drain()
}

func hasKey(m map[string]string, key string) bool { _, ok := m[key]; return ok }

// park starts a process with a wrong mapping, so that n events become letters, and ends it.
func (w *world) park(n int) {
	w.t.Helper()
	right := w.config
	w.write(replaced(w.t, repositoryConfig(w.t), "from: userId", "from: user.id"))
	var records []*kgo.Record
	for i := range n {
		records = append(records, numbered(i+1))
	}
	w.produce(records...)
	p := w.start("wrong", "dead_letter.stop_ratio=0", "dead_letter.stop_run=0")
	w.settle()
	p.drain()
	w.config = right
	if got := len(w.letters()); got != n {
		w.t.Fatalf("%d letters, want %d", got, n)
	}
}

// TestReplayIsKilled: the same command goes on where a killed one stopped. Nothing is skipped, nothing stored twice.
func TestReplayIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.apply()
	const n = 2000
	w.park(n)
	from := time.Now().UTC().Add(-time.Hour).Format(time.RFC3339)
	first, err := testenv.StartProgram(t.Context(), testenv.ProgramConfig{
		Name: "replay", Env: w.env,
		Command: []string{w.binary, "--config", w.config, "replay", "--topic", w.topic + "-dlq", "--from", from, "--rate", "40"}, // it must not be done while the test looks
	})
	if err != nil {
		t.Fatal(err)
	}
	stored := func() int {
		n, err := strconv.Atoi(w.ask("SELECT count() FROM fitness_results_versions"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	w.until(soon, "some letters are replayed", func() bool { return stored() >= n/10 })
	// Meanwhile no other replay is let in.
	if busy := w.must(1, "replay", "--topic", w.topic+"-dlq", "--from", from); !strings.Contains(busy.stderr, "another replay of these letters is running") {
		t.Errorf("a second replay beside the first says\n%s", busy.stderr)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Stop()
	before := stored()
	if before >= n {
		t.Fatal("the replay was done before it was killed")
	}
	again := w.replay(0, "--from", from)
	if again.Selected >= n || again.Stored != n-before {
		t.Errorf("the second process selected %d letters and stored %d; %d of %d rows were there", again.Selected, again.Stored, before, n)
	}
	if got := w.ask("SELECT count(), uniqExact(data_id), uniqExact(_origin) FROM fitness_results_versions"); got != fmt.Sprintf("%d\t%d\t1", n, n) {
		t.Errorf("rows, records, replays: %s", got)
	}
	// Another selection is another replay, and begins where it asks to; of the same one nothing is left.
	if other := w.replay(0, "--from", from, "--column", "user_id", "--dry-run"); other.Selected != n || other.Superseded != n {
		t.Errorf("another selection: %+v", other)
	}
	if same := w.replay(0, "--from", from); same.Selected != n || same.Superseded != n || same.Chosen != 0 {
		t.Errorf("the same selection once more: %+v", same)
	}
}

// TestReplayInPortions: --max takes so many letters, and the same command goes on with the next ones.
func TestReplayInPortions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 2})
	w.apply()
	w.park(25)
	for i, want := range []struct{ code, stored, remaining int }{{3, 10, 15}, {3, 10, 5}, {0, 5, 0}} {
		got := w.replay(want.code, "--from", "2020-01-01", "--max", "10")
		if got.Stored != want.stored || got.Remaining != want.remaining {
			t.Errorf("portion %d: %+v, want %+v", i+1, got, want)
		}
	}
	if got := w.ask("SELECT count(), uniqExact(data_id) FROM fitness_results_versions"); got != "25\t25" {
		t.Errorf("rows, records: %s", got)
	}
}

// TestReplayAfterAFailedPortion: what failed in an earlier portion is not forgotten by the answer of a later one, and is
// tried again by the same command once the table lets it in.
func TestReplayAfterAFailedPortion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 1})
	w.apply()
	w.park(4)
	w.constrained("data_id != 1")
	portion := func(code, stored, failed, earlier, remaining int) {
		t.Helper()
		got := w.replay(code, "--from", "2020-01-01", "--max", "2")
		if got.Stored != stored || got.failed() != failed || got.Earlier.Failed != earlier || got.Remaining != remaining {
			t.Errorf("%+v; want %d stored, %d failed again, %d before it, %d remaining", got, stored, failed, earlier, remaining)
		}
	}
	portion(3, 1, 1, 0, 2)
	portion(3, 2, 0, 1, 0)
	portion(3, 0, 1, 0, 0) // from the beginning, for the one before has come to its end
	w.lifted()
	w.constrained("data_id != 2") // a stored one: nothing is in the way any more, and the table is another
	portion(0, 1, 0, 0, 0)
	if got := w.ask("SELECT count(), uniqExact(data_id) FROM fitness_results_versions"); got != "4\t4" {
		t.Errorf("rows, records: %s", got)
	}
}

// TestReplayBeginsAgain: a portion that failed lies behind the progress. The same command after the constraint is lifted
// tries it again, and so does another limit.
func TestReplayBeginsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 1})
	w.apply()
	w.park(4)
	w.constrained("data_id > 2")
	if first := w.replay(3, "--from", "2020-01-01", "--max", "2"); first.failed() != 2 || first.Remaining != 2 {
		t.Errorf("the first portion: %+v", first)
	}
	if other := w.replay(0, "--from", "2020-01-01", "--max", "2", "--max-replays", "4", "--dry-run"); other.Selected != 4 || other.Chosen != 2 {
		t.Errorf("with another limit: %+v", other)
	}
	w.lifted()
	if again := w.replay(3, "--from", "2020-01-01", "--max", "2"); again.Selected != 4 || again.Stored != 2 || again.Remaining != 2 {
		t.Errorf("the same command when the constraint is lifted: %+v", again)
	}
	if rest := w.replay(0, "--from", "2020-01-01", "--max", "2"); rest.Stored != 2 {
		t.Errorf("the rest: %+v", rest)
	}
}

// TestLettersAsLargeAsTheTopicAllows: events that fill their topic's limit become letters that come back, whether the
// letter holds them or, where its topic is narrower, points to them.
func TestLettersAsLargeAsTheTopicAllows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 1})
	w.apply()
	w.constrained("length(event_id) < 100000")
	const limit = 1_048_588 // Apache Kafka's own max.message.bytes
	text := make([]byte, limit)
	for i, noise := 0, rand.New(rand.NewPCG(1, 2)); i < limit; i++ {
		text[i] = 'a' + byte(noise.IntN(26)) // hardly compressible: a letter is compressed, and its topic's limit counts what is left
	}
	random := string(text)
	for _, c := range []struct{ name, letters string }{{"whole", ""}, {"narrow", "20000"}} {
		if c.letters != "" {
			if err := w.alter(w.topic+"-dlq", "max.message.bytes", c.letters); err != nil {
				t.Fatal(err)
			}
		}
		p := w.start(c.name)
		// The largest that the broker takes, found by asking it: what a batch adds is Kafka's business.
		value := func(size int) []byte {
			id := random[:size]
			return fmt.Appendf(nil, `{"eventId":"%s","dataId":%d,"detectId":1,"userId":1,"projectId":1,"version":1,"result":1,"unit":"m","isDeleted":false,"schemaVersion":1}`, id, len(c.name))
		}
		client, err := kgo.NewClient(kgo.SeedBrokers(w.broker.Brokers()...), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(2*limit))
		if err != nil {
			t.Fatal(err)
		}
		size := limit
		for ; client.ProduceSync(t.Context(), &kgo.Record{Topic: w.topic, Value: value(size)}).FirstErr() != nil; size -= 20 {
			if size < limit-1000 {
				t.Fatal("the broker takes nothing near its limit")
			}
		}
		client.Close()
		w.settle()
		p.drain()
	}
	letters := w.letters()
	if len(letters) != 2 || letters[0].Pointer != "" || len(letters[0].Value) < limit-1000 || letters[1].Pointer != "too-large" || letters[1].Value != nil {
		for _, l := range letters {
			t.Errorf("a letter with a value of %d bytes and the headers %+v", len(l.Value), l.Info)
		}
		t.Fatalf("%d letters", len(letters))
	}
	shown := w.must(0, "deadletter", "show", fmt.Sprintf("%s-dlq/0/%d", w.topic, letters[1].Record.Offset), "--raw")
	if len(shown.stdout) < limit-1000 {
		t.Errorf("the event behind the pointer has %d bytes", len(shown.stdout))
	}
	if again := w.replay(3, "--from", "1h"); again.failed() != 2 || again.Failed[0].Class != "rejected" {
		t.Errorf("while the constraint is there: %+v", again)
	}
	w.lifted()
	if now := w.replay(0, "--from", "1h"); now.Stored != 2 {
		t.Errorf("when it is lifted: %+v", now)
	}
	if got := w.ask("SELECT count(), min(length(event_id)) > 1000000 FROM fitness_results_current"); got != "2\t1" {
		t.Errorf("rows: %s", got)
	}
}
