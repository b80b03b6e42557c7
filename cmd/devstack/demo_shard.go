package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // as an application would

	"github.com/chprojector/projector/internal/fitness"
	"github.com/chprojector/projector/internal/outbox"
)

// demoShard is the name of the shard in config.yaml, and here of its database.
const demoShard = "s0"

// shard is the application's database, with a relay on it.
type shard struct {
	dsn   string
	db    *sql.DB
	relay *process
	dir   string // of the relay's configuration
}

const demoResults = `CREATE TABLE fitness_result (
  data_id    BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  detect_id  BIGINT UNSIGNED NOT NULL,
  user_id    BIGINT UNSIGNED NOT NULL,
  project_id INT UNSIGNED NOT NULL,
  version    BIGINT UNSIGNED NOT NULL,
  result     DECIMAL(18, 3) NOT NULL,
  unit       VARCHAR(16) NOT NULL,
  KEY (detect_id)
) ENGINE=InnoDB`

const demoDeletions = `CREATE TABLE fitness_result_deletion (
  data_id   BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  detect_id BIGINT UNSIGNED NOT NULL,
  version   BIGINT UNSIGNED NOT NULL,
  KEY (detect_id)
) ENGINE=InnoDB`

// startShard creates the application's tables and starts a relay.
func (d *demo) startShard(ctx context.Context) (_ *shard, err error) {
	s := &shard{dsn: d.stack.MariaDB.DSN}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.db, err = sql.Open("mysql", s.dsn); err != nil {
		return nil, err
	}
	for _, table := range []string{demoResults, demoDeletions} { // the outbox is there
		if _, err := s.db.ExecContext(ctx, table); err != nil {
			return nil, fmt.Errorf("create the application's tables: %w", err)
		}
	}
	config, err := s.config(d.projector.config)
	if err != nil {
		return nil, err
	}
	if s.relay, err = newProcess(d.projector.binary, config, d.stack); err != nil {
		return nil, err
	}
	return s, s.relay.start(ctx, "relay")
}

// config writes the configuration with this shard's address: a list cannot be set by environment variables.
func (s *shard) config(original string) (string, error) {
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	if s.dir, err = os.MkdirTemp("", "projector-demo-"); err != nil {
		return "", err
	}
	const secret = "dsn_file: /run/secrets/" + demoShard
	if !strings.Contains(string(text), secret) {
		return "", fmt.Errorf("%s does not say %q, which the demo replaces by its own shard", original, secret)
	}
	file := filepath.Join(s.dir, "config.yaml")
	dsn := filepath.Join(s.dir, demoShard+".dsn")
	return file, errors.Join(
		os.WriteFile(dsn, []byte(s.dsn+"\n"), 0o600),
		os.WriteFile(file, []byte(strings.ReplaceAll(string(text), secret, "dsn_file: "+dsn)), 0o644),
	)
}

// stop ends the relay, if it still runs, and removes the configuration.
func (s *shard) stop() (err error) {
	if s.relay != nil && s.relay.running != nil {
		err = s.relay.running.Stop()
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// change is what the application does: the result and its event in one transaction. It returns when Kafka has the event.
func (s *shard) change(ctx context.Context, step fitness.Step) error {
	var e struct {
		EventID                             string
		DataID, DetectID, UserID, ProjectID uint64
		Version                             uint64
		Result                              json.Number
		Unit                                string
	}
	if err := json.Unmarshal(step.Value, &e); err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after the commit it does nothing
	if e.Version == 1 {
		_, err = tx.ExecContext(ctx, "INSERT INTO fitness_result VALUES (?, ?, ?, ?, 1, ?, ?)", e.DataID, e.DetectID, e.UserID, e.ProjectID, e.Result.String(), e.Unit)
	} else {
		_, err = tx.ExecContext(ctx, "UPDATE fitness_result SET result = ?, version = version + 1 WHERE data_id = ?", e.Result.String(), e.DataID)
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, "INSERT INTO outbox (event_id, aggregate_type, aggregate_id, version, payload) SELECT ?, 'fitness_result', data_id, version, ? FROM fitness_result WHERE data_id = ?",
			e.EventID, string(step.Value), e.DataID)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return fmt.Errorf("change the result: %w", err)
	}
	return s.sent(ctx, e.EventID)
}

// sent waits until the relay has published an event.
func (s *shard) sent(ctx context.Context, event string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var state, why string
		err := s.db.QueryRowContext(ctx, "SELECT state, COALESCE(last_error, '') FROM outbox WHERE event_id = ?", event).Scan(&state, &why)
		if err != nil || state == outbox.Sent {
			return err
		}
		if err := s.relay.running.Running(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the relay has not published %s, which is %s (%s); the end of its log:\n%s", event, state, why, s.relay.running.LogTail())
		}
	}
}

// show prints what the outbox keeps of the story.
func (s *shard) show(ctx context.Context, d *demo) error {
	rows, err := s.db.QueryContext(ctx, "SELECT event_id, state, sent_partition, sent_offset FROM outbox ORDER BY id")
	if err != nil {
		return err
	}
	defer rows.Close()
	d.say("\nThe outbox in MariaDB, committed together with the results:")
	for rows.Next() {
		var event, state string
		var partition, offset int
		if err := rows.Scan(&event, &state, &partition, &offset); err != nil {
			return err
		}
		d.say("  %s  %s to %s, partition %d, offset %d", event, state, demoTopic, partition, offset)
	}
	return rows.Err()
}

func (s *shard) port() string {
	_, after, _ := strings.Cut(s.dsn, "tcp(")
	address, _, _ := strings.Cut(after, ")")
	_, port, _ := net.SplitHostPort(address)
	return port
}
