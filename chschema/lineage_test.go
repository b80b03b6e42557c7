package chschema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// put inserts one row with its lineage; optimize_on_insert = 0 as the consumer
// does, so that a conflict inside one insert stays visible.
func put(t *testing.T, s server, rows ...string) {
	t.Helper()
	s.exec(t, "INSERT INTO fitness_results_g1 (data_id, detect_id, version, result, is_deleted, _topic, _partition, _offset, _origin, _generation) "+
		"SETTINGS optimize_on_insert = 0, async_insert = 0 VALUES "+strings.Join(rows, ", "))
}

// lines asks under settings that would spoil raw rows.
func lines(t *testing.T, s server, query string) string {
	t.Helper()
	var results []string
	for _, settings := range []clickhouse.Settings{{}, {"final": 1}, {"final": 1, "enable_analyzer": 0}, {"optimize_move_to_prewhere_if_final": 1, "final": 1}} {
		var rows []struct {
			Line string `ch:"line"`
		}
		if err := s.conn.Select(clickhouse.Context(t.Context(), clickhouse.WithSettings(settings)), &rows, query); err != nil {
			t.Fatalf("%v: %v", settings, err)
		}
		var list []string
		for _, r := range rows {
			list = append(list, r.Line)
		}
		results = append(results, strings.Join(list, "\n"))
	}
	for _, r := range results {
		if r != results[0] {
			t.Errorf("%s\nanswers %q or %q by the reader's settings", query, results[0], r)
		}
	}
	return results[0]
}

const places = "SELECT concatWithSeparator(' ', data_id, version, result, _topic, _partition, _offset, _origin) AS line FROM "

func TestVersionsShowsEveryRow(t *testing.T) {
	s := newServer(t)
	s.apply(t, fitness(s.Name))
	s.exec(t, "SYSTEM STOP MERGES fitness_results_g1")
	put(t, s, "(1, 1, 1, 2.21, 0, 'a', 0, 10, 'stream', 1)")
	put(t, s, "(1, 1, 2, 2.31, 0, 'a', 0, 11, 'stream', 1)", "(1, 1, 1, 2.21, 0, 'a', 0, 12, 'stream', 1)", "(1, 1, 3, 0, 1, '', -1, -1, 'backfill:7', 1)")
	got := lines(t, s, places+"fitness_results_versions ORDER BY _offset")
	want := "1 3 0  -1 -1 backfill:7\n1 1 2.21 a 0 10 stream\n1 2 2.31 a 0 11 stream\n1 1 2.21 a 0 12 stream"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := lines(t, s, "SELECT toString(count()) AS line FROM fitness_results_current"); got != "0" {
		t.Errorf("a deleted record is current: %s", got)
	}
}

func TestConflictsShowsBothPlaces(t *testing.T) {
	s := newServer(t)
	s.apply(t, fitness(s.Name))
	s.exec(t, "SYSTEM STOP MERGES fitness_results_g1")
	put(t, s,
		"(1, 1, 1, 1.5, 0, 'a', 0, 1, 'stream', 1)", "(1, 1, 1, 1.5, 0, 'a', 0, 2, 'stream', 1)", // a duplicate is no conflict
		"(2, 1, 1, 1.5, 0, 'a', 0, 3, 'stream', 1)", "(2, 1, 2, 2.5, 0, 'a', 0, 4, 'stream', 1)", // nor is another version
		"(3, 1, 1, 1.5, 0, 'a', 0, 5, 'stream', 1)", "(3, 1, 1, 2.5, 0, 'a', 0, 6, 'stream', 1)", // other content inside one insert
		"(4, 1, 9, 1.5, 0, 'a', 0, 7, 'stream', 1)")
	put(t, s, "(4, 1, 9, 1.5, 1, 'b', 3, 8, 'repair:x', 1)", // deleted or not is content
		"(5, 1, 1, 1, 0, 'a', 0, 9, 'stream', 1)", "(5, 2, 1, 1, 0, 'a', 0, 10, 'stream', 1)") // a key column that changed
	got := lines(t, s, places+"fitness_results_conflicts ORDER BY data_id, _offset")
	want := "3 1 1.5 a 0 5 stream\n3 1 2.5 a 0 6 stream\n4 9 1.5 a 0 7 stream\n4 9 1.5 b 3 8 repair:x\n5 1 1 a 0 9 stream\n5 1 1 a 0 10 stream"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestConflictsSeesEveryType: a change in any one column is other content,
// NULL against the default value included.
func TestConflictsSeesEveryType(t *testing.T) {
	s := newServer(t)
	table := fitness(s.Name)
	table.Columns = append(table.Columns, typeColumns()...)
	s.apply(t, table)
	s.exec(t, "SYSTEM STOP MERGES fitness_results_g1")
	values := map[string]string{
		"n": "0", "lcn": "''", "a": "[NULL]", "aa": "[[]]", "m": "map('', [])", "tu": "(0, '')", "tn": "(0, ' ')", "ne": "[('', map())]",
		"b": "true", "s": "'\\0'", "fs": "'x'", "uuid": "'00000000-0000-0000-0000-000000000001'", "d": "'1970-01-02'", "d32": "'1970-01-02'",
		"dt": "1", "dtz": "1", "dt64": "0.000001", "dt64z": "0.000000001", "e8": "'it\\'s'", "ip4": "'0.0.0.1'", "ip6": "'::1'",
		"lc": "'x'", "lcf": "'x'", "f32": "-0.0", "f64": "-0.0",
	}
	s.exec(t, fmt.Sprintf("INSERT INTO fitness_results_g1 (data_id, _generation) SELECT number, 1 FROM numbers(%d)", len(typeColumns())))
	var want []string
	for i, c := range typeColumns() {
		if c.Name == "e16" {
			continue // has one value
		}
		value, ok := values[c.Name]
		if !ok {
			value = "1"
		}
		s.exec(t, fmt.Sprintf("INSERT INTO fitness_results_g1 (data_id, %s, _generation) VALUES (%d, %s, 1)", c.Name, i, value))
		want = append(want, fmt.Sprintf("%d 2", i))
	}
	got := lines(t, s, "SELECT concatWithSeparator(' ', data_id, count()) AS line FROM fitness_results_conflicts GROUP BY data_id ORDER BY data_id")
	if got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestFreshness(t *testing.T) {
	s := newServer(t)
	s.apply(t, fitness(s.Name))
	s.exec(t, "SYSTEM STOP MERGES fitness_results_g1")
	put(t, s, "(1, 1, 2, 1, 0, 'a', 0, 5, 'stream', 1)", "(2, 1, 1, 1, 0, 'a', 1, 7, 'stream', 1)", "(3, 1, 1, 1, 1, 'b', 0, 3, 'stream', 1)")
	put(t, s, "(1, 1, 1, 1, 0, 'a', 0, 6, 'stream', 1)", "(9, 1, 1, 1, 0, 'a', 0, 99, 'replay:1', 1)", "(8, 1, 1, 1, 0, '', -1, -1, 'backfill:1', 1)")
	got := lines(t, s, "SELECT concatWithSeparator(' ', _topic, _partition, newest_offset, rows, newest_ingested_at > now() - 3600, "+
		"seconds_since BETWEEN 0 AND 3600) AS line FROM fitness_results_freshness ORDER BY _topic, _partition")
	if want := "a 0 6 2 1 1\na 1 7 1 1 1\nb 0 3 1 1 1"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
