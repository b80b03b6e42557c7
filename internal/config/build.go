package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/backfill"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

// The methods here turn a checked configuration into what each part of the
// program takes. None of them fails: what could be wrong was found by Load.

// KafkaClient is what every client of the cluster has in common.
func (c *Config) KafkaClient() kafka.Config {
	k := c.Kafka
	return kafka.Config{
		Brokers:  k.Brokers,
		ClientID: k.ClientID,
		TLS:      k.TLS.client(),
		SASL:     kafka.SASL{Mechanism: k.SASL.Mechanism, Username: k.SASL.Username, Password: k.SASL.password(), Token: k.SASL.token()},
	}
}

// ClickHouseClient is how inserts and questions reach ClickHouse.
func (c *Config) ClickHouseClient() clickhouse.Config {
	ch := c.ClickHouse
	classes, _ := clickhouse.ParseClasses(ch.ErrorClasses)
	return clickhouse.Config{
		Addresses:     ch.Addresses,
		Database:      ch.Database,
		Username:      ch.Username,
		Password:      ch.password(),
		TLS:           ch.TLS.client(),
		DialTimeout:   ch.DialTimeout.Of(),
		InsertTimeout: ch.InsertTimeout.Of(),
		Compression:   ch.Compression,
		Settings:      ch.Settings,
		Classes:       classes,
	}
}

// Control is how statements and questions reach ClickHouse: without a database
// of the session, because the one of the tables may not exist yet.
func (c *Config) Control() clickhouse.Config {
	control := c.ClickHouseClient()
	control.Database = ""
	return control
}

// Shards are the authoritative servers, in the order of the file.
func (c *Config) Shards() []mysql.Shard {
	shards := make([]mysql.Shard, len(c.Source.Shards))
	for i, s := range c.Source.Shards {
		shards[i] = mysql.Shard{Name: s.Name, DSN: s.dsn()}
	}
	return shards
}

// Audit says where the record of operations is.
func (c *Config) Audit() audit.Config {
	return audit.Config{Database: c.ClickHouse.Database, Cluster: c.ClickHouse.Cluster}
}

// BackfillSource is what is read of the source for a projection, and for which
// table. The projection must have an entry under source.projections.
func (c *Config) BackfillSource(p *Projection) backfill.Config {
	s := c.Source.Projections[p.Name]
	return backfill.Config{
		Projection: p.Name, Spec: p.spec(), Table: c.Table(p),
		Rows: s.Rows, Deletions: s.Deletions, Campaigns: s.Campaigns, Shards: c.Shards(),
	}
}

