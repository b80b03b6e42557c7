package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/chprojector/projector/internal/testenv"
)

// member is one process `projector run`.
type member struct {
	*testenv.Program
	w     *world
	name  string
	admin string // host:port of its probes
}

// start starts a process and returns at once. set are further keys of the configuration, as --set takes them. The
// process ends with the test; if the test has failed, the end of its log is shown.
func (w *world) start(name string, set ...string) *member {
	w.t.Helper()
	m, err := w.launch(name, set...)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// launch is start for any goroutine.
func (w *world) launch(name string, set ...string) (*member, error) {
	port, release, err := testenv.FreePort()
	if err != nil {
		return nil, err
	}
	w.t.Cleanup(release)
	m := &member{w: w, name: name, admin: fmt.Sprintf("127.0.0.1:%d", port)}
	command := []string{w.binary, "--config", w.config}
	for _, s := range set {
		command = append(command, "--set", s)
	}
	m.Program, err = testenv.StartProgram(w.t.Context(), testenv.ProgramConfig{
		Name: "projector-" + name, Command: append(command, "run"),
		Env: append([]string{"PROJECTOR_HTTP__ADDRESS=" + m.admin}, w.env...),
	})
	if err != nil {
		return nil, err
	}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("%s (%v), the end of its log:\n%s", name, errors.Unwrap(m.Running()), m.LogTail())
		}
		if err := m.Stop(); err != nil {
			w.t.Error(err)
		}
	})
	return m, nil
}

// restart starts an ended process again.
func (m *member) restart() {
	m.w.t.Helper()
	if err := m.Restart(m.w.t.Context()); err != nil {
		m.w.t.Fatal(err)
	}
}

// kill ends the process with SIGKILL.
func (m *member) kill() {
	m.w.t.Helper()
	if err := m.Kill(); err != nil {
		m.w.t.Fatal(err)
	}
}

func (m *member) signal(s syscall.Signal) {
	m.w.t.Helper()
	if err := m.Signal(s); err != nil {
		m.w.t.Fatal(err)
	}
}

// ends waits for the end of the process and holds how it ended: 0 and so on is the exit code.
func (m *member) ends(patience time.Duration, code int) {
	m.w.t.Helper()
	state, err := m.Wait(patience)
	if err != nil {
		m.w.t.Fatal(err)
	}
	if want := fmt.Sprintf("exit status %d", code); state != want {
		m.w.t.Errorf("%s ended with %q, want %q", m.name, state, want)
	}
}

// drain ends the process as Kubernetes does, and holds that it ends with 0 in time.
func (m *member) drain() {
	m.w.t.Helper()
	m.signal(syscall.SIGTERM)
	m.ends(drainTimeout+5*time.Second, 0)
}

// drainTimeout is drain_timeout of the configuration: from SIGTERM to the end of the work.
const drainTimeout = 25 * time.Second

// client keeps no connection and so no goroutine.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

// probe is the answer of a probe; code 0 if nobody answers.
func (m *member) probe(path string) (code int, body string) {
	m.w.t.Helper()
	request, err := http.NewRequestWithContext(m.w.t.Context(), http.MethodGet, "http://"+m.admin+path, http.NoBody)
	if err != nil {
		m.w.t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// ready waits until the process is in its groups.
func (m *member) ready() {
	m.w.t.Helper()
	m.w.until(soon, m.name+" is ready", func() bool {
		code, _ := m.probe("/readyz")
		return code == http.StatusOK
	})
}

// owns waits until the process has partitions.
func (m *member) owns() {
	m.w.t.Helper()
	m.w.until(soon, m.name+" owns partitions", func() bool {
		code, _ := m.probe("/metrics")
		return code == http.StatusOK && m.metric("projector_partitions_assigned_total") > m.metric("projector_partitions_revoked_total")
	})
}

// metric is the sum of the series of a metric whose labels contain all the given texts.
func (m *member) metric(name string, labels ...string) (sum float64) {
	m.w.t.Helper()
	code, body := m.probe("/metrics")
	if code != http.StatusOK {
		m.w.t.Fatalf("%s: /metrics answers %d: %s", m.name, code, body)
	}
series:
	for line := range strings.Lines(body) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		base, rest, _ := strings.Cut(series, "{")
		if base != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue series
			}
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			m.w.t.Fatalf("%s: %v", line, err)
		}
		sum += n
	}
	return sum
}

// log is everything that the process has logged in all its lives.
func (m *member) log() string {
	m.w.t.Helper()
	text, err := os.ReadFile(m.Log())
	if err != nil {
		m.w.t.Fatal(err)
	}
	return string(text)
}

// says waits until the log holds a text.
func (m *member) says(text string) {
	m.w.t.Helper()
	m.w.until(soon, fmt.Sprintf("%s logs %q", m.name, text), func() bool { return strings.Contains(m.log(), text) })
}

// outcome is what a command left behind.
type outcome struct {
	code           int
	stdout, stderr string
}

// run runs one command of the projector to its end.
func (w *world) run(args ...string) outcome {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.binary, append([]string{"--config", w.config}, args...)...)
	cmd.Env = append(os.Environ(), w.env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || !exit.Exited()) {
		w.t.Fatalf("%v: %v", args, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
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

// apply creates the tables and views.
func (w *world) apply(args ...string) {
	w.t.Helper()
	w.must(0, append([]string{"schema", "apply", "--yes"}, args...)...)
}

// status is one projection in `status -o json`, by the names that users script against.
type status struct {
	Projection string
	Table      string
	Group      string
	Lag        *int64
	Partitions []struct {
		Topic                       string
		Partition                   int32
		Committed, End, Lag, Stored *int64
	}
	Letters []struct {
		Topic   string
		Letters int64
		Classes map[string]int
		Samples map[string]struct{ Error string }
	} `json:"dead_letters"`
	Newest  string   `json:"newest_row_at"`
	Age     *float64 `json:"newest_row_age_seconds"`
	Unknown []string
}

// status runs the command and holds its exit code.
func (w *world) status(code int) (all []status) {
	w.t.Helper()
	got := w.must(code, "status", "-o", "json")
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil {
		w.t.Fatalf("%v in\n%s", err, got.stdout)
	}
	return all
}
