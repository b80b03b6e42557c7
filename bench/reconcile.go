package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // fills the shards

	"github.com/chprojector/projector/internal/testenv"
)

// weighing is one comparison of a campaign that is equal on both sides.
type weighing struct {
	Level      string  `json:"level"`
	Round      int     `json:"round"`
	Rows       int     `json:"rows"`
	Seconds    float64 `json:"seconds"` // of the whole process
	Projector  int64   `json:"projector_peak_bytes"`
	MariaDB    int64   `json:"mariadb_peak_bytes"` // greatest resident memory during the comparison
	ClickHouse int64   `json:"clickhouse_peak_bytes"`
}

// reconciles compares a campaign on two shards of one MariaDB server, level by level.
func reconciles(ctx context.Context, b *bench) (_ []section, err error) {
	server, err := testenv.StartMariaDB(ctx, testenv.MariaDBConfig{Databases: []string{"s0", "s1"}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	r, err := b.prepare(ctx, &stage{brokers: []string{"127.0.0.1:1"}}) // two equal sides: nobody is asked how far the projection is
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.drop(r)) }()
	if err := b.fillBoth(ctx, server, r); err != nil {
		return nil, err
	}
	config, err := b.sourceConfig(server)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(config)
	sec := section{Title: fmt.Sprintf("compare a campaign of %d equal records, two shards on one MariaDB server", b.events)}
	for round := range b.repeat(3) {
		for _, level := range []string{"counts", "versions", "fields"} {
			w, err := b.weigh(ctx, server, r, config, level)
			if err != nil {
				return nil, err
			}
			w.Round = round
			b.say("round %d  %-9s %.1f s", round+1, level, w.Seconds)
			sec.Weighings = append(sec.Weighings, w)
		}
	}
	return []section{sec}, nil
}

// fillBoth writes the same records to the shards and to the table.
func (b *bench) fillBoth(ctx context.Context, server *testenv.MariaDB, r *run) error {
	for shard := range 2 {
		db, err := sql.Open("mysql", server.DSN(fmt.Sprintf("s%d", shard)))
		if err != nil {
			return err
		}
		defer db.Close()
		for _, statement := range []string{
			"CREATE TABLE fitness_result (data_id BIGINT UNSIGNED PRIMARY KEY, detect_id BIGINT UNSIGNED NOT NULL, user_id BIGINT UNSIGNED NOT NULL, " +
				"project_id INT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL, result DECIMAL(18,3) NOT NULL, unit VARCHAR(16) NOT NULL, KEY (detect_id)) CHARACTER SET utf8mb4",
			"CREATE TABLE fitness_result_deletion (data_id BIGINT UNSIGNED PRIMARY KEY, detect_id BIGINT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL, KEY (detect_id))",
			fmt.Sprintf("INSERT INTO fitness_result SELECT seq, 10001, seq*7, seq%%8, 3, (seq%%100000)/8, 'm' FROM seq_%d_to_%d_step_2", 2-shard, b.events),
		} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%.60s: %w", statement, err)
			}
		}
	}
	return execute(ctx, r.server, fmt.Sprintf("INSERT INTO %s.fitness_results_g1 (data_id, detect_id, user_id, project_id, version, result, unit, _generation) "+
		"SELECT number+1, 10001, (number+1)*7, (number+1)%%8, 3, toDecimal64((number+1)%%100000, 3)/8, 'm', 1 FROM numbers(%d)", r.database, b.events))
}

// sourceConfig is the repository's configuration with the two shards.
func (b *bench) sourceConfig(server *testenv.MariaDB) (string, error) {
	text, err := os.ReadFile(b.binary.config)
	if err != nil {
		return "", err
	}
	const one = "shards: [{name: s0, dsn_file: /run/secrets/s0}]"
	two := fmt.Sprintf("shards: [{name: s0, dsn: %q}, {name: s1, dsn: %q}]", server.DSN("s0"), server.DSN("s1"))
	if !strings.Contains(string(text), one) {
		return "", fmt.Errorf("%s: no %q", b.binary.config, one)
	}
	path := filepath.Join(b.out, "reconcile.yaml")
	return path, os.WriteFile(path, []byte(strings.Replace(string(text), one, two, 1)), 0o600)
}

// weigh runs the command once.
func (b *bench) weigh(ctx context.Context, server *testenv.MariaDB, r *run, config, level string) (weighing, error) {
	w := weighing{Level: level, Rows: b.events}
	pids := []int{server.PID(), b.clickhouse.PID()}
	for _, pid := range pids {
		if err := resetPeak(pid); err != nil {
			return w, err
		}
	}
	cmd := exec.CommandContext(ctx, b.binary.path, "--config", config, "--log-level", "error", "reconcile", "--campaign", "10001", "--level", level, "--no-record")
	cmd.Env = append(cmd.Environ(), "PROJECTOR_CLICKHOUSE__ADDRESSES="+r.server.native, "PROJECTOR_CLICKHOUSE__DATABASE="+r.database)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return w, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				return w, fmt.Errorf("projector reconcile --level %s: %w", level, err)
			}
			running = false
		case <-tick.C:
			if bytes, err := peakMemory(cmd.Process.Pid); err == nil { // else it has just ended
				w.Projector = max(w.Projector, bytes)
			}
		}
	}
	w.Seconds = time.Since(began).Seconds()
	var err error
	if w.MariaDB, err = peakMemory(pids[0]); err != nil {
		return w, err
	}
	w.ClickHouse, err = peakMemory(pids[1])
	return w, err
}

// resetPeak makes the kernel forget the highest resident memory of a process so far.
func resetPeak(pid int) error {
	return os.WriteFile("/proc/"+strconv.Itoa(pid)+"/clear_refs", []byte("5"), 0)
}

func (s section) weighings(w io.Writer) {
	var rows [][]string
	for _, level := range []string{"counts", "versions", "fields"} {
		var seconds, projector, mariadb, clickhouse sample
		for _, x := range s.Weighings {
			if x.Level == level {
				seconds, projector = append(seconds, x.Seconds), append(projector, float64(x.Projector))
				mariadb, clickhouse = append(mariadb, float64(x.MariaDB)), append(clickhouse, float64(x.ClickHouse))
			}
		}
		rows = append(rows, []string{
			level, seconds.text("%.1f", 1), projector.text("%.0f", 1.0/(1<<20)), mariadb.text("%.0f", 1.0/(1<<20)), clickhouse.text("%.0f", 1.0/(1<<20)),
		})
	}
	writeTable(w, []string{"level", "seconds", "projector, peak MiB", "MariaDB, peak MiB", "ClickHouse, peak MiB"}, rows)
}
