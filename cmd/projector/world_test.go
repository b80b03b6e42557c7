package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/testenv"
)

// world is a ClickHouse database and a Kafka of a test's own, and the program
// in between with the repository's configuration.
type world struct {
	t       *testing.T
	db      *testenv.ClickHouseDatabase
	cluster *kfake.Cluster
	flags   []string
}

func newWorld(t *testing.T, topics ...string) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs servers")
	}
	w := &world{t: t, db: testenv.SharedClickHouse(t)}
	opts := []kfake.Opt{}
	if len(topics) > 0 {
		opts = append(opts, kfake.SeedTopics(2, topics...))
	}
	w.cluster = testenv.NewFakeKafka(t, opts...)
	config, err := filepath.Abs("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.flags = []string{
		"--config", config, "--log-format", "json",
		"--set", "kafka.brokers=" + strings.Join(w.cluster.ListenAddrs(), ","),
		"--set", "clickhouse.addresses=" + w.db.Addr(),
		"--set", "clickhouse.database=" + w.db.Name,
		"--set", "http.address=127.0.0.1:0",
		"--set", "batch.delay=50ms",
	}
	return w
}

// outcome is what a command left behind.
type outcome struct {
	code           int
	stdout, stderr string
}

// run runs one command to its end, inside this process.
func (w *world) run(args ...string) outcome { return w.runWith("", args...) }

func (w *world) runWith(stdin string, args ...string) outcome {
	w.t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(w.t.Context(), slices.Concat(w.flags, args), nil, strings.NewReader(stdin), &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

// must is run with an exit code that it holds.
func (w *world) must(code int, args ...string) outcome {
	w.t.Helper()
	got := w.run(args...)
	if got.code != code {
		w.t.Fatalf("%v: exit code %d, want %d\n%s%s", args, got.code, code, got.stdout, got.stderr)
	}
	return got
}

// running is `projector run` in this process.
type running struct {
	w      *world
	stop   context.CancelFunc
	log    *lockedBuffer
	ended  chan int
	probes string // http://host:port
}

// start starts `projector run`; it is stopped with the test at the latest.
func (w *world) start(args ...string) *running {
	w.t.Helper()
	return w.startCommand("run", args...)
}

// startCommand starts a command that runs until it is stopped.
func (w *world) startCommand(name string, args ...string) *running {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{w: w, stop: cancel, log: &lockedBuffer{}, ended: make(chan int, 1)}
	go func() {
		r.ended <- run(ctx, slices.Concat(w.flags, args, []string{name}), nil, strings.NewReader(""), io.Discard, r.log)
	}()
	w.t.Cleanup(func() {
		cancel()
		select {
		case <-r.ended:
		case <-time.After(time.Minute):
			w.t.Errorf("projector %s does not end", name)
		}
		if w.t.Failed() {
			w.t.Logf("log of %s:\n%s", name, r.log)
		}
	})
	w.until("the log names the address", func() bool {
		r.probes = probesOf(r.log)
		return r.probes != "" || len(r.ended) > 0
	})
	return r
}

// probesOf finds where a process serves its probes: http://host:port.
func probesOf(log *lockedBuffer) string {
	for line := range strings.Lines(log.String()) {
		var l struct{ Address string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Address != "" {
			return "http://" + l.Address
		}
	}
	return ""
}

// end waits for the exit code.
func (r *running) end() int {
	r.w.t.Helper()
	select {
	case code := <-r.ended:
		r.ended <- code // for the clean-up
		return code
	case <-time.After(time.Minute):
		r.w.t.Fatalf("projector run does not end\n%s", r.log)
		return -1
	}
}

// probe is the answer of a probe or a page.
func (r *running) probe(path string) (int, string) {
	r.w.t.Helper()
	return get(r.w.t, r.probes+path)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// ready waits until the process is ready.
func (r *running) ready() {
	r.w.t.Helper()
	r.w.until("the process is ready", func() bool {
		code, _ := r.probe("/readyz")
		return code == http.StatusOK
	})
}

// until polls what only a server knows.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			w.t.Fatalf("waited a minute until %s", what)
		case <-tick.C:
		}
	}
}

// produce sends events to the topic of the repository's configuration and waits for their acknowledgement.
func (w *world) produce(values ...[]byte) {
	w.t.Helper()
	w.produceTo("fitness-results", values...)
}

func (w *world) produceTo(topic string, values ...[]byte) {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...))
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	var records []*kgo.Record
	for _, v := range values {
		records = append(records, &kgo.Record{Topic: topic, Key: []byte("k"), Value: v})
	}
	if err := client.ProduceSync(w.t.Context(), records...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// createTopic creates a topic with two partitions.
func (w *world) createTopic(name string) {
	w.t.Helper()
	admin, err := kafka.NewAdmin(kgo.SeedBrokers(w.cluster.ListenAddrs()...))
	if err != nil {
		w.t.Fatal(err)
	}
	defer admin.Close()
	if err := admin.CreateTopic(w.t.Context(), name, 2, 1, nil); err != nil {
		w.t.Fatal(err)
	}
}

// rows is the result of a query, tab-separated.
func (w *world) rows(query string) string {
	w.t.Helper()
	out, err := w.db.Query(w.t.Context(), query)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// process is the program in a process of its own.
func (w *world) process(args ...string) (*exec.Cmd, *lockedBuffer) {
	w.t.Helper()
	// testscript.Main has put a "projector" onto PATH that is this test binary.
	command := exec.Command("projector", slices.Concat(w.flags, args)...)
	log := &lockedBuffer{}
	command.Stderr = log
	if err := command.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if command.ProcessState == nil {
			_ = command.Process.Kill()
			_ = command.Wait()
		}
	})
	return command, log
}

// lockedBuffer is written by one goroutine and read by another.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
