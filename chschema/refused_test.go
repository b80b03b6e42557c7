package chschema_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/chprojector/projector/chschema"
)

func asException(err error, target *clickhouse.Exception) bool {
	exception, ok := errors.AsType[*clickhouse.Exception](err)
	if ok {
		*target = *exception
	}
	return ok
}

// TestRefused meets tables that something else made, or changed.
func TestRefused(t *testing.T) {
	tests := []struct {
		name     string
		replace  string // in the statement that creates the table, old|new
		then     string // or a statement after it
		want     string
		isOnline bool
	}{
		{name: "another engine", replace: "ENGINE = ReplacingMergeTree(`version`)|ENGINE = MergeTree", want: "only a ReplacingMergeTree replaces"},
		{name: "no version column", replace: "ReplacingMergeTree(`version`)|ReplacingMergeTree", want: "its version column is none instead of version"},
		{name: "another version column", replace: "ReplacingMergeTree(`version`)|ReplacingMergeTree(`user_id`)", want: "its version column is user_id instead of version"},
		{name: "cleanup of deletions", replace: "ReplacingMergeTree(`version`)|ReplacingMergeTree(`version`, `is_deleted`)", want: "its engine also has the is_deleted parameter is_deleted"},
		{name: "key without the identity", replace: "ORDER BY (`detect_id`, `data_id`)|ORDER BY (`detect_id`)", want: "it is ordered by (detect_id) instead of (detect_id, data_id)"},
		{name: "key in another order", replace: "ORDER BY (`detect_id`, `data_id`)|ORDER BY (`data_id`, `detect_id`)", want: "it is ordered by (data_id, detect_id)"},
		{name: "longer key", replace: "ORDER BY (`detect_id`, `data_id`)|ORDER BY (`detect_id`, `data_id`, `user_id`)", want: "it is ordered by"},
		{name: "partition outside the key", replace: "PARTITION BY detect_id % 8|PARTITION BY user_id % 8", want: "it is partitioned by user_id % 8 instead of detect_id % 8"},
		{name: "no partition", replace: "PARTITION BY detect_id % 8|", want: "it is partitioned by nothing"},
		{name: "nullable key", replace: "`data_id` UInt64|`data_id` Nullable(UInt64)", want: "the column data_id is Nullable(UInt64) instead of UInt64: a key that can be NULL"},
		{name: "narrower column", replace: "`project_id` UInt32|`project_id` UInt16", want: "the column project_id is UInt16 instead of UInt32: stored values"},
		{name: "nullable column", replace: "`project_id` UInt32|`project_id` Nullable(UInt32)", want: "the column project_id is Nullable(UInt32)"},
		{name: "no dictionary", replace: "`unit` LowCardinality(String)|`unit` String", want: "the column unit is String instead of LowCardinality(String)"},
		{name: "another scale", replace: "Decimal(18, 3)|Decimal(18, 4)", want: "the column result is Decimal(18, 4)"},
		{name: "unsupported type", replace: "`event_id` String|`event_id` JSON", want: "the column event_id is JSON instead of String"},
		{name: "lineage missing", replace: "    `_offset` Int64,\n|", want: "it lacks the lineage column _offset"},
		{name: "lineage of another type", replace: "`_offset` Int64|`_offset` UInt64", want: "the column _offset is UInt64 instead of Int64"},
		{name: "computed column", replace: "`event_id` String|`event_id` String MATERIALIZED 'x'", want: "the column event_id is computed (MATERIALIZED 'x')"},
		{name: "no fence", replace: ",\n    CONSTRAINT generation_fence CHECK `_generation` >= 1|", want: "it has no constraint generation_fence"},
		{name: "lower fence", replace: "`_generation` >= 1|`_generation` >= 0", want: "its constraint generation_fence admits generation 0"},
		{name: "another fence", replace: "CHECK `_generation` >= 1|CHECK `_generation` != 1", want: "it has no constraint generation_fence"},
		{name: "closed", replace: "`_generation` >= 1|`_generation` >= 2", want: "set generation: 2 in the configuration"},
		{name: "rows that expire", replace: "SETTINGS non_rep|TTL toDateTime(_ingested_at) + INTERVAL 1 DAY SETTINGS non_rep", want: "it has a TTL"},
		{name: "values that expire", replace: "`user_id` UInt64|`user_id` UInt64 TTL toDateTime(_ingested_at) + INTERVAL 1 DAY", want: "the column user_id has a TTL"},
		{name: "values that expire, by a later change", then: "ALTER TABLE fitness_results_g1 MODIFY COLUMN user_id UInt64 TTL toDateTime(_ingested_at) + INTERVAL 1 DAY", want: "the column user_id has a TTL"},
		{name: "a view in its place", replace: "|", then: "CREATE VIEW fitness_results_g1 AS SELECT 1 AS a", want: "it is View"},
		{name: "column missing", then: "ALTER TABLE fitness_results_g1 DROP COLUMN user_id", want: "it needs a change: add the column user_id UInt64", isOnline: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t)
			table := fitness(s.Name)
			statement := table.CreateTable()
			if old, replacement, ok := strings.Cut(tt.replace, "|"); ok && old != "" {
				if !strings.Contains(statement, old) {
					t.Fatalf("%q is not in\n%s", old, statement)
				}
				statement = strings.Replace(statement, old, replacement, 1)
			}
			if tt.replace != "|" {
				s.exec(t, strings.Replace(statement, "SETTINGS ", "SETTINGS allow_nullable_key = 1, ", 1))
			}
			if tt.then != "" {
				s.exec(t, tt.then)
			}
			err := chschema.Check(t.Context(), s.conn, table)
			if _, ok := errors.AsType[*chschema.DesignError](err); !ok || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			// Of a fence and of a column that is missing, inserts tell.
			told := strings.Contains(tt.want, "fence") || tt.name == "closed" || tt.isOnline
			if err := chschema.CheckKept(t.Context(), s.conn, table); told != (err == nil) {
				t.Errorf("while rows are written: %v", err)
			}
			if tt.isOnline {
				s.apply(t, table)
				return
			}
			changes := s.diff(t, table)
			if chschema.RefusedError(changes) == nil {
				t.Errorf("not refused: %s", verdicts(changes))
			}
			for _, c := range changes {
				if c.Verdict == chschema.Refused && (c.Remedy == "" || len(c.Statements) > 0) {
					t.Errorf("no way out: %s", c)
				}
			}
			if err := chschema.Apply(t.Context(), s.conn, changes, func(string) { t.Error("something was executed") }); err == nil {
				t.Error("applied")
			}
		})
	}
}

