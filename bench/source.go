package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/chprojector/projector/internal/credentials"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/internal/testenv"
)

// source is a MariaDB that holds one campaign of the authoritative rows, in two databases that stand for two shards.
type source struct {
	server *testenv.MariaDB
	shards []mysql.Shard
	rows   int
	config string // the repository's, with these shards
}

const (
	campaign = 10001
	// plainRows is the query of config.yaml that the projector reads with.
	plainRows = "SELECT data_id AS dataId, detect_id AS detectId, user_id AS userId, project_id AS projectId, version, result, unit, 0 AS isDeleted, CONCAT('fitness-result-', data_id, '-v', version) AS eventId FROM fitness_result WHERE detect_id = ?"
)

// newSource starts the server and fills it.
func newSource(ctx context.Context, b binary, folder string, rows int) (_ *source, err error) {
	s := &source{rows: rows / 2 * 2}
	s.server, err = testenv.StartMariaDB(ctx, testenv.MariaDBConfig{
		Databases: []string{"s0", "s1"}, Args: []string{"--innodb-buffer-pool-size=512M", "--innodb-log-file-size=256M"},
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = closeAfter(err, s.server.Stop)
		}
	}()
	schema, err := os.ReadFile(filepath.Join(filepath.Dir(b.config), "deploy", "compose", "mysql.sql"))
	if err != nil {
		return nil, err
	}
	var entries []string
	for i := range 2 {
		name := fmt.Sprintf("s%d", i)
		statements := []string{"USE " + name}
		for statement := range strings.SplitSeq(string(schema), ";") {
			if strings.TrimSpace(statement) != "" {
				statements = append(statements, statement)
			}
		}
		statements = append(statements, fmt.Sprintf(
			"INSERT INTO fitness_result SELECT seq * 2 + %d, %d, seq %% 1000, 3, 1 + seq %% 5, (seq %% 10000) / 1000, 'm' FROM seq_1_to_%d", i, campaign, s.rows/2),
			"ANALYZE TABLE fitness_result")
		if err := s.server.Exec(ctx, statements...); err != nil {
			return nil, fmt.Errorf("fill shard %s: %w", name, err)
		}
		dsn := s.server.DSN(name)
		s.shards = append(s.shards, mysql.Shard{Name: name, DSN: credentials.Secret{Value: dsn}})
		entries = append(entries, fmt.Sprintf("{name: %s, dsn: %q}", name, dsn))
	}
	text, err := os.ReadFile(b.config)
	if err != nil {
		return nil, err
	}
	const one = "[{name: s0, dsn_file: /run/secrets/s0}]"
	if !strings.Contains(string(text), one) || !strings.Contains(string(text), plainRows) {
		return nil, errors.New("config.yaml has changed: its shards or its query are not those that are measured here")
	}
	s.config = filepath.Join(folder, "backfill.yaml")
	return s, os.WriteFile(s.config, []byte(strings.Replace(string(text), one, "["+strings.Join(entries, ", ")+"]", 1)), 0o600)
}

// read reads every row of every shard, one shard after another, and does nothing with it: what nobody who reads with
// this driver can be faster than. chunk is 0 for one result, else rows are read by key with LIMIT.
func (s *source) read(ctx context.Context, chunk int) error {
	total := 0
	for _, shard := range s.shards {
		db, err := shard.Open(1)
		if err != nil {
			return err
		}
		n, err := readShard(ctx, db, chunk)
		if err := errors.Join(err, db.Close()); err != nil {
			return err
		}
		total += n
	}
	if total != s.rows {
		return fmt.Errorf("%d rows were read, and there are %d", total, s.rows)
	}
	return nil
}

func readShard(ctx context.Context, db *sql.DB, chunk int) (total int, err error) {
	if chunk == 0 {
		n, _, err := readResult(ctx, db, plainRows, campaign)
		return n, err
	}
	last := uint64(0)
	for {
		n, key, err := readResult(ctx, db, fmt.Sprintf("SELECT * FROM (%s) q WHERE dataId > ? ORDER BY dataId LIMIT %d", plainRows, chunk), campaign, last)
		if total += n; err != nil || n < chunk {
			return total, err
		}
		last = key
	}
}

func readResult(ctx context.Context, db *sql.DB, query string, args ...any) (n int, last uint64, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	values := make([]sql.RawBytes, 8)
	dest := []any{&last}
	for i := range values {
		dest = append(dest, &values[i])
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return n, last, err
		}
		n++
	}
	return n, last, rows.Err()
}
