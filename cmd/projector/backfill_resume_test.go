package main

import (
	"strings"
	"testing"
)

// TestBackfillResumeTellsOfNewCampaigns: the campaigns are listed anew when --all
// goes on. One that comes behind the checkpoint is not copied, and is told.
func TestBackfillResumeTellsOfNewCampaigns(t *testing.T) {
	s := newSourceWorld(t)
	s.fill(6000)
	// The second campaign is long, for it must not be done while the test looks.
	s.shards[0].Exec(t, "INSERT INTO fitness_result SELECT 20000000 + seq, 10002, 1, 3, 1, 1, 'm' FROM seq_1_to_40000")
	s.flags = append(s.flags, "--set", "batch.rows=2000")
	s.killable()
	process, log := s.process("backfill", "--all", "--yes", "--rate", "4000")
	s.until("the second campaign has a checkpoint", func() bool {
		return s.rows("EXISTS TABLE projector_operations") == "1\n" &&
			strings.TrimSpace(s.rows("SELECT countIf(JSONExtractString(checkpoint, 'campaign') = '10002') > 0 FROM projector_operations")) == "1"
	})
	_ = process.Process.Kill()
	_ = process.Wait()
	s.shards[0].Exec(t, "INSERT INTO fitness_result VALUES (90000001, 5, 1, 3, 1, 1, 'm'), (90000002, 20000, 1, 3, 1, 1, 'm')")
	s.shards[1].Exec(t, "INSERT INTO fitness_result_deletion VALUES (90000003, 6, 1)") // no row, so it is not listed
	id := operationOf(log)
	got := s.must(0, "backfill", "--resume", id, "--rate", "100000")
	for _, want := range []string{"(applied)", "1 campaign that the operation had passed when they appeared, or of which nothing that it wrote is left: 5\n", "projector backfill --projection fitness_results --campaign 5\n"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("the result does not say %q:\n%s", want, got.stdout)
		}
	}
	if rows := s.rows("SELECT detect_id, count() FROM fitness_results_current GROUP BY detect_id ORDER BY detect_id"); rows != "10001\t6000\n10002\t46000\n20000\t1\n" {
		t.Errorf("the table has %q", rows)
	}
	if got := s.must(0, "backfill", "--campaign", "5", "-o", "json").stdout; !strings.Contains(got, `"not_covered": []`) {
		t.Errorf("%s", got)
	}
}
