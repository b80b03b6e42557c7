package main

import (
	"strings"
	"testing"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/config"
)

// TestRepairWithdraw: a plan that was given up can be applied by nobody, counts
// nowhere, and stays on record with who did it and why.
func TestRepairWithdraw(t *testing.T) {
	s := equalWorld(t, 50)
	s.plantDefect(defects()[0]) // missing 9000
	s.plantDefect(defects()[7]) // unexpected 7777
	p := s.planned(0, "--campaign", "10001")
	replay, removal := p.Repairs[0].Operation, p.Repairs[1].Operation
	s.must(exitUsage, "repair", "withdraw", replay)
	s.must(exitUsage, "repair", "withdraw", replay, "--reason", " ")
	if r := s.repaired(0, "withdraw", removal, "--reason", "known to the \"test\" team", "--actor", "eve"); r.State != "withdrawn" || r.Records != 1 || r.Applied != 0 {
		t.Errorf("%+v", r)
	}
	if got := s.must(exitFailed, "repair", "apply", removal, "--actor", "bob", "--yes"); !strings.Contains(got.stderr, "is withdrawn: nothing of it is left to be done") {
		t.Errorf("%s", got.stderr)
	}
	if got := s.must(exitFailed, "repair", "withdraw", removal, "--reason", "again"); !strings.Contains(got.stderr, `is withdrawn already, by eve: known to the "test" team`) {
		t.Errorf("%s", got.stderr)
	}
	s.wantState(7777, "2\tfalse\t1")
	shown := s.must(0, "repair", "show", removal).stdout
	for _, want := range []string{"(withdrawn)", "ticket 4711", "eve", `known to the "test" team`, "7777"} {
		if !strings.Contains(shown, want) {
			t.Errorf("show does not say %q:\n%s", want, shown)
		}
	}
	if got := s.must(0, "repair", "list", "--state", "planned").stdout; !strings.Contains(got, replay) || strings.Contains(got, removal) {
		t.Errorf("list:\n%s", got)
	}
	if got := s.must(0, "status").stdout; !strings.Contains(got, "1 planned") {
		t.Errorf("status:\n%s", got)
	}
	s.repaired(0, "apply", replay)
	for range 2 { // applied, then verified
		if got := s.must(exitFailed, "repair", "withdraw", replay, "--reason", "too late"); !strings.Contains(got.stderr, "what it did is done and cannot be withdrawn") {
			t.Errorf("%s", got.stderr)
		}
		s.repaired(0, "verify", replay, "--settle", "300ms")
	}
	if got := s.must(exitFailed, "repair", "withdraw", strings.TrimSpace(s.rows("SELECT id FROM projector_operations WHERE kind = 'backfill' LIMIT 1")), "--reason", "x"); !strings.Contains(got.stderr, "is a backfill, not a repair") {
		t.Errorf("%s", got.stderr)
	}
	if p := s.planned(0, "--campaign", "10001"); len(p.Repairs) != 1 || p.Repairs[0].Kinds["unexpected"] != 1 { // it is still a difference
		t.Errorf("%+v", p)
	}
}

// TestRepairWithdrawHalfDone: a repair that failed, or whose process died, can be
// given up; one that is being worked on cannot.
func TestRepairWithdrawHalfDone(t *testing.T) {
	s := equalWorld(t, 1000)
	s.killable()
	for _, shard := range s.shards {
		shard.Exec(t, "UPDATE fitness_result SET version = version + 10 WHERE detect_id = 10001")
	}
	id := s.planned(0, "--campaign", "10001").Repairs[0].Operation
	process, log := s.process("repair", "apply", id, "--rate", "10") // it must not be done while the test looks
	s.until("records are repaired", func() bool { return strings.Contains(log.String(), `"done":`) })
	if got := s.must(exitFailed, "repair", "withdraw", id, "--reason", "too slow"); !strings.Contains(got.stderr, "is being worked on by") {
		t.Errorf("%s", got.stderr)
	}
	_ = process.Process.Kill()
	_ = process.Wait()
	r := s.repaired(0, "withdraw", id, "--reason", "too slow")
	if r.State != "withdrawn" || r.Applied == 0 || r.Applied == r.Records {
		t.Errorf("%+v", r.Counts)
	}
	if got := s.must(exitFailed, "repair", "verify", id); !strings.Contains(got.stderr, "is withdrawn: `projector reconcile` compares what it had done") {
		t.Errorf("%s", got.stderr)
	}
}

// appliedRepair is a world with a repair of one record that nobody has verified.
func appliedRepair(t *testing.T) (s *sourceWorld, id string) {
	t.Helper()
	s = equalWorld(t, 50)
	s.plantDefect(defects()[0]) // missing 9000
	id = s.planned(0, "--campaign", "10001").Repairs[0].Operation
	s.repaired(0, "apply", id)
	return s, id
}

// TestRepairWithdrawOutlived: a repair that was applied and not verified before
// the mapping changed can be verified by nobody, so it can be given up.
func TestRepairWithdrawOutlived(t *testing.T) {
	s, id := appliedRepair(t)
	s.edit("from: unit,      type", "from: unit, default: none, type")
	if got := s.must(exitFailed, "repair", "verify", id); !strings.Contains(got.stderr, "compare with `projector reconcile`, and give this one up with `projector repair withdraw "+id) {
		t.Errorf("%s", got.stderr)
	}
	if r := s.repaired(0, "withdraw", id, "--reason", "the mapping has changed"); r.State != "withdrawn" || r.Applied != 1 {
		t.Errorf("%+v", r)
	}
	if got := s.must(0, "status").stdout; strings.Contains(got, "not verified") {
		t.Errorf("status:\n%s", got)
	}
}

// TestRepairWithdrawProjectionGone: nor can anybody verify a repair of a
// projection that was renamed or removed.
func TestRepairWithdrawProjectionGone(t *testing.T) {
	s, id := appliedRepair(t)
	s.edit("- name: fitness_results\n", "- name: renamed\n")
	s.edit("    fitness_results: ", "    renamed: ")
	if got := s.must(exitUsage, "repair", "verify", id); !strings.Contains(got.stderr, "projection fitness_results is not in this configuration") ||
		!strings.Contains(got.stderr, "give this one up with `projector repair withdraw "+id) {
		t.Errorf("%s", got.stderr)
	}
	if r := s.repaired(0, "withdraw", id, "--reason", "the projection has another name"); r.State != "withdrawn" || r.Applied != 1 {
		t.Errorf("%+v", r)
	}
}

// TestRepairOutlivedRemedy holds that the advice about a repair that the
// configuration no longer fits is one that the next command does not refuse.
func TestRepairOutlivedRemedy(t *testing.T) {
	cfg, err := config.Load(config.Input{Path: "../../config.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	for state, want := range map[audit.State]string{
		audit.Planned:  "; plan it anew",
		audit.Failed:   "; compare with `projector reconcile`, and give this one up with `projector repair withdraw 1`",
		audit.Applied:  "; compare with `projector reconcile`, and give this one up with `projector repair withdraw 1`",
		audit.Refuted:  "; compare with `projector reconcile`, and give this one up with `projector repair withdraw 1`",
		audit.Verified: "; compare with `projector reconcile`",
	} {
		r := openedRepair{repairs: &repairs{cfg: cfg}, op: audit.Operation{ID: "1", Projection: "fitness_results", Digest: "another", State: state}}
		if _, _, err := r.projection(); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", state, err, want)
		}
	}
}
