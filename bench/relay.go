package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chprojector/projector/internal/outbox"
	"github.com/chprojector/projector/internal/testenv"
)

// relayed is what one run over the outbox measured.
type relayed struct {
	Contestant string  `json:"contestant"`
	Round      int     `json:"round"`
	Events     int     `json:"events"`
	Rate       float64 `json:"rate"`       // events a second, from the start of the process to the last mark
	CPU        float64 `json:"cpu"`        // processor seconds of the contestant's processes a million events
	ServerCPU  float64 `json:"server_cpu"` // the same of MariaDB
	InsertP50  float64 `json:"insert_p50"` // ms of an application's transaction that inserts one event
	InsertP99  float64 `json:"insert_p99"`
	Others     float64 `json:"others"` // share of the machine's processor time that went to other programs meanwhile
}

// relayBench is a shard with an outbox, and a real broker.
type relayBench struct {
	*bench
	stage  *stage
	server *testenv.MariaDB
	db     *sql.DB
	config string // file
}

// relays races relays against a plain loop over the same outbox, then measures what an application's inserts cost
// beside them.
func relays(ctx context.Context, b *bench) (_ []section, err error) {
	s, err := newStage(ctx, stageConfig{"kafka", 4, 170, 0})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	server, err := testenv.StartMariaDB(ctx, testenv.MariaDBConfig{
		Databases: []string{"s0"}, Args: []string{"--innodb-buffer-pool-size=1G", "--innodb-log-file-size=256M"},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	r := &relayBench{bench: b, stage: s, server: server}
	if r.db, err = sql.Open("mysql", server.DSN("s0")); err != nil {
		return nil, err
	}
	defer r.db.Close()
	r.db.SetMaxIdleConns(8)
	if err := r.writeConfig(); err != nil {
		return nil, err
	}
	drains := section{Title: fmt.Sprintf("outbox to Kafka: MariaDB, Apache Kafka, 4 partitions, %d events of 170 bytes waiting", b.events/20)}
	inserts := section{Title: "an application's insert, 500 a second by 4 writers, beside"}
	for round := range b.repeat(3) {
		for _, c := range r.contestants() {
			if !b.match.MatchString(c.name) {
				continue
			}
			res, err := r.drain(ctx, c, b.events/20)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			res.Round = round
			b.say("round %d  %-20s %7.0f events/s; CPU s/million: own %.2f, MariaDB %.2f; others %.0f %%", round+1, c.name, res.Rate, res.CPU, res.ServerCPU, 100*res.Others)
			drains.Relays = append(drains.Relays, res)
		}
		for _, c := range append([]relayContestant{{name: "no relay"}}, r.contestants()[1:]...) {
			res, err := r.latency(ctx, c, 6*time.Second)
			if err != nil {
				return nil, fmt.Errorf("inserts beside %s: %w", c.name, err)
			}
			res.Round = round
			b.say("round %d  inserts beside %-20s p50 %.2f ms, p99 %.2f ms", round+1, c.name, res.InsertP50, res.InsertP99)
			inserts.Relays = append(inserts.Relays, res)
		}
	}
	return []section{drains, inserts}, nil
}

// relayContestant is a way to publish an outbox.
type relayContestant struct {
	name      string
	processes int // of `projector relay`; 0: the plain loop
	strict    bool
}

func (*relayBench) contestants() []relayContestant {
	return []relayContestant{
		{name: "plain loop"}, {name: "relay", processes: 1}, {name: "2 relays", processes: 2}, {name: "relay, strict order", processes: 1, strict: true},
	}
}

// writeConfig is the repository's config.yaml with this shard.
func (r *relayBench) writeConfig() error {
	text, err := os.ReadFile(r.binary.config)
	if err != nil {
		return err
	}
	dsn := filepath.Join(r.out, "s0.dsn")
	r.config = filepath.Join(r.out, "relay.yaml")
	return errors.Join(
		os.WriteFile(dsn, []byte(r.server.DSN("s0")), 0o600),
		os.WriteFile(r.config, []byte(strings.ReplaceAll(string(text), "/run/secrets/s0", dsn)), 0o644),
	)
}

func (r *relayBench) exec(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := r.db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%.100s: %w", s, err)
		}
	}
	return nil
}

// empty makes a new outbox.
func (r *relayBench) empty(ctx context.Context) error {
	return r.exec(ctx, "DROP TABLE IF EXISTS outbox, position", outbox.DDL("outbox"), "CREATE TABLE position (id BIGINT UNSIGNED NOT NULL)", "INSERT INTO position VALUES (0)")
}

