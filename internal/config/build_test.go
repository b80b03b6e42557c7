package config

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/projector"
)

// TestEngineTakesWhatLoadAccepts holds that no combination of values passes the
// checks here and is refused by the engine or by the Kafka client later.
func TestEngineTakesWhatLoadAccepts(t *testing.T) {
	base := load(t, Input{Path: "../../config.yaml"})
	plan, err := base.Projections[0].Plan()
	if err != nil {
		t.Fatal(err)
	}
	deps := projector.Deps{ // New calls none of them
		NewInserter: func(projector.Projection) (projector.Inserter, error) { return nil, nil },
		DeadLetters: (*deadletter.Parker)(nil),
		Records:     (*kafka.Records)(nil),
	}
	rapid.Check(t, func(t *rapid.T) {
		insert := rapid.IntRange(10, 1000).Draw(t, "insert") // times 100 ms
		seconds := func(key string, least, most int) string {
			d := time.Duration(rapid.IntRange(least, most).Draw(t, key)) * 100 * time.Millisecond
			return key + "=" + Duration(d).String()
		}
		in := Input{Path: "../../config.yaml", Set: []string{
			seconds("clickhouse.insert_timeout", insert, insert), seconds("kafka.session_timeout", 10, 3000), seconds("batch.delay", 1, 600),
			seconds("kafka.rebalance_timeout", insert+100, insert+1000), seconds("drain_timeout", insert+1, insert+500),
			fmt.Sprintf("batch.rows=%d", rapid.IntRange(1, 1_000_000).Draw(t, "rows")),
			fmt.Sprintf("dead_letter.stop_ratio=%g", rapid.Float64Range(0, 1).Draw(t, "ratio")),
		}}
		cfg, err := Load(in)
		if err != nil {
			t.Fatalf("%v: the least and the most of each range are valid: %v", in.Set, err)
		}
		e := cfg.Engine()
		deps.Registerer = prometheus.NewRegistry()
		if _, err := projector.New(e, []projector.Projection{cfg.Projection(&cfg.Projections[0], plan, 1)}, deps); err != nil {
			t.Fatalf("%v: %v", in.Set, err)
		}
		if err := kgo.ValidateOpts(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.SessionTimeout(e.SessionTimeout),
			kgo.RebalanceTimeout(e.RebalanceTimeout), kgo.HeartbeatInterval(e.HeartbeatInterval)); err != nil {
			t.Fatalf("%v: %v", in.Set, err)
		}
	})
}

func TestBuild(t *testing.T) {
	cfg := load(t, Input{Path: "testdata/full.yaml"})
	p := &cfg.Projections[0]

	k := cfg.KafkaClient()
	want := kafka.SASL{Mechanism: "scram-sha-512", Username: "projector"}
	want.Password.File = "/run/secrets/kafka"
	if k.SASL != want || k.ClientID != "reports-1" || !k.TLS.Enabled || k.TLS.ServerName != "kafka" {
		t.Errorf("Kafka client: %+v", k)
	}
	ch := cfg.ClickHouseClient()
	if ch.Database != "Reporting" || ch.Password.Value != "geheim: #1" || ch.InsertTimeout != 45*time.Second || ch.Compression != "zstd" ||
		ch.Classes[395] != projector.Fatal || ch.Classes[407] != projector.Rejected || ch.Settings["insert_quorum"] != "2" {
		t.Errorf("ClickHouse client: %+v", ch)
	}
	if cfg.Control().Database != "" {
		t.Error("the control connection needs a database that may not exist")
	}
	if got := cfg.Group(p); got != "reports.fitness_results.g4294967295" {
		t.Errorf("group %s", got)
	}
	if got := cfg.Letters().Suffix; got != ".refused" {
		t.Errorf("suffix %s", got)
	}
	plan, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Projection(p, plan, 3); got.Start != projector.StartLatest || got.Lanes != 3 || got.Name != "fitness_results" {
		t.Errorf("projection: %+v", got)
	}
	table := cfg.Table(p)
	if diff := cmp.Diff(map[string]string{"fsync_after_insert": "1"}, table.Settings); diff != "" || table.Cluster != "main" ||
		table.Physical() != "fitness_results_g4294967295" || len(table.Columns) != len(p.Columns) || len(table.Views) != 1 || table.Deleted != "is_deleted" {
		t.Errorf("table: %+v\n%s", table, diff)
	}
	e := cfg.Engine()
	if e.RebalanceTimeout != 2*time.Minute || e.RevokeBudget != 45*time.Second || e.DrainTimeout != 50*time.Second || e.Batch.Bytes != 3<<19 {
		t.Errorf("engine: %+v", e)
	}
}
