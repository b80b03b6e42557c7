package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// engine is ClickHouse's own Kafka table engine with a materialized view into the same table.
func engine(label, settings string) contestant {
	return contestant{name: label, start: func(ctx context.Context, r *run) (contest, error) {
		e := &engineRun{run: r}
		for _, statement := range []string{
			`CREATE TABLE {db}.queue (eventId String, dataId UInt64, detectId UInt64, userId UInt64, projectId UInt32,
				version UInt64, result Decimal(18, 3), unit LowCardinality(String), isDeleted Bool)
			ENGINE = Kafka SETTINGS kafka_broker_list = '` + strings.Join(r.stage.brokers, ",") + `',
				kafka_topic_list = '` + topic + `', kafka_group_name = '` + r.group + `', kafka_format = 'JSONEachRow',
				input_format_skip_unknown_fields = 1, ` + settings,
			`CREATE MATERIALIZED VIEW {db}.pump TO {db}.` + table + ` AS
			SELECT dataId AS data_id, detectId AS detect_id, userId AS user_id, projectId AS project_id, version, result, unit,
				isDeleted AS is_deleted, eventId AS event_id, _topic, toInt32(_partition) AS _partition,
				toInt64(_offset) AS _offset, 'stream' AS _origin, toUInt32(1) AS _generation
			FROM {db}.queue`,
		} {
			if err := execute(ctx, r.server, strings.ReplaceAll(statement, "{db}", r.database)); err != nil {
				return nil, fmt.Errorf("Kafka engine: %w", err)
			}
		}
		return e, nil
	}}
}

// engineSettings are two consumers with a thread each, which beat one consumer by a quarter and two that share a thread
// by half. Other flush intervals, blocks of 64 Ki rows and polls of 64 Ki messages lay within the spread of two rounds
// of the suite variants.
const engineSettings = "kafka_num_consumers = 2, kafka_thread_per_consumer = 1, kafka_flush_interval_ms = 1000"

type engineRun struct{ run *run }

func (e *engineRun) pids() []int  { return nil }
func (e *engineRun) check() error { return nil }

func (e *engineRun) finish(ctx context.Context) (time.Duration, error) {
	for _, name := range []string{"pump", "queue"} {
		if err := execute(ctx, e.run.server, "DROP TABLE IF EXISTS "+e.run.database+"."+name+" SYNC"); err != nil {
			return 0, fmt.Errorf("Kafka engine: %w", err)
		}
	}
	return 0, nil
}

func (e *engineRun) kill() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, _ = e.finish(ctx)
}
