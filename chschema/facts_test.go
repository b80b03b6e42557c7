package chschema_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// The tests of this file show what the rules and the pinned settings are for:
// without them the server gives wrong numbers. If one of them fails on a newer
// server, a rule may have become needless; the reports are as right as before.

// TestViewsNeedTheirSettings asks the same as TestCurrentUnderHostileSettings
// of a view without settings, and must see it lie.
func TestViewsNeedTheirSettings(t *testing.T) {
	s, table := newViews(t)
	query, _, _ := strings.Cut(table.Definitions()[0].Query, "SETTINGS")
	s.exec(t, "SYSTEM STOP MERGES r_g1", "CREATE OR REPLACE VIEW r_current AS "+query)
	blocks := history(300, 4, 300)
	insert(t, s, blocks...)
	live := current(slices.Concat(blocks...))
	for _, settings := range []clickhouse.Settings{{"use_skip_indexes_if_final_exact_mode": 0}} {
		wrong := 0
		for _, q := range questions {
			if got, err := ask(clickhouse.Context(t.Context(), clickhouse.WithSettings(settings)), s.conn, q.query); err == nil && got != q.answer(live) {
				wrong++
			}
		}
		if wrong == 0 {
			t.Errorf("%v: every answer is right without the pinned settings", settings)
		}
	}
}

func TestFinalReadersNeedViews(t *testing.T) {
	s, _ := newViews(t)
	s.exec(t, "SYSTEM STOP MERGES r_g1")
	insert(t, s, []row{{ID: 1, Version: 1, Result: 10}}, []row{{ID: 1, Version: 2, Result: 5}})
	count := func(settings clickhouse.Settings, from string) string {
		t.Helper()
		got, err := ask(clickhouse.Context(t.Context(), clickhouse.WithSettings(settings)), s.conn, "SELECT toString(count()) AS answer FROM "+from)
		if err != nil {
			return err.Error()
		}
		return got
	}
	// PREWHERE filters before the merge and brings the old version back …
	if got := count(nil, "r_g1 FINAL PREWHERE result = 10"); got != "1" {
		t.Errorf("PREWHERE is applied after FINAL: %s", got)
	}
	// … and a view does not let a reader write it.
	if got := count(nil, "r_current PREWHERE result = 10"); !strings.Contains(got, "does not support PREWHERE") {
		t.Errorf("a view takes PREWHERE: %s", got)
	}
	// final = 1 hides versions from who wants to see them.
	if got := count(clickhouse.Settings{"final": 1}, "r_g1"); got != "1" {
		t.Errorf("final = 1 shows %s rows", got)
	}
	if got := count(clickhouse.Settings{"final": 1}, "r_versions"); got != "2" {
		t.Errorf("the view of versions shows %s rows under final = 1", got)
	}
}

func TestPartitionOutsideTheKeyShowsOldVersions(t *testing.T) {
	s := newServer(t)
	s.exec(t, "CREATE TABLE p (id UInt64, kind UInt8, v UInt64) ENGINE = ReplacingMergeTree(v) PARTITION BY kind ORDER BY id",
		"INSERT INTO p VALUES (1, 1, 1)", "INSERT INTO p VALUES (1, 2, 2)")
	for query, want := range map[string]string{
		"SELECT toString(count()) AS answer FROM p FINAL SETTINGS do_not_merge_across_partitions_select_final = 1": "2",
		"SELECT toString(count()) AS answer FROM p FINAL SETTINGS do_not_merge_across_partitions_select_final = 0, " +
			"enable_automatic_decision_for_merging_across_partitions_for_final = 0": "1",
	} {
		if got, err := ask(t.Context(), s.conn, query); got != want {
			t.Errorf("%s: %s, %v", query, got, err)
		}
	}
}

// TestTimeWithoutZoneMovesBetweenPartitions is why a partition by the date of a
// time needs a zone: the table takes it from the session that creates it, and
// from the server once it is loaded again.
func TestTimeWithoutZoneMovesBetweenPartitions(t *testing.T) {
	s := newServer(t)
	for by, want := range map[string]string{"toYYYYMM(at)": "2", "toYYYYMM(at, 'UTC')": "1"} {
		ctx := clickhouse.Context(t.Context(), clickhouse.WithSettings(clickhouse.Settings{"session_timezone": "Asia/Shanghai"}))
		if err := s.conn.Exec(ctx, "CREATE OR REPLACE TABLE p (id UInt64, at DateTime, v UInt64) ENGINE = ReplacingMergeTree(v) PARTITION BY "+by+" ORDER BY (id, at)"); err != nil {
			t.Fatal(err)
		}
		const lastHourOfJanuary = "1706742000"
		s.exec(t, "INSERT INTO p SELECT 1, "+lastHourOfJanuary+", 1", "DETACH TABLE p", "ATTACH TABLE p",
			"INSERT INTO p SELECT 1, "+lastHourOfJanuary+", 2")
		if got, err := ask(t.Context(), s.conn, "SELECT toString(uniqExact(_partition_id)) AS answer FROM p"); got != want {
			t.Errorf("%s: one record is in %s partitions, not %s, %v", by, got, want, err)
		}
	}
}

// TestKeyFiltersReachTheIndex: a report about one campaign reads one campaign.
func TestKeyFiltersReachTheIndex(t *testing.T) {
	s, _ := newViews(t)
	s.exec(t, "SYSTEM STOP MERGES r_g1")
	insert(t, s, history(300, 4, 300)...)
	plan, err := s.Query(t.Context(), "EXPLAIN indexes = 1 SELECT sum(result) FROM r_current WHERE detect_id = 7 FORMAT TSVRaw")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Condition: (moduloLegacy(detect_id, 4) in [3, 3])", "Condition: (detect_id in [7, 7])", "Parts: 4/16"} {
		if !strings.Contains(plan, want) {
			t.Errorf("%q is missing:\n%s", want, plan)
		}
	}
}
