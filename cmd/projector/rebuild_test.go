package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// generation is the world under another configuration file: of another
// generation, with a part of the mapping replaced.
func (s *sourceWorld) generation(n int, old, with string) *sourceWorld {
	s.t.Helper()
	text, err := os.ReadFile(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	was, rest, ok := strings.Cut(string(text), "    generation: ")
	if !ok || !strings.Contains(string(text), old) {
		s.t.Fatalf("the configuration has no generation, or no %q", old)
	}
	w := *s.world
	w.flags = slices.Clone(w.flags)
	g := &sourceWorld{world: &w, shards: s.shards, config: filepath.Join(s.t.TempDir(), "config.yaml")}
	w.flags[slices.Index(w.flags, "--config")+1] = g.config
	g.write(strings.Replace(was, old, with, 1) + fmt.Sprintf("    generation: %d", n) + strings.Replace(strings.TrimLeft(rest, "0123456789"), old, with, 1))
	return g
}

// wrongUnit and rightUnit are the mapping that the tests correct by a rebuild.
const (
	rightUnit = "from: unit,      type"
	wrongUnit = "from: eventId,   type"
)

// newRebuildWorld is a world whose table holds wrong units, with everything else
// intact, and the configuration of the next generation, which is right.
func newRebuildWorld(t *testing.T, n int) (g1, g2 *sourceWorld) {
	t.Helper()
	s := newSourceWorld(t, "fitness-results", "fitness-results-dlq")
	s.fill(n)
	s.flags = append(s.flags, "--set", "batch.rows=2000")
	g2 = s.generation(2, rightUnit, rightUnit)
	s.edit(rightUnit, wrongUnit)
	s.must(0, "backfill", "--all", "--yes")
	if d := s.different(n); d == "0\t0\n" {
		t.Fatal("the defect is none")
	}
	return s, g2
}

// refused holds that a command changes nothing, exits with code and says each
// of want.
func (s *sourceWorld) refused(code int, args []string, want ...string) {
	s.t.Helper()
	got := s.run(args...)
	if got.code != code {
		s.t.Errorf("%v: exit code %d, want %d\n%s%s", args, got.code, code, got.stdout, got.stderr)
	}
	for _, w := range want {
		if !strings.Contains(got.stderr, w) {
			s.t.Errorf("%v does not say %q:\n%s", args, w, got.stderr)
		}
	}
}

// late is an event of a record that nobody else writes.
func late(id int) []byte {
	return fmt.Appendf(nil, `{"schemaVersion":1,"dataId":%d,"detectId":10001,"userId":1,"projectId":3,"version":1,"result":1.5,"unit":"m","isDeleted":false,"eventId":"late"}`, id)
}

// TestRebuildCommand goes through the nine steps while both generations are
// consumed, and asks for each step too early and twice.
func TestRebuildCommand(t *testing.T) {
	const n = 1000
	g1, g2 := newRebuildWorld(t, n)
	old := g1.start()
	old.ready()

	g2.refused(1, []string{"rebuild", "verify"}, "has no rebuild; next is `projector rebuild start`")
	g1.refused(2, []string{"rebuild", "start", "--yes"}, "readers see generation 1 and the configuration says 1: set generation: 2")
	g2.refused(1, []string{"rebuild", "start"}, "nothing was changed; answer y, or give --yes")
	g2.refused(3, []string{"schema", "plan"}, "cannot be changed online")
	if out := g2.run("schema", "plan").stdout; !strings.Contains(out, "run `projector rebuild start`") {
		t.Errorf("the plan does not name the way:\n%s", out)
	}
	started := g2.must(0, "rebuild", "start", "--yes", "--reason", "ticket 4711", "--actor", "eve@desk")
	for _, want := range []string{"generation 1 to 2", "eve@desk: ticket 4711", "2000 rows and 200 deletions read, 2200 written", "next: `projector run` with this configuration"} {
		if !strings.Contains(started.stdout, want) {
			t.Errorf("start does not say %q:\n%s", want, started.stdout)
		}
	}
	g2.refused(1, []string{"rebuild", "switch", "--yes"}, "is at step 5 of 9", "step 7 (switch the views) must not come before it; next is `projector rebuild verify`")
	g2.refused(1, []string{"rebuild", "close", "--yes"}, "step 8 (close the old generation) must not come before it")
	g2.refused(1, []string{"rebuild", "start", "--yes"}, "has done step 4 of 9 (copy the source) already; next is `projector rebuild verify`")
	g2.refused(1, []string{"rebuild", "verify", "--wait", "1s"}, "nobody consumes as group projector.fitness_results.g2")
	g1.refused(1, []string{"rebuild", "switch", "--yes"}, "fills generation 2 and the configuration says 1")

	next := g2.start()
	next.ready()
	// A record of the source that is missing from the new table: nothing may be switched.
	g2.shards[0].Exec(t, "INSERT INTO fitness_result VALUES (99999998, 10001, 1, 3, 1, 1, 'm')")
	g2.refused(3, []string{"rebuild", "verify", "--settle", "1s"}, "1 of 2 campaigns differ")
	g2.refused(1, []string{"rebuild", "switch", "--yes"}, "next is `projector rebuild verify`")
	g2.shards[0].Exec(t, "DELETE FROM fitness_result WHERE data_id = 99999998")
	var result rebuildResult
	if err := json.Unmarshal([]byte(g2.must(0, "rebuild", "verify", "--settle", "1s", "-o", "json").stdout), &result); err != nil {
		t.Fatal(err)
	}
	c, ok := compared(result.Progress)
	if !ok || c.Equal != 2 || c.FromOld == nil || c.FromOld.Contents != 2*n || c.FromOld.Columns["unit"] != 2*n || len(c.FromOld.Columns) != 1 {
		t.Errorf("the comparison says %+v, %+v", c, c.FromOld)
	}
	if d := g1.different(n); d == "0\t0\n" {
		t.Error("readers see the new generation before it was switched")
	}
	g2.must(0, "rebuild", "switch", "--yes")
	if d := g1.different(n); d != "0\t0\n" {
		t.Errorf("different from the source after the switch: %s", d)
	}
	g2.refused(1, []string{"rebuild", "switch", "--yes"}, "has done step 7 of 9 (switch the views) already")
	g2.refused(1, []string{"rebuild", "verify"}, "step 9 (compare again) must not come before it; next is `projector rebuild close`")
	g2.must(0, "schema", "check")
	closed := g2.must(0, "rebuild", "close", "--yes")
	if !strings.Contains(closed.stderr, "the old generation is still consumed") {
		t.Errorf("close says nothing of the members:\n%s", closed.stderr)
	}
	g2.refused(1, []string{"rebuild", "close", "--drop", "--yes"}, "at step 9 of 9")

	// The old deployment lives, and an event comes.
	g2.produce(late(7777777))
	if code := old.end(); code != exitFailed {
		t.Errorf("the old deployment ended with %d", code)
	}
	for _, want := range []string{"generation_fence", "a newer generation has taken over", `"level":"error"`} {
		if !strings.Contains(old.log.String(), want) {
			t.Errorf("the old deployment does not say %q:\n%s", want, old.log)
		}
	}
	g2.until("the new deployment has the event", func() bool {
		return g2.rows("SELECT count() FROM fitness_results_current WHERE data_id = 7777777") == "1\n"
	})
	if got := g2.rows("SELECT count() FROM fitness_results_g1 WHERE data_id = 7777777"); got != "0\n" {
		t.Errorf("the closed table has %s late rows", got)
	}
	g2.rows("SYSTEM FLUSH LOGS query_log")
	if got := g2.rows("SELECT count() > 0 FROM system.query_log WHERE exception_code = 469 AND has(databases, currentDatabase())"); got != "1\n" {
		t.Errorf("the server counted no refused insert")
	}
	if err := json.Unmarshal([]byte(g2.must(0, "rebuild", "status", "-o", "json").stdout), &result); err != nil {
		t.Fatal(err)
	}
	if g := result.Generations; len(g) != 2 || g[0].Lag == nil || *g[0].Lag != 1 || len(g[1].Members) == 0 || *result.Reads != 2 {
		t.Errorf("the late event is not counted: %+v", g)
	}
	again := g1.start()
	if code := again.end(); code != exitFailed || !strings.Contains(again.log.String(), "set generation: 2 in the configuration") {
		t.Errorf("the old deployment starts again: exit code %d\n%s", code, again.log)
	}

	// The late event is in the topic alone; the application would have stored it.
	g2.shards[0].Exec(t, "INSERT INTO fitness_result VALUES (7777777, 10001, 1, 3, 1, 1.5, 'm')")
	g2.must(0, "rebuild", "verify", "--settle", "1s")
	g2.refused(1, []string{"rebuild", "close", "--drop", "--yes"}, "are held for 168h")
	g2.must(0, "rebuild", "close", "--drop", "--hold", "0s", "--yes")
	if got := g2.rows("EXISTS fitness_results_g1"); got != "0\n" {
		t.Error("the old table is there")
	}
	if out := g2.must(0, "rebuild", "status").stdout; !strings.Contains(out, "drop fitness_results_g1, 2200 rows") || !strings.Contains(out, "nothing is left to be done") {
		t.Errorf("status:\n%s", out)
	}
	g2.complete(2)
}

// TestRebuildWithdrawn: the mapping of generation 2 is wrong, too, and its
// deployment is started before its group has its offsets.
func TestRebuildWithdrawn(t *testing.T) {
	const n = 200
	g1, _ := newRebuildWorld(t, n)
	g2, g3 := g1.generation(2, wrongUnit, "from: eventId,  type"), g1.generation(3, wrongUnit, rightUnit)
	if !g2.kill("1 recorded", 0, "rebuild", "start", "--yes") {
		t.Fatal("it did not die")
	}
	early := g2.start()
	early.ready()
	g2.refused(1, []string{"rebuild", "start", "--yes"}, "the group has members", "stop `projector run` of generation 2, give `projector rebuild start` again")
	early.stop()
	early.end()
	g2.must(0, "rebuild", "start", "--yes")
	next := g2.start()
	next.ready()
	g2.refused(3, []string{"rebuild", "verify", "--settle", "1s"}, "2 of 2 campaigns differ", "`projector reconcile --campaign 10001,10002` with this configuration")

	corrected := g2.generation(2, "from: eventId,  type", rightUnit)
	corrected.refused(1, []string{"rebuild", "verify"}, "have changed since it began", "raise generation again and run `projector rebuild start --withdraw`")
	g3.refused(1, []string{"rebuild", "start", "--yes"}, "into generation 2 is not finished", "--withdraw")
	g3.must(0, "rebuild", "start", "--yes", "--withdraw")
	next.stop()
	next.end()
	next = g3.start()
	next.ready()
	g3.must(0, "rebuild", "verify", "--settle", "1s")
	g3.must(0, "rebuild", "switch", "--yes")
	if d := g3.different(n); d != "0\t0\n" {
		t.Errorf("different from the source: %s", d)
	}
	// Somebody switches the views back by hand.
	back := g1.must(0, "schema", "print").stdout
	for statement := range strings.SplitSeq(back, ";\n") {
		if strings.Contains(statement, "VIEW") {
			g1.rows(statement)
		}
	}
	g3.refused(1, []string{"rebuild", "close", "--yes"}, "the views read generation 1 and not 3")
	g3.must(0, "rebuild", "switch", "--yes")
	closed := g3.must(0, "rebuild", "close", "--yes", "-o", "json")
	if !strings.Contains(closed.stdout, "fitness_results_g1") || !strings.Contains(closed.stdout, "fitness_results_g2") {
		t.Errorf("not both older tables are closed:\n%s", closed.stdout)
	}
	if got := g3.rows("SELECT count() FROM (SELECT id, argMax(state, sequence) AS s FROM projector_operations WHERE kind = 'rebuild' GROUP BY id) WHERE s IN ('withdrawn', 'applied')"); got != "2\n" {
		t.Errorf("the record has %s", got)
	}
}

// complete holds that the record of every rebuild is whole: each state has its
// row, each of the nine steps is there, and every copied row names it.
func (s *sourceWorld) complete(generation int) {
	s.t.Helper()
	var steps []string
	for i := range 9 {
		steps = append(steps, strconv.Itoa(i+1))
	}
	got := s.rows(fmt.Sprintf(`SELECT count() = uniqExact(sequence) AND max(sequence) = count(), argMax(state, sequence),
	arrayStringConcat(arrayMap(s -> toString(JSONExtractInt(s, 'step')), JSONExtractArrayRaw(argMax(checkpoint, sequence), 'steps')), ','),
	(SELECT countIf(_origin != 'stream' AND substring(_origin, 9) NOT IN (SELECT id FROM projector_operations)) FROM fitness_results_g%[1]d)
FROM projector_operations WHERE kind = 'rebuild' AND JSONExtractInt(scope, 'to') = %[1]d`, generation))
	if want := "1\tverified\t" + strings.Join(steps, ",") + "\t0\n"; got != want {
		s.t.Errorf("the record of generation %d has %q, want %q", generation, got, want)
	}
}

// kill runs a command that dies at a point, by SIGKILL or, without a point,
// after so long; it reports whether it did.
func (s *sourceWorld) kill(point string, after time.Duration, args ...string) bool {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), "projector", slices.Concat(s.flags, args)...)
	command.Env = append(os.Environ(), "REBUILD_KILL_AT="+point)
	log := &lockedBuffer{}
	command.Stderr = log
	if err := command.Start(); err != nil {
		s.t.Fatal(err)
	}
	if after > 0 {
		defer time.AfterFunc(after, func() { _ = command.Process.Kill() }).Stop()
	}
	err := command.Wait()
	switch code := command.ProcessState.ExitCode(); {
	case code == -1:
		return true
	case code != 0:
		s.t.Fatalf("%v, to die at %q: %v\n%s", args, point, err, log)
	}
	return false
}