func TestRefusedReportsEverythingAtOnce(t *testing.T) {
	s := newServer(t)
	s.exec(t, "CREATE TABLE fitness_results_g1 (detect_id UInt64, data_id UInt64, v UInt64, result Float64) ENGINE = ReplacingMergeTree(v) ORDER BY detect_id",
		"CREATE TABLE fitness_results_current (a UInt8) ENGINE = MergeTree ORDER BY a")
	got := verdicts(s.diff(t, fitness(s.Name)))
	for _, want := range []string{
		"version column is v", "ordered by (detect_id)", "partitioned by nothing", "no constraint", "result is Float64", "lineage column _topic",
		"lineage column _generation", "add the column user_id", "column v UInt64 that the configuration lacks",
		"refused fitness_results_current: the name belongs to a MergeTree: replacing it by the view would destroy it",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing:\n%s", want, got)
		}
	}
}

func TestUnparsableViewIsRefusedBeforeAnythingRuns(t *testing.T) {
	s := newServer(t)
	table := fitness(s.Name)
	for query, want := range map[string]string{
		"SELECT count( FROM {current}": "cannot parse its query",
		"SELECT CAST(`as` AS String) FROM (SELECT 1 AS `as`, data_id FROM {current})": "could not read its query again",
	} {
		table.Views[0].Query = query
		got := s.diff(t, table)
		if last := got[len(got)-1]; last.Verdict != chschema.Refused || !strings.Contains(last.String(), want) {
			t.Errorf("%s: got %s", query, verdicts(got))
		}
	}
}

// TestEveryKeywordSurvives: what the server prints of a table and its views,
// with a column of any name that is allowed, it can read again.
func TestEveryKeywordSurvives(t *testing.T) {
	s := newServer(t)
	var keywords []struct {
		Word string `ch:"word"`
	}
	err := s.conn.Select(t.Context(), &keywords, "SELECT DISTINCT arrayJoin(splitByChar(' ', lower(keyword))) AS word FROM system.keywords WHERE match(word, '^[a-z][a-z0-9_]*$')")
	if err != nil || len(keywords) < 100 {
		t.Fatal(len(keywords), err)
	}
	var statements []string
	for _, k := range keywords {
		for _, order := range [][]string{{k.Word, "id"}, {"id", k.Word}} {
			table := chschema.Table{
				Database: "d", Name: "t", Generation: 1, Columns: columns(order[0]+" UInt64", order[1]+" UInt64", "v UInt64", "gone Bool"),
				OrderBy: order, Identity: order, Version: "v", Deleted: "gone", PartitionBy: "(`" + k.Word + "` % 8, intDiv(`" + k.Word + "`, 8))",
			}
			if table.Validate() == nil {
				all := table.Statements() // the table, its views of current rows and of conflicts
				statements = append(statements, all[0], all[1], all[3])
			}
		}
	}
	for chunk := range slices.Chunk(statements, 150) {
		var quoted []string
		for _, statement := range chunk {
			quoted = append(quoted, sqlString(statement))
		}
		var broken []struct {
			Text *string `ch:"text"`
		}
		err := s.conn.Select(t.Context(), &broken, "SELECT formatQuerySingleLineOrNull(arrayJoin(["+strings.Join(quoted, ", ")+"])) AS text, "+
			"formatQuerySingleLineOrNull(text) AS again WHERE isNull(again) OR again != text")
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range broken {
			t.Errorf("%v", b.Text)
		}
	}
	t.Log(len(statements), "statements")
}

func TestCheckRefusesAnInvalidTable(t *testing.T) {
	table := fitness("d")
	table.PartitionBy = "user_id"
	err := chschema.Check(t.Context(), nil, table)
	if _, ok := errors.AsType[*chschema.DesignError](err); !ok || !strings.Contains(err.Error(), "table d.fitness_results_g1: partition_by") {
		t.Error(err)
	}
}

func TestCheckOfAMissingTable(t *testing.T) {
	s := newServer(t)
	err := chschema.Check(t.Context(), s.conn, fitness(s.Name))
	if !errors.Is(err, chschema.ErrNoTable) {
		t.Error(err)
	}
}
