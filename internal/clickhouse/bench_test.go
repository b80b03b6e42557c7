package clickhouse_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"
	driver "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/shopspring/decimal"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/mapping"
)

const benchRows = 100_000

// The table of the repository's config.yaml.
const benchTable = `CREATE TABLE results (
	data_id UInt64, detect_id UInt64, user_id UInt64, project_id UInt32, version UInt64, result Decimal(18, 3),
	unit LowCardinality(String), is_deleted Bool, event_id String,
	_topic LowCardinality(String), _partition Int32, _offset Int64, _ingested_at DateTime64(3, 'UTC') DEFAULT now64(3),
	_origin LowCardinality(String), _generation UInt32, CONSTRAINT generation_fence CHECK _generation >= 1
) ENGINE = `

var benchEngines = map[string]string{
	"table": "ReplacingMergeTree(version) PARTITION BY detect_id % 8 ORDER BY (detect_id, data_id)",
	"null":  "Null", // the client and the protocol alone
}

func benchEvent(i int) string {
	return fmt.Sprintf(`{"data_id":%d,"detect_id":%d,"user_id":%d,"project_id":%d,"version":%d,"result":%d.%03d,"unit":%q,"is_deleted":false,"event_id":"0198c1a2-7b0e-7cc3-98c4-%012x"}`,
		i, i%1000, i*7, i%12, 1759223412123+i, i%100, i%1000, []string{"s", "m", "kg"}[i%3], i)
}

func benchPlan(b *testing.B) *mapping.Plan {
	b.Helper()
	spec := mapping.Spec{Identity: []string{"data_id"}, Version: "version", Generation: 1}
	for _, c := range [][2]string{
		{"data_id", "UInt64"},
		{"detect_id", "UInt64"},
		{"user_id", "UInt64"},
		{"project_id", "UInt32"},
		{"version", "UInt64"},
		{"result", "Decimal(18, 3)"},
		{"unit", "LowCardinality(String)"},
		{"is_deleted", "Bool"},
		{"event_id", "String"},
	} {
		t, err := chschema.ParseType(c[1])
		if err != nil {
			b.Fatal(err)
		}
		spec.Columns = append(spec.Columns, mapping.Column{Name: c[0], From: c[0], Type: t})
	}
	p, err := mapping.Compile(spec)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// BenchmarkInsert sends blocks of 100,000 rows to a real server: as the inserter
// does, with ch-go's own columns, and with clickhouse-go's typed slices. All
// three hold their rows before the clock runs; mapping is not part of it.
func BenchmarkInsert(b *testing.B) {
	for _, engine := range []string{"null", "table"} {
		for _, compression := range []string{"none", "lz4", "zstd"} {
			for _, c := range []struct {
				name  string
				setup func(*testing.B, *testenv.ClickHouseDatabase, string) func(context.Context) error
			}{
				{"inserter", benchInserter}, {"ch-go", benchColumns}, {"clickhouse-go", benchSlices},
			} {
				b.Run(engine+"/"+compression+"/"+c.name, func(b *testing.B) {
					db := testenv.SharedClickHouse(b)
					if _, err := db.Query(b.Context(), benchTable+benchEngines[engine]); err != nil {
						b.Fatal(err)
					}
					insert := c.setup(b, db, compression)
					if err := insert(b.Context()); err != nil { // connects
						b.Fatal(err)
					}
					b.ReportAllocs()
					before := cpu(b)
					for b.Loop() {
						if err := insert(b.Context()); err != nil {
							b.Fatal(err)
						}
					}
					rows := float64(b.N * benchRows)
					b.ReportMetric(rows/b.Elapsed().Seconds(), "rows/s")
					b.ReportMetric((cpu(b)-before).Seconds()/rows*1e6, "cpu-s/Mrow")
				})
			}
		}
	}
}

// cpu is what this process has used, the server's work not counted.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchInserter(b *testing.B, db *testenv.ClickHouseDatabase, compression string) func(context.Context) error {
	p := benchPlan(b)
	r := p.NewRows()
	for i := range benchRows {
		if err := p.Append(r, []byte(benchEvent(i)), mapping.Lineage{Topic: "results", Partition: int32(i % 4), Offset: int64(i), Origin: "stream"}); err != nil {
			b.Fatal(err)
		}
	}
	in := newInserter(b, clickhouse.Config{Addresses: []string{db.Addr()}, Database: db.Name, Compression: compression}, "results")
	return func(ctx context.Context) error { return in.Insert(ctx, batch(r)) }
}