// rebuildCommands are the commands of a rebuild in their order, with the points
// at which a process can die between doing and recording.
var rebuildCommands = []struct {
	args   []string
	points []string
}{
	{[]string{"rebuild", "start", "--yes"}, []string{
		"1 begun", "1 done", "1 recorded", "2 begun", "2 done", "2 recorded", "3 begun", "3 done", "3 recorded", "4 begun", "4 chunk", "4 done", "4 recorded",
	}},
	{[]string{"rebuild", "verify", "--settle", "1s"}, []string{"5 begun", "5 done", "5 recorded", "6 begun", "6 done", "6 recorded"}},
	{[]string{"rebuild", "switch", "--yes"}, []string{"7 begun", "7 done", "7 recorded"}},
	{[]string{"rebuild", "close", "--yes"}, []string{"8 begun", "8 first", "8 done", "8 recorded"}},
	{[]string{"rebuild", "verify", "--settle", "1s"}, []string{"9 begun", "9 done", "9 recorded"}},
	{[]string{"rebuild", "close", "--drop", "--hold", "0s", "--yes"}, []string{"drop announced", "drop done"}},
}

// doneWith reports whether the last command has nothing left to do: it died after
// it had recorded its end.
func (s *sourceWorld) doneWith(index int) bool {
	s.t.Helper()
	var r rebuildResult
	if err := json.Unmarshal([]byte(s.must(0, "rebuild", "status", "-o", "json").stdout), &r); err != nil {
		s.t.Fatal(err)
	}
	return int(r.Progress.Next()) > [...]int{4, 6, 7, 8, 9, 10}[index]
}

