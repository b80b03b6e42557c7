package projector

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/mapping"
)

// fitnessPlan is the plan of the contract's example: nine columns, a decimal, a low-cardinality text.
func fitnessPlan(tb testing.TB) *mapping.Plan {
	tb.Helper()
	var columns []mapping.Column
	for _, c := range [][3]string{
		{"data_id", "dataId", "UInt64"},
		{"detect_id", "detectId", "UInt64"},
		{"user_id", "userId", "UInt64"},
		{"project_id", "projectId", "UInt32"},
		{"version", "version", "UInt64"},
		{"result", "result", "Decimal(18, 3)"},
		{"unit", "unit", "LowCardinality(String)"},
		{"is_deleted", "isDeleted", "Bool"},
		{"event_id", "eventId", "String"},
	} {
		typ, err := chschema.ParseType(c[2])
		if err != nil {
			tb.Fatal(err)
		}
		columns = append(columns, mapping.Column{Name: c[0], From: c[1], Type: typ})
	}
	plan, err := mapping.Compile(mapping.Spec{
		Columns: columns, Identity: []string{"data_id"}, Version: "version", Deleted: "is_deleted",
		SchemaVersion: mapping.SchemaVersion{From: "schemaVersion", Accept: []int64{1}}, Generation: 1,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return plan
}

// fitnessEvent is an event of 170 bytes.
func fitnessEvent(n int) []byte {
	return fmt.Appendf(nil, `{"eventId":"fitness-result-%07d-v2","dataId":%d,"detectId":10001,"userId":4000%03d,"projectId":3,"version":2,"result":%d.31,"unit":"m","isDeleted":false,"schemaVersion":1}`, n, 900000+n, n%1000, n%10)
}

// cannedBatch is a record batch as a producer sends it.
func cannedBatch(b *testing.B, records int, codec kgo.CompressionCodec) []byte {
	b.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, testTopic))
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.Close()
	var batch []byte
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		batch = append(batch, r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records...)
		return nil, nil, false
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ProducerBatchCompression(codec), kgo.ManualFlushing(), kgo.DisableIdempotentWrite())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	for n := range records {
		client.Produce(b.Context(), &kgo.Record{Topic: testTopic, Value: fitnessEvent(n)}, nil)
	}
	if err := client.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	return batch
}

// BenchmarkLane runs a whole lane over an endless topic on a broker in the same process, into an inserter that throws
// rows away: everything between the socket and the insert. The broker copies one canned batch over and over; its
// part is in the figures, as is the client's.
func BenchmarkLane(b *testing.B) {
	for _, bench := range []struct {
		name  string
		codec kgo.CompressionCodec
	}{{"plain", kgo.NoCompression()}, {"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()}} {
		b.Run(bench.name, func(b *testing.B) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, testTopic),
				kfake.SyntheticFetch(kfake.SyntheticBatch{Batch: cannedBatch(b, 5000, bench.codec)}))
			if err != nil {
				b.Fatal(err)
			}
			defer cluster.Close()
			ctx, enough := context.WithCancel(b.Context())
			defer enough()
			var rows atomic.Int64
			discard := insertFunc(func(_ context.Context, batch Batch) error {
				if rows.Add(int64(batch.To-batch.From)) >= int64(b.N) {
					enough()
				}
				return nil
			})
			cfg := DefaultConfig()
			e, err := New(cfg, []Projection{{
				Name: "results", Topics: []string{testTopic}, Group: testGroup, Plan: fitnessPlan(b), Lanes: 1,
			}}, Deps{
				Kafka:       []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)},
				NewInserter: func(Projection) (Inserter, error) { return discard, nil },
				DeadLetters: nowhere{}, Records: nowhere{},
				Log: zerolog.Nop(), Registerer: prometheus.NewRegistry(),
			})
			if err != nil {
				b.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			spent := cpuTime(b)
			b.ResetTimer()
			if err := e.Run(ctx, b.Context()); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			spent = cpuTime(b) - spent
			runtime.ReadMemStats(&after)
			n := float64(rows.Load())
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/record")
			b.ReportMetric(float64(spent.Nanoseconds())/n, "cpu-ns/record")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/record")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "B/record")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestMappingAllocatesNothing: what the poll loop does with a record, apart from the client's own part, must not
// allocate. A few allocations per fetch are fine, one per record is not.
func TestMappingAllocatesNothing(t *testing.T) {
	const n = 2000
	cfg := DefaultConfig()
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	p := &Projection{Name: "results", Plan: fitnessPlan(t), Origin: "stream"}
	p.Append = p.appendEvent
	l := newLane(&cfg, p, &Deps{Clock: time.Now, Log: zerolog.Nop()}, m, 0)
	l.positions = newPositions(l.metrics.recordsOf, p.below)
	fetched := &kgo.FetchPartition{Partition: 3, HighWatermark: n}
	for i := range n {
		fetched.Records = append(fetched.Records, &kgo.Record{Topic: testTopic, Partition: 3, Offset: int64(i), Value: fitnessEvent(i)})
	}
	l.open = newCut(p.Plan)
	allocs := testing.AllocsPerRun(20, func() {
		l.open.reset()
		l.cuts++
		l.open.begin(l.cuts, time.Time{})
		l.positions.at(testTopic, 3).next = 0
		if err := l.mapRecords(testTopic, fetched); err != nil {
			t.Fatal(err)
		}
	})
	if l.open.rows.Len() != n || len(l.open.letters) != 0 {
		t.Fatalf("%d rows and %d letters of %d records", l.open.rows.Len(), len(l.open.letters), n)
	}
	if allocs > 5 {
		t.Errorf("%v allocations for %d records", allocs, n)
	}
}

// cpuTime is what the process has used of all processors, broker included.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
