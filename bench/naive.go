package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/shopspring/decimal"
	"github.com/twmb/franz-go/pkg/kgo"
)

// naiveEvent is the event as most programs would declare it. The number stays text on its way to a decimal: a float64
// would be faster and wrong.
type naiveEvent struct {
	EventID   string      `json:"eventId"`
	DataID    uint64      `json:"dataId"`
	DetectID  uint64      `json:"detectId"`
	UserID    uint64      `json:"userId"`
	ProjectID uint32      `json:"projectId"`
	Version   uint64      `json:"version"`
	Result    json.Number `json:"result"`
	Unit      string      `json:"unit"`
	IsDeleted bool        `json:"isDeleted"`
}

// runNaive is the consumer most people would write: encoding/json into a struct, row-wise Append of the usual driver,
// one goroutine, a commit after each batch. It is careful where that costs nothing: synchronous inserts of the same
// size as the projector's, and the commit comes last.
func runNaive(ctx context.Context, j job, _ io.Writer) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(j.Brokers...), kgo.ConsumeTopics(j.Topic), kgo.ConsumerGroup(j.Group),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err != nil {
		return fmt.Errorf("naive: open the Kafka client: %w", err)
	}
	defer client.Close()
	conn, err := clickhouse.Open(&clickhouse.Options{
		Addr:     []string{j.ClickHouse},
		Auth:     clickhouse.Auth{Database: j.Database},
		Settings: clickhouse.Settings{"async_insert": 0},
	})
	if err != nil {
		return fmt.Errorf("naive: connect to ClickHouse: %w", err)
	}
	defer func() { _ = conn.Close() }()
	insert := "INSERT INTO " + j.Table + " (data_id, detect_id, user_id, project_id, version, result, unit, is_deleted, " +
		"event_id, _topic, _partition, _offset, _origin, _generation)"
	for done := 0; done < j.Events; {
		batch, err := conn.PrepareBatch(ctx, insert)
		if err != nil {
			return fmt.Errorf("naive: prepare a batch: %w", err)
		}
		rows := 0
		for want := min(batchRows, j.Events-done); rows < want; {
			fetches := client.PollRecords(ctx, want-rows)
			if err := fetches.Err(); err != nil {
				return fmt.Errorf("naive: poll: %w", err)
			}
			for r := range fetches.RecordsAll() {
				if err := appendNaive(batch, r); err != nil {
					return err
				}
				rows++
			}
		}
		if err := batch.Send(); err != nil {
			return fmt.Errorf("naive: insert %d rows: %w", rows, err)
		}
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			return fmt.Errorf("naive: commit: %w", err)
		}
		done += rows
	}
	return nil
}

func appendNaive(batch driver.Batch, r *kgo.Record) error {
	var e naiveEvent
	if err := json.Unmarshal(r.Value, &e); err != nil {
		return fmt.Errorf("naive: decode offset %d: %w", r.Offset, err)
	}
	result, err := decimal.NewFromString(e.Result.String())
	if err != nil {
		return fmt.Errorf("naive: decode offset %d: %w", r.Offset, err)
	}
	err = batch.Append(e.DataID, e.DetectID, e.UserID, e.ProjectID, e.Version, result, e.Unit, e.IsDeleted, e.EventID,
		r.Topic, r.Partition, r.Offset, "stream", uint32(1))
	if err != nil {
		return fmt.Errorf("naive: append offset %d: %w", r.Offset, err)
	}
	return nil
}