func benchColumns(b *testing.B, db *testenv.ClickHouseDatabase, compression string) func(context.Context) error {
	client, err := ch.Dial(b.Context(), ch.Options{
		Address: db.Addr(), Database: db.Name,
		Compression: map[string]ch.Compression{"none": ch.CompressionDisabled, "lz4": ch.CompressionLZ4, "zstd": ch.CompressionZSTD}[compression],
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	var (
		dataID, detectID, userID, version proto.ColUInt64
		projectID, generation             proto.ColUInt32
		partition                         proto.ColInt32
		offset                            proto.ColInt64
		result                            proto.ColDecimal64
		isDeleted                         proto.ColBool
		eventID                           proto.ColStr
		unit                              = new(proto.ColStr).LowCardinality()
		topic, origin                     = new(proto.ColStr).LowCardinality(), new(proto.ColStr).LowCardinality()
	)
	for i := range benchRows {
		dataID.Append(uint64(i))
		detectID.Append(uint64(i % 1000))
		userID.Append(uint64(i * 7))
		projectID.Append(uint32(i % 12))
		version.Append(uint64(1759223412123 + i))
		result.Append(proto.Decimal64(i%100*1000 + i%1000))
		unit.Append([]string{"s", "m", "kg"}[i%3])
		isDeleted.Append(false)
		eventID.Append(fmt.Sprintf("0198c1a2-7b0e-7cc3-98c4-%012x", i))
		topic.Append("results")
		partition.Append(int32(i % 4))
		offset.Append(int64(i))
		origin.Append("stream")
		generation.Append(1)
	}
	input := proto.Input{
		{Name: "data_id", Data: dataID},
		{Name: "detect_id", Data: detectID},
		{Name: "user_id", Data: userID},
		{Name: "project_id", Data: projectID},
		{Name: "version", Data: version},
		{Name: "result", Data: proto.Alias(&result, "Decimal(18, 3)")},
		{Name: "unit", Data: unit},
		{Name: "is_deleted", Data: isDeleted},
		{Name: "event_id", Data: eventID},
		{Name: "_topic", Data: topic},
		{Name: "_partition", Data: partition},
		{Name: "_offset", Data: offset},
		{Name: "_origin", Data: origin},
		{Name: "_generation", Data: generation},
	}
	return func(ctx context.Context) error {
		return client.Do(ctx, ch.Query{Body: input.Into("results"), Input: input, Settings: []ch.Setting{
			ch.SettingInt("async_insert", 0), ch.SettingInt("optimize_on_insert", 0),
		}})
	}
}

func benchSlices(b *testing.B, db *testenv.ClickHouseDatabase, compression string) func(context.Context) error {
	conn, err := driver.Open(&driver.Options{
		Addr: []string{db.Addr()}, Auth: driver.Auth{Database: db.Name},
		Settings: driver.Settings{"async_insert": 0, "optimize_on_insert": 0},
		Compression: &driver.Compression{Method: map[string]driver.CompressionMethod{
			"none": driver.CompressionNone, "lz4": driver.CompressionLZ4, "zstd": driver.CompressionZSTD,
		}[compression]},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	var (
		dataID, detectID, userID, version = make([]uint64, benchRows), make([]uint64, benchRows), make([]uint64, benchRows), make([]uint64, benchRows)
		projectID, generation             = make([]uint32, benchRows), make([]uint32, benchRows)
		partition                         = make([]int32, benchRows)
		offset                            = make([]int64, benchRows)
		result                            = make([]decimal.Decimal, benchRows)
		isDeleted                         = make([]bool, benchRows)
		eventID, unit, topic, origin      = make([]string, benchRows), make([]string, benchRows), make([]string, benchRows), make([]string, benchRows)
	)
	for i := range benchRows {
		dataID[i], detectID[i], userID[i], version[i] = uint64(i), uint64(i%1000), uint64(i*7), uint64(1759223412123+i)
		projectID[i], generation[i], partition[i], offset[i] = uint32(i%12), 1, int32(i%4), int64(i)
		result[i] = decimal.New(int64(i%100*1000+i%1000), -3)
		eventID[i], unit[i], topic[i], origin[i] = fmt.Sprintf("0198c1a2-7b0e-7cc3-98c4-%012x", i), []string{"s", "m", "kg"}[i%3], "results", "stream"
	}
	return func(ctx context.Context) error {
		batch, err := conn.PrepareBatch(ctx, "INSERT INTO results (data_id, detect_id, user_id, project_id, version, result, unit, is_deleted, event_id, _topic, _partition, _offset, _origin, _generation)")
		if err != nil {
			return err
		}
		for i, column := range []any{
			dataID, detectID, userID, projectID, version, result, unit, isDeleted, eventID, topic, partition, offset, origin, generation,
		} {
			if err := batch.Column(i).Append(column); err != nil {
				return err
			}
		}
		return batch.Send()
	}
}
