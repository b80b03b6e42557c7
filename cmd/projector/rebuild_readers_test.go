package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// views executes the views that a configuration prints, as docs/rebuild.md tells
// who wants to go back.
func (s *sourceWorld) views() {
	s.t.Helper()
	for statement := range strings.SplitSeq(s.must(0, "schema", "print").stdout, ";\n") {
		if strings.Contains(statement, "VIEW") {
			s.rows(statement)
		}
	}
}

// TestRebuildKeepsWhatIsRead: nothing is closed, and nothing dropped, that a view
// reads, the projection's own ones or somebody else's.
func TestRebuildKeepsWhatIsRead(t *testing.T) {
	g1, g2 := newRebuildWorld(t, 50)
	g2.must(0, "rebuild", "start", "--yes")
	next := g2.start()
	next.ready()
	g2.must(0, "rebuild", "verify", "--settle", "1s")
	g2.must(0, "rebuild", "switch", "--yes")
	g1.rows("CREATE VIEW dashboard AS SELECT count() FROM fitness_results_g1")
	g2.refused(1, []string{"rebuild", "close", "--yes"}, ".dashboard", "fitness_results_g1")
	g1.rows("DROP VIEW dashboard")
	g2.must(0, "rebuild", "close", "--yes")

	g1.views() // somebody goes back, too late
	g2.must(0, "rebuild", "verify", "--settle", "1s")
	g2.refused(1, []string{"rebuild", "close", "--drop", "--hold", "0s", "--yes"}, ".fitness_results_current", "`projector schema print`")
	if got := g2.rows("EXISTS fitness_results_g1"); got != "1\n" {
		t.Fatal("the table that readers read was dropped")
	}
	g2.views()
	g2.must(0, "rebuild", "close", "--drop", "--hold", "0s", "--yes")
	if got := g2.rows("EXISTS fitness_results_g1"); got != "0\n" {
		t.Error("the old table is there")
	}
}

// TestRebuildTurnedBack: readers were switched back before the close, and the
// next generation follows, without one that nobody wants in between.
func TestRebuildTurnedBack(t *testing.T) {
	g1, g2 := newRebuildWorld(t, 50)
	g3 := g1.generation(3, wrongUnit, rightUnit)
	g2.must(0, "rebuild", "start", "--yes")
	next := g2.start()
	next.ready()
	g2.must(0, "rebuild", "verify", "--settle", "1s")
	g2.must(0, "rebuild", "switch", "--yes")
	g3.refused(1, []string{"rebuild", "start", "--yes", "--withdraw"}, "has switched the views to generation 2 and not closed the one before")
	g1.views()
	g3.refused(1, []string{"rebuild", "start", "--yes"}, "into generation 2 is not finished", "--withdraw")
	g3.must(0, "rebuild", "start", "--yes", "--withdraw")
	// Once more, finished or not, while the server's clock is put back.
	g4 := g1.generation(4, wrongUnit, rightUnit)
	g3.rows("ALTER TABLE projector_operations UPDATE began = began + 3600 WHERE kind = 'rebuild' SETTINGS mutations_sync = 2")
	next.stop()
	next.end()
	next = g3.start()
	next.ready()
	g3.must(0, "rebuild", "verify", "--settle", "1s")
	g3.must(0, "rebuild", "switch", "--yes")
	g3.must(0, "rebuild", "close", "--yes")
	g4.must(0, "rebuild", "start", "--yes")
	if out := g4.must(0, "rebuild", "status").stdout; !strings.Contains(out, "generation 3 to 4") {
		t.Errorf("the status is of an older rebuild:\n%s", out)
	}
}

