package chschema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/chprojector/projector/internal/testenv"
)

// BenchmarkFinal reads a sum over 2,000,000 records in three versions each:
// through the view, and with the merge across partitions that the partition
// rule makes needless. cpu-ms/op is the server's, so that other work on the
// machine does not count.
func BenchmarkFinal(b *testing.B) {
	s := testenv.NewClickHouse(b, testenv.ClickHouseConfig{Databases: []string{"d"}})
	conn, err := clickhouse.Open(&clickhouse.Options{Addr: []string{s.Addr()}, Auth: clickhouse.Auth{Database: "d"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	exec := func(statement string) {
		b.Helper()
		if err := conn.Exec(b.Context(), statement); err != nil {
			b.Fatalf("%v\n%s", err, statement)
		}
	}
	table := fitness("d")
	for _, statement := range table.Statements() {
		exec(statement)
	}
	exec("SYSTEM STOP MERGES fitness_results_g1")
	for version := range 3 {
		exec(fmt.Sprintf("INSERT INTO fitness_results_g1 (data_id, detect_id, version, result, is_deleted, _generation) "+
			"SELECT number, number %% 1000, %d, number / 7, number %% 50 = 0, 1 FROM numbers(2000000)", version))
	}
	const merging = "do_not_merge_across_partitions_select_final = 0, enable_automatic_decision_for_merging_across_partitions_for_final = 0"
	view := table.Definitions()[0].Query
	queries := []struct{ name, query string }{
		{"view", "SELECT sum(result), count() FROM fitness_results_current"},
		{"merging-partitions", "SELECT sum(result), count() FROM (" +
			strings.Replace(view, "do_not_merge_across_partitions_select_final = 1", merging, 1) + ")"},
		{"without-final", "SELECT sum(result), count() FROM (" + strings.Replace(view, " FINAL", "", 1) + ")"},
	}
	for _, state := range []string{"three-parts", "merged"} {
		if state == "merged" {
			exec("SYSTEM START MERGES fitness_results_g1")
			exec("OPTIMIZE TABLE fitness_results_g1 FINAL")
		}
		for _, q := range queries {
			b.Run(state+"/"+q.name, func(b *testing.B) {
				id := strings.ReplaceAll(b.Name(), "/", "-")
				ctx := clickhouse.Context(b.Context(), clickhouse.WithSettings(clickhouse.Settings{"log_comment": id}))
				for b.Loop() {
					if err := conn.Exec(ctx, q.query); err != nil {
						b.Fatal(err)
					}
				}
				exec("SYSTEM FLUSH LOGS")
				var rows []struct {
					CPU float64 `ch:"cpu"`
				}
				err := conn.Select(b.Context(), &rows, "SELECT quantileExact(0.5)(ProfileEvents['UserTimeMicroseconds'] + ProfileEvents['SystemTimeMicroseconds']) / 1000 AS cpu "+
					"FROM system.query_log WHERE type = 'QueryFinish' AND log_comment = "+sqlString(id))
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(rows[0].CPU, "cpu-ms/op")
			})
		}
	}
}
