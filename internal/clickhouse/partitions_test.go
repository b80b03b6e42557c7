package clickhouse_test

import (
	"fmt"
	"testing"

	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/mapping"
)

// BenchmarkPartitions inserts a block of 100,000 rows that touches so many partitions, each row another than the one
// before. docs/decisions/partitions.md is built on it.
func BenchmarkPartitions(b *testing.B) {
	p := benchPlan(b)
	r := p.NewRows()
	for i := range benchRows {
		if err := p.Append(r, []byte(benchEvent(i)), mapping.Lineage{Topic: "results", Offset: int64(i), Origin: "stream"}); err != nil {
			b.Fatal(err)
		}
	}
	for _, fsync := range []int{0, 1} {
		for _, partitions := range []int{1, 100, 150, 500, 1000, 5000} {
			b.Run(fmt.Sprintf("fsync=%d/partitions=%d", fsync, partitions), func(b *testing.B) {
				db := testenv.SharedClickHouse(b)
				db.Exec(b, benchTable+fmt.Sprintf("ReplacingMergeTree(version) PARTITION BY data_id %% %d ORDER BY (detect_id, data_id) SETTINGS fsync_after_insert = %d", partitions, fsync),
					"SYSTEM STOP MERGES results")
				c := clickhouse.Config{Addresses: []string{db.Addr()}, Database: db.Name, Settings: map[string]string{"max_partitions_per_insert_block": "0"}}
				in := newInserter(b, c, "results")
				for b.Loop() {
					if err := in.Insert(b.Context(), batch(r)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
