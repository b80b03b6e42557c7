package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/internal/testenv"
)

// TestRunWaits starts before there is anything to work with: it must live, say
// what it waits for, and work as soon as it is there.
func TestRunWaits(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	w.until("the missing table is named", func() bool {
		code, body := r.probe("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "fitness_results_g1 does not exist; run `projector schema apply`")
	})
	if code, body := r.probe("/livez"); code != http.StatusOK {
		t.Errorf("not live: %s", body)
	}
	if _, page := r.probe("/api/status"); !strings.Contains(page, "does not exist") {
		t.Errorf("the page does not say what is missing:\n%s", page)
	}
	w.must(exitDone, "schema", "apply", "--yes")
	w.until("the missing topic is named", func() bool {
		_, body := r.probe("/readyz")
		return strings.Contains(body, "fitness-results") && !strings.Contains(body, "does not exist; run")
	})
	w.createTopic("fitness-results")
	w.produce(story()...)
	w.until("the rows are there", func() bool {
		return w.rows("SELECT result FROM fitness_results_current") == "2.31\n"
	})
	r.ready()
	r.stop()
	if code := r.end(); code != exitDone {
		t.Errorf("exit code %d", code)
	}
	if n := strings.Count(r.log.String(), "wait for the table"); n > 3 {
		t.Errorf("%d log lines of one streak:\n%s", n, r.log)
	}
}

// TestProjectionsWaitForThemselves holds that a table which is missing holds up
// its own projection only.
func TestProjectionsWaitForThemselves(t *testing.T) {
	w := newWorld(t, "fitness-results", "orders")
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	two := filepath.Join(t.TempDir(), "two.yaml")
	second := `
projections:
  - {name: orders, topics: [orders], table: orders, identity: [id], order_by: [id], version: v, columns: [{name: id, from: id, type: UInt64}, {name: v, from: v, type: UInt64}]}
`
	if err := os.WriteFile(two, []byte(strings.Replace(string(text), "\nprojections:\n", second, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	w.flags = append(w.flags, "--config", two)
	w.must(exitDone, "schema", "apply", "--yes", "--projection", "fitness_results")
	r := w.start()
	w.produce(story()...)
	w.until("the rows of the other are there", func() bool {
		return w.rows("SELECT result FROM fitness_results_current") == "2.31\n"
	})
	w.until("only the missing table is in the way", func() bool {
		code, body := r.probe("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "orders_g1 does not exist") && !strings.Contains(body, "fitness_results")
	})
	w.must(exitDone, "schema", "apply", "--yes")
	r.ready()
	if _, metrics := r.probe("/metrics"); strings.Count(metrics, "# HELP projector_rows_total ") != 1 || !strings.Contains(metrics, `projector_rows_total{projection="orders"} 0`) {
		t.Errorf("the metrics of both projections are not one family:\n%s", metrics)
	}
	r.stop()
	if code := r.end(); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}

// TestRunWrongKafkaPassword meets a broker that closes the connection on it.
func TestRunWrongKafkaPassword(t *testing.T) {
	w := newWorld(t)
	cluster := testenv.NewFakeKafka(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "projector", "secret"))
	w.must(exitDone, "schema", "apply", "--yes")
	r := w.start("--set", "kafka.brokers="+cluster.ListenAddrs()[0], "--set", "kafka.sasl.mechanism=plain",
		"--set", "kafka.sasl.username=projector", "--set", "kafka.sasl.password=geheim")
	w.until("the probe says where to look", func() bool {
		_, body := r.probe("/readyz")
		return strings.Contains(body, "correct kafka.sasl") || strings.Contains(body, "do kafka.tls and kafka.sasl fit it")
	})
	r.stop()
	if code := r.end(); code != exitDone || strings.Contains(r.log.String(), "geheim") {
		t.Errorf("exit code %d\n%s", code, r.log)
	}
}

func TestKafkaTrouble(t *testing.T) {
	for _, c := range []struct {
		err   error
		final bool
	}{
		{kerr.SaslAuthenticationFailed, true},
		{kerr.UnsupportedSaslMechanism, true},
		{kerr.CoordinatorNotAvailable, false},
		{io.EOF, false},
		{syscall.ECONNREFUSED, false},
	} {
		got := kafkaTrouble(fmt.Errorf("ping kafka: %w", c.err))
		if _, final := errors.AsType[finalError](got); final != c.final || !errors.Is(got, c.err) {
			t.Errorf("%v becomes %v, final %t", c.err, got, final)
		}
	}
}

// TestRunStopsWhileWaiting must not wait for the drain of nothing.
func TestRunStopsWhileWaiting(t *testing.T) {
	w := newWorld(t)
	r := w.start("--set", "clickhouse.addresses=127.0.0.1:1")
	w.until("it waits", func() bool {
		_, body := r.probe("/readyz")
		return strings.Contains(body, "connection refused")
	})
	r.stop()
	if code := r.end(); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}

// TestRunNeedsLetters holds that a missing right to create the dead-letter
// topic is found at the start, with the command that a person with the right
// can run.
func TestRunNeedsLetters(t *testing.T) {
	w := newWorld(t, "fitness-results")
	w.must(exitDone, "schema", "apply", "--yes")
	w.cluster.ControlKey(int16(kmsg.CreateTopics), func(request kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		create := request.(*kmsg.CreateTopicsRequest)
		response := create.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, topic := range create.Topics {
			refused := kmsg.NewCreateTopicsResponseTopic()
			refused.Topic, refused.ErrorCode = topic.Topic, kerr.ClusterAuthorizationFailed.Code
			response.Topics = append(response.Topics, refused)
		}
		return response, nil, true
	})
	r := w.start()
	if code := r.end(); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if log := r.log.String(); !strings.Contains(log, "kafka-topics.sh") || !strings.Contains(log, "--topic fitness-results-dlq --partitions 2") {
		t.Errorf("the log does not say what to do:\n%s", log)
	}
}