// SourceDigest stands for all that decides what a backfill writes: the
// projection with its mapping, generation and table, the queries, and which
// shards there are. An operation does not go on under another digest.
func (c *Config) SourceDigest(p *Projection) string {
	s := c.Source.Projections[p.Name]
	projection := *p
	projection.Topics, projection.Views = nil, nil
	shards := make([]string, len(c.Source.Shards))
	for i, shard := range c.Source.Shards {
		shards[i] = shard.Name
	}
	text, err := json.Marshal([]any{projection, s.Rows, s.Deletions, shards, c.ClickHouse.Database})
	if err != nil {
		panic(err) // plain structs of texts and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// Letters says where dead letters go.
func (c *Config) Letters() deadletter.Config {
	return deadletter.Config{Suffix: c.DeadLetter.Suffix}
}

// Engine is how lanes work.
func (c *Config) Engine() projector.Config {
	e := projector.DefaultConfig()
	e.Batch = projector.Limits{Rows: c.Batch.Rows, Bytes: int(c.Batch.Bytes), Delay: c.Batch.Delay.Of()}
	e.InsertTimeout = c.ClickHouse.InsertTimeout.Of()
	e.DrainTimeout = c.DrainTimeout.Of()
	e.SessionTimeout = c.Kafka.SessionTimeout.Of()
	e.HeartbeatInterval = min(e.HeartbeatInterval, e.SessionTimeout/3)
	e.RebalanceTimeout = c.Kafka.RebalanceTimeout.Of()
	// A revoke waits for an insert under way to take its whole time, and leaves
	// the margin for the letters and the commit that follow it.
	e.RevokeBudget = min(max(e.RevokeBudget, e.InsertTimeout), e.RebalanceTimeout-margin.Of())
	e.CommitTimeout = min(e.CommitTimeout, margin.Of()/2)
	e.StuckAfter = max(e.StuckAfter, 2*e.InsertTimeout, 2*(e.RevokeBudget+e.CommitTimeout))
	e.StopRatio, e.StopRun = c.DeadLetter.StopRatio, c.DeadLetter.StopRun
	return e
}

// Projection is what the engine runs, with the plan compiled.
func (c *Config) Projection(p *Projection, plan *mapping.Plan, lanes int) projector.Projection {
	start := projector.StartEarliest
	if c.Kafka.Start == "latest" {
		start = projector.StartLatest
	}
	return projector.Projection{Name: p.Name, Topics: p.Topics, Group: c.Group(p), Plan: plan, Lanes: lanes, Start: start}
}

// Group is the consumer group of a projection's generation.
func (c *Config) Group(p *Projection) string {
	return fmt.Sprintf("%s.%s.g%d", c.Kafka.Group, p.Name, p.Generation)
}

// Plan compiles the mapping of a projection.
func (p *Projection) Plan() (*mapping.Plan, error) {
	plan, err := mapping.Compile(p.spec())
	if err != nil {
		return nil, fmt.Errorf("projection %s: %w", p.Name, err)
	}
	return plan, nil
}

func (p *Projection) spec() mapping.Spec {
	s := mapping.Spec{
		Identity:      p.Identity,
		Version:       p.Version,
		Deleted:       p.Deleted,
		SchemaVersion: mapping.SchemaVersion{From: p.SchemaVersion.From, Accept: p.SchemaVersion.Accept},
		IgnoreNull:    p.NullValue == "ignore",
		Strict:        p.Strict,
		Generation:    p.Generation,
	}
	for _, c := range p.Columns {
		t, _ := chschema.ParseType(c.Type)
		s.Columns = append(s.Columns, mapping.Column{
			Name: c.Name, From: c.From, Type: t, Default: c.Default, Zone: c.Zone, Unit: c.Unit, Round: c.Round,
		})
	}
	return s
}

// Table is the table and the views of a projection.
func (c *Config) Table(p *Projection) chschema.Table {
	t := chschema.Table{
		Database:    c.ClickHouse.Database,
		Name:        p.Table,
		Generation:  p.Generation,
		Identity:    p.Identity,
		OrderBy:     p.OrderBy,
		PartitionBy: p.PartitionBy,
		Version:     p.Version,
		Deleted:     p.Deleted,
		Campaign:    p.Campaign,
		Cluster:     c.ClickHouse.Cluster,
		Settings:    p.TableSettings,
	}
	for _, c := range p.spec().Columns {
		t.Columns = append(t.Columns, chschema.Column{Name: c.Name, Type: c.Type})
	}
	for _, v := range p.Views {
		t.Views = append(t.Views, chschema.View{Name: v.Name, Query: v.Query})
	}
	return t
}

// Contract compiles what equality means for a projection. An error says that
// there is nothing to compare by, or what is wrong with it.
func (c *Config) Contract(p *Projection) (*contract.Contract, error) {
	s, ok := c.Source.Projections[p.Name]
	if !ok {
		return nil, fmt.Errorf("source.projections.%s: missing; list its fields, by which the table is compared (docs/reconcile.md)", p.Name)
	}
	t := c.Table(p)
	spec := contract.Spec{
		Identity: p.Identity, Version: p.Version, Deleted: p.Deleted, Campaign: p.Campaign, OrderBy: p.OrderBy, Columns: t.Columns,
		Rows: s.Rows, Deletions: s.Deletions, SchemaVersion: p.SchemaVersion.From, Accept: p.SchemaVersion.Accept,
	}
	for _, f := range s.Fields {
		spec.Fields = append(spec.Fields, contract.Field{
			Column: f.Column, Source: f.Source, Deletion: f.Deletion, Event: f.Event, Class: contract.Class(f.Class),
			Scale: f.Scale, Precision: f.Precision, Zone: f.Zone, Unit: f.Unit, Default: f.Default,
		})
	}
	compiled, err := contract.Compile(spec)
	if err != nil {
		return nil, fmt.Errorf("source.projections.%s: %w", p.Name, err)
	}
	return compiled, nil
}