func (r *relayBench) start(ctx context.Context, c relayContestant, events int) (crew, error) {
	if c.processes == 0 {
		argv, err := childCommand("plain", job{Brokers: r.stage.brokers, Topic: topic, Events: events, Database: r.server.DSN("s0")})
		if err != nil {
			return nil, err
		}
		child, err := startChild(ctx, nil, argv...)
		return crew{child}, err
	}
	var all crew
	for range c.processes {
		child, err := startChild(ctx, []string{
			"PROJECTOR_KAFKA__BROKERS=" + strings.Join(r.stage.brokers, ","), "PROJECTOR_HTTP__ADDRESS=127.0.0.1:0",
			"PROJECTOR_LOG_LEVEL=warn", fmt.Sprintf("PROJECTOR_OUTBOX__STRICT_ORDER=%t", c.strict),
		}, r.binary.path, "--config", r.config, "relay")
		if err != nil {
			all.kill()
			return nil, err
		}
		all = append(all, child)
	}
	return all, nil
}

// drain measures how fast a full outbox is published.
func (r *relayBench) drain(ctx context.Context, c relayContestant, events int) (res relayed, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("takes longer than %s", patience))
	defer cancel()
	if err := errors.Join(r.empty(ctx), r.exec(ctx, fmt.Sprintf("INSERT INTO outbox (event_id, aggregate_type, aggregate_id, version, payload) SELECT CONCAT('e-', seq), 'fitness_result', seq, 1, REPEAT('x', 170) FROM seq_1_to_%d", events))); err != nil {
		return res, err
	}
	servers := []int{r.server.PID(), r.stage.pid, os.Getpid(), machinePID}
	before, err := cpuTimes(servers)
	if err != nil {
		return res, err
	}
	began := time.Now()
	at, err := r.start(ctx, c, events)
	if err != nil {
		return res, err
	}
	defer at.kill()
	if err := r.await(ctx, c, at); err != nil {
		return res, err
	}
	took := time.Since(began)
	after, err := cpuTimes(servers)
	if err != nil {
		return res, err
	}
	for _, child := range at {
		_ = child.cmd.Process.Signal(syscall.SIGTERM) // the plain loop has ended
	}
	cpu, err := at.finish(ctx)
	if err != nil {
		return res, err
	}
	for i := range after {
		after[i] -= before[i]
	}
	millions := float64(events) / 1e6
	others := max(0, after[3]-after[0]-after[1]-after[2]-cpu)
	return relayed{
		Contestant: c.name, Events: events, Rate: float64(events) / took.Seconds(), CPU: cpu.Seconds() / millions,
		ServerCPU: after[0].Seconds() / millions, Others: others.Seconds() / took.Seconds() / float64(runtime.NumCPU()),
	}, nil
}

// await returns when everything is published.
func (r *relayBench) await(ctx context.Context, c relayContestant, at crew) error {
	if c.processes == 0 {
		_, err := at.finish(ctx)
		return err
	}
	// Seldom: the question has to pass over all entries of the index that are marked as deleted and not yet purged.
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		var left bool
		err := r.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM outbox WHERE state = 'due') OR EXISTS (SELECT 1 FROM outbox WHERE state = 'claimed')").Scan(&left)
		if err := errors.Join(err, at.check()); err != nil || !left {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// latency measures an application's inserts while a contestant publishes them.
func (r *relayBench) latency(ctx context.Context, c relayContestant, length time.Duration) (res relayed, err error) {
	if err := r.empty(ctx); err != nil {
		return res, err
	}
	if c.processes > 0 {
		at, err := r.start(ctx, c, 0)
		if err != nil {
			return res, err
		}
		defer at.kill()
	}
	const writers, rate = 4, 500
	var group sync.WaitGroup
	times, errs := make([]sample, writers), make([]error, writers)
	warm := time.Now().Add(time.Second)
	for w := range writers {
		group.Go(func() {
			tick := time.NewTicker(time.Second * writers / rate)
			defer tick.Stop()
			for i := 0; time.Since(warm) < length && errs[w] == nil; i++ {
				<-tick.C
				began := time.Now()
				errs[w] = r.insert(ctx, w, i)
				if began.After(warm) {
					times[w] = append(times[w], time.Since(began).Seconds()*1000)
				}
			}
		})
	}
	group.Wait()
	var all sample
	for _, t := range times {
		all = append(all, t...)
	}
	return relayed{Contestant: c.name, Events: len(all), InsertP50: all.median(), InsertP99: all.quantile(0.99)}, errors.Join(errs...)
}

func (r *relayBench) insert(ctx context.Context, writer, i int) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	id := fmt.Sprintf("%d-%d-%x", writer, i, rand.Uint64())
	if _, err := tx.ExecContext(ctx, "INSERT INTO outbox (event_id, aggregate_type, aggregate_id, version, payload) VALUES (?, 'fitness_result', ?, 1, ?)", id, id, strings.Repeat("x", 170)); err != nil {
		return err
	}
	return tx.Commit()
}
