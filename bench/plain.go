package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"

	_ "github.com/go-sql-driver/mysql" // the driver that relays use
	"github.com/twmb/franz-go/pkg/kgo"
)

// runPlain is the loop that the relay is compared with: rows in the order of their ids, an idempotent producer that waits
// for all in-sync replicas, a cursor that is saved after each batch. It does without claims and marks, so there can be one
// of it, it skips what commits late, and one event that the broker refuses ends it.
func runPlain(ctx context.Context, j job, _ io.Writer) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(j.Brokers...), kgo.DefaultProduceTopic(j.Topic))
	if err != nil {
		return fmt.Errorf("plain loop: open the Kafka client: %w", err)
	}
	defer client.Close()
	db, err := sql.Open("mysql", j.Database)
	if err != nil {
		return fmt.Errorf("plain loop: %w", err)
	}
	defer db.Close()
	last := uint64(0)
	for done := 0; done < j.Events; {
		records, id, err := plainBatch(ctx, db, last)
		if err != nil {
			return fmt.Errorf("plain loop: read behind %d: %w", last, err)
		}
		if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return fmt.Errorf("plain loop: produce %d events: %w", len(records), err)
		}
		if _, err := db.ExecContext(ctx, "UPDATE position SET id = ?", id); err != nil {
			return fmt.Errorf("plain loop: save the position %d: %w", id, err)
		}
		done, last = done+len(records), id
	}
	return nil
}

func plainBatch(ctx context.Context, db *sql.DB, last uint64) (records []*kgo.Record, id uint64, err error) {
	rows, err := db.QueryContext(ctx, fmt.Sprintf("SELECT id, aggregate_id, payload FROM outbox WHERE id > %d ORDER BY id LIMIT 500", last))
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	id = last
	for rows.Next() {
		var r kgo.Record
		if err := rows.Scan(&id, &r.Key, &r.Value); err != nil {
			return nil, 0, err
		}
		records = append(records, &r)
	}
	return records, id, rows.Err()
}