// TestRebuildKeepsForgottenCampaigns: campaigns that the query of campaigns does
// not give, one that readers see and one of deletions alone, are copied and
// compared all the same.
func TestRebuildKeepsForgottenCampaigns(t *testing.T) {
	const n = 50
	g1, _ := newRebuildWorld(t, n)
	const every = "campaigns: SELECT DISTINCT detect_id FROM fitness_result"
	g1.edit(wrongUnit, rightUnit)
	g2 := g1.generation(2, every, every+" WHERE detect_id = 10001")
	g1.shards[0].Exec(t, "INSERT INTO fitness_result_deletion VALUES (8000, 10003, 7)")
	g1.shards[0].Exec(t, "INSERT INTO fitness_result VALUES (8004, 10005, 1, 3, 1, 1, 'm')") // the source loses it
	g1.must(0, "backfill", "--campaign", "10003,10005", "--yes")
	g1.shards[0].Exec(t, "DELETE FROM fitness_result WHERE data_id = 8004")
	g2.must(0, "rebuild", "start", "--yes")
	if got := g2.rows("SELECT version, is_deleted FROM fitness_results_g2 WHERE detect_id = 10003"); got != "7\ttrue\n" {
		t.Errorf("of the deletion alone the new table has %q", got)
	}
	next := g2.start()
	next.ready()
	if out := g2.must(0, "rebuild", "verify", "--settle", "1s").stdout; !strings.Contains(out, "4 of 4 campaigns equal") {
		t.Errorf("not every campaign was compared:\n%s", out)
	}
	// One that neither the copy nor the query knows: its rows came to the old table alone.
	g2.shards[0].Exec(t, "INSERT INTO fitness_result VALUES (8002, 10004, 1, 3, 1, 1, 'm')")
	g1.must(0, "backfill", "--campaign", "10004", "--yes")
	g2.refused(3, []string{"rebuild", "verify", "--settle", "1s"}, "1 of 5 campaigns differ; `projector reconcile --campaign 10004`")
	g2.refused(1, []string{"rebuild", "switch", "--yes"}, "next is `projector rebuild verify`")
	g2.must(0, "backfill", "--campaign", "10004", "--yes")

	g2.must(0, "rebuild", "verify", "--settle", "1s")
	if out := g2.must(0, "rebuild", "status").stdout; !strings.Contains(out, "0 added, 1 removed") {
		t.Errorf("what readers lose is not counted:\n%s", out)
	}
}

// TestRebuildCopiesNewCampaign: a campaign begins while somebody thinks about the
// question, and its events are before the recorded ends.
func TestRebuildCopiesNewCampaign(t *testing.T) {
	_, g2 := newRebuildWorld(t, 50)
	command := exec.CommandContext(t.Context(), "projector", slices.Concat(g2.flags, []string{"rebuild", "start"})...)
	log := &lockedBuffer{}
	command.Stderr = log
	answer, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	g2.until("the question", func() bool { return strings.Contains(log.String(), "[y/N]") })
	g2.shards[0].Exec(t, "INSERT INTO fitness_result VALUES (7777777, 10009, 1, 3, 1, 1.5, 'm')")
	g2.produce([]byte(strings.Replace(string(late(7777777)), "10001", "10009", 1)))
	if _, err := answer.Write([]byte("y\n")); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	if got := g2.rows("SELECT count() FROM fitness_results_g2 WHERE data_id = 7777777"); got != "1\n" {
		t.Errorf("the new campaign was copied %s times", strings.TrimSpace(got))
	}
}

// TestSchemaApplySwitchesNothing: with the view of current rows gone, readers of
// the other views still are not switched to a table that nobody has filled.
func TestSchemaApplySwitchesNothing(t *testing.T) {
	_, g2 := newRebuildWorld(t, 50)
	g2.rows("DROP VIEW fitness_results_current")
	g2.refused(1, []string{"rebuild", "start", "--yes"}, "there is no view fitness_results_current", "generation that served")
	g2.refused(3, []string{"schema", "plan"})
	if got := g2.run("schema", "apply", "--yes"); got.code == 0 {
		t.Errorf("readers were switched to an empty table:\n%s%s", got.stdout, got.stderr)
	}
	if got := g2.rows("SELECT count() FROM fitness_results_versions"); got == "0\n" {
		t.Error("readers read an empty table")
	}
}

// TestRebuildFromNothing: the shards are those of another database, and empty. An
// empty table is equal to them, and no reader wants it.
func TestRebuildFromNothing(t *testing.T) {
	_, g2 := newRebuildWorld(t, 50)
	g2.shards[0].Exec(t, "DELETE FROM fitness_result", "DELETE FROM fitness_result_deletion")
	g2.shards[1].Exec(t, "DELETE FROM fitness_result WHERE data_id > 3", "DELETE FROM fitness_result_deletion")
	g2.must(0, "rebuild", "start", "--yes")
	next := g2.start()
	next.ready()
	// What is left of one shard: equal, and the question says what readers lose.
	g2.must(0, "rebuild", "verify", "--settle", "1s")
	g2.refused(1, []string{"rebuild", "switch"}, "99 records that they see are not in it")
	g2.shards[1].Exec(t, "DELETE FROM fitness_result")
	g2.rows("TRUNCATE TABLE fitness_results_g2")
	g2.refused(1, []string{"rebuild", "verify", "--settle", "1s"}, "the source has no record of any campaign", "is it the right database?")
	g2.refused(1, []string{"rebuild", "switch", "--yes"}, "next is `projector rebuild verify`")
}
