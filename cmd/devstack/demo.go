package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chprojector/projector/internal/fitness"
)

type demoCmd struct {
	Events int    `default:"200000" help:"Further results after the story (${default})."`
	Keep   bool   `help:"Leave everything running at the end, with the addresses printed, until Ctrl-C."`
	Config string `default:"config.yaml" type:"existingfile" help:"Configuration of the projector (${default})."`
	Binary string `type:"path" placeholder:"FILE" help:"The projector; by default the one beside devstack."`
}

// The names that config.yaml gives.
const (
	demoTopic    = "fitness-results"
	demoGroup    = "projector.fitness_results.g1"
	demoDatabase = "reporting"
	demoView     = demoDatabase + ".fitness_results_current"
	demoRows     = demoDatabase + ".fitness_results_versions"
)

// Help tells what is to be seen.
func (demoCmd) Help() string {
	return `Starts an embedded Kafka, ClickHouse and MariaDB on free ports, runs the relay and the projector as processes of
their own with the repository's config.yaml, and plays a teacher's story. 2.21 m and the correction to 2.31 m are
transactions in MariaDB, whose events go through the outbox, the relay, Kafka and the projector into the report. Then the
old event comes once more, a duplicate, a deletion followed by a late old version, and a message that cannot be read. Then
come many further results, shuffled, with duplicates and deletions, and the report view is compared with an independent
model row by row. Exit code 1 if anything differs.`
}

func (c *demoCmd) Run(ctx context.Context, to streams) (err error) {
	binary := c.Binary
	if binary == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		binary = filepath.Join(filepath.Dir(self), "projector")
	}
	s := &stack{endpoints: endpoints{PID: os.Getpid()}}
	defer func() { err = errors.Join(err, s.stop()) }()
	begin := time.Now()
	up := &upCmd{
		ClickHouse: true, ClickHouseDatabase: demoDatabase, MariaDB: true, MariaDBDatabase: demoShard, Kafka: "fake", Ports: "free",
		Topics: map[string]int32{demoTopic: 4, demoTopic + "-dlq": 1},
	}
	if err := startStack(ctx, up, s); err != nil {
		return err
	}
	d := &demo{out: to.out, stack: s}
	if err := d.connect(); err != nil {
		return err
	}
	defer d.close()
	d.say("Kafka (embedded), ClickHouse and MariaDB are up after %.1f s.", time.Since(begin).Seconds())

	if d.projector, err = newProcess(binary, c.Config, s); err != nil {
		return err
	}
	if err := d.schema(ctx); err != nil {
		return err
	}
	if err := d.projector.start(ctx, "run"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.projector.running.Stop()) }()
	app, err := d.startShard(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, app.stop()) }()

	var model fitness.Model
	if err := d.story(ctx, app, &model); err != nil {
		return d.interrupted(ctx, err)
	}
	if err := d.bulk(ctx, c.Events, &model); err != nil {
		return d.interrupted(ctx, err)
	}
	if err := d.letters(ctx); err != nil {
		return d.interrupted(ctx, err)
	}
	if c.Keep {
		return d.keep(ctx, app)
	}
	if _, err := app.relay.drain(); err != nil {
		return err
	}
	took, err := d.projector.drain()
	if err != nil {
		return err
	}
	d.say("\nSIGTERM: drained, committed and left the group, exit 0 after %.1f s. The whole demo took %.0f s.",
		took.Seconds(), time.Since(begin).Seconds())
	d.say("Look around yourself with: make demo KEEP=1")
	return nil
}

// demo is a running stack with a projector on it.
type demo struct {
	out       io.Writer
	stack     *stack
	projector *process
	*feed
}

// schema creates the table and its views and shows what was created; `projector schema print` has the statements.
func (d *demo) schema(ctx context.Context) error {
	var all bytes.Buffer
	err := d.projector.once(ctx, &all, "schema", "apply", "--yes")
	for line := range strings.Lines(all.String()) {
		if err != nil || !strings.HasPrefix(line, "   ") {
			fmt.Fprint(d.out, line)
		}
	}
	return err
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// interrupted makes the end by Ctrl-C an orderly one, and shows the projector's own words for any other.
func (d *demo) interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return fmt.Errorf("%w\nthe end of the projector's log:\n%s", err, d.projector.running.LogTail())
}

// keep leaves everything running and says how to use it.
func (d *demo) keep(ctx context.Context, app *shard) error {
	d.say("\nEverything keeps running until Ctrl-C. In another shell:\n")
	if err := d.stack.print(d.out, "shell"); err != nil {
		return err
	}
	d.say("export PROJECTOR_HTTP__ADDRESS='%s'", d.projector.admin)
	d.say(`
  %[1]s status                        # lag, freshness, dead letters
  curl -s "$DEVSTACK_CLICKHOUSE_HTTP" -d 'SELECT * FROM %[2]s ORDER BY data_id LIMIT 5 FORMAT PrettyCompact'
  curl -s "$DEVSTACK_CLICKHOUSE_HTTP" -d 'SELECT * FROM %[3]s WHERE data_id = 1 FORMAT Vertical'
  curl -s http://%[4]s/readyz         # also /metrics, /livez, and a page at /
  kcat -b "$PROJECTOR_KAFKA__BROKERS" -t %[5]s -P -k 1 <<<'{"eventId":"mine","dataId":1,"detectId":10000,"userId":4,"projectId":3,"version":3,"result":2.41,"unit":"m","isDeleted":false,"schemaVersion":1}'
  %[1]s --config %[6]s outbox list --state sent
  %[1]s --config %[6]s reconcile --campaign 10000   # does the report say what MariaDB says?
  mariadb -uroot -h127.0.0.1 -P%[7]s %[8]s -e 'SELECT id, version, state, sent_partition, sent_offset, payload FROM outbox'
`, d.projector.binary, demoView, demoRows, d.projector.admin, demoTopic, app.relay.config, app.port(), demoShard)
	if err := d.watch(ctx, app); err != nil {
		return err
	}
	if _, err := app.relay.drain(); err != nil {
		return err
	}
	took, err := d.projector.drain()
	if err == nil {
		d.say("SIGTERM: drained, committed and left the group, exit 0 after %.1f s.", took.Seconds())
	}
	return err
}

// watch returns when ctx is done, or with an error when something has ended by itself.
func (d *demo) watch(ctx context.Context, app *shard) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := errors.Join(d.stack.running(), d.projector.running.Running(), app.relay.running.Running()); err != nil {
				return err
			}
		}
	}
}