// TestRebuildKilledAtEachStep kills one rebuild with SIGKILL before, within and
// after each of its steps, and gives the command again.
func TestRebuildKilledAtEachStep(t *testing.T) {
	const n = 4000
	_, g2 := newRebuildWorld(t, n)
	g2.killable()
	kills := 0
	for i, c := range rebuildCommands {
		for _, point := range c.points {
			if g2.kill(point, 0, c.args...) {
				kills++
			} else {
				t.Errorf("%v did not come to %q", c.args, point)
			}
		}
		if i == len(rebuildCommands)-1 || !g2.doneWith(i) {
			g2.must(0, c.args...)
		}
		if i == 0 {
			next := g2.start()
			next.ready()
		}
	}
	if d := g2.different(n); d != "0\t0\n" {
		t.Errorf("different from the source: %s", d)
	}
	if got := g2.rows("EXISTS fitness_results_g1"); got != "0\n" {
		t.Error("the old table is there")
	}
	g2.complete(2)
	t.Logf("%d kills", kills)
}

// TestRebuildKilled kills rebuilds with SIGKILL at random moments, 5 times, or
// as often as REBUILD_KILLS says: one generation after another.
func TestRebuildKilled(t *testing.T) {
	kills := 5
	if n, err := strconv.Atoi(os.Getenv("REBUILD_KILLS")); err == nil {
		kills = n
	}
	const n = 4000
	g1, _ := newRebuildWorld(t, n)
	g1.killable()
	generation := 1
	for killed := 0; killed < kills; {
		generation++
		g := g1.generation(generation, wrongUnit, rightUnit)
		g.flags = append(slices.Clone(g.flags), "--set", "batch.rows=400")
		var next *running
		for i, c := range rebuildCommands[:5] {
			args := c.args
			if i == 0 {
				args = append(slices.Clone(args), "--rate", "20000")
			}
			for {
				after := time.Duration(0)
				if killed < kills {
					after = time.Duration(1 + rand.Int64N(int64(1500*time.Millisecond)))
				}
				if !g.kill("", after, args...) {
					break
				}
				killed++
				if has := g.run("rebuild", "status", "-o", "json"); !strings.Contains(has.stdout, fmt.Sprintf(`"to": %d`, generation)) {
					continue // it died before it had begun
				}
				if g.doneWith(i) {
					break
				}
			}
			if i == 0 {
				next = g.start()
				next.ready()
			}
		}
		if d := g.different(n); d != "0\t0\n" {
			t.Errorf("generation %d is different from the source: %s", generation, d)
		}
		g.complete(generation)
		next.stop()
		next.end()
	}
	t.Logf("%d kills in %d rebuilds", kills, generation-1)
}
