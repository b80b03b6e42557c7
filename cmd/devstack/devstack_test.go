package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chprojector/projector/internal/testenv"
)

var program string // the built devstack

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "devstack-test-")
	if err == nil {
		program = filepath.Join(dir, "devstack")
		cmd := exec.Command("go", "build", "-o", program, ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		cmd.Stderr = os.Stderr
		err = cmd.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build devstack:", err)
		os.Exit(1) //nolint:forbidigo // a TestMain has no other way to fail
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code) //nolint:forbidigo // goleak leaves the exit to its cleanup
	}))
}

// devstack is a running program with a temporary folder of its own, in which whatever it leaves behind shows.
type devstack struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    *bufio.Reader
	stderr *bytes.Buffer
	tmp    string
}

func start(t *testing.T, args ...string) *devstack {
	t.Helper()
	d := &devstack{t: t, cmd: exec.Command(program, args...), stderr: new(bytes.Buffer), tmp: t.TempDir()}
	d.cmd.Env = append(os.Environ(), "TMPDIR="+d.tmp)
	d.cmd.Stderr = d.stderr
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.out = bufio.NewReader(out)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
	})
	return d
}

// ready returns what `up -o json` prints when the servers answer.
func (d *devstack) ready() endpoints {
	d.t.Helper()
	line, err := d.out.ReadBytes('\n')
	if err != nil {
		_ = d.cmd.Wait()
		d.t.Fatalf("devstack ended: %s", d.stderr)
	}
	var e endpoints
	if err := json.Unmarshal(line, &e); err != nil {
		d.t.Fatalf("%s: %v", line, err)
	}
	return e
}

// end sends s and returns the exit code, -1 for death by signal.
func (d *devstack) end(s syscall.Signal) int {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatal(err)
	}
	err := d.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		d.t.Fatal(err)
	}
	return d.cmd.ProcessState.ExitCode()
}

// nothingLeft waits until no server of the stack runs and its temporary folder is empty.
func (d *devstack) nothingLeft() {
	d.t.Helper()
	// Every server and keeper has the temporary folder's path, which no other process knows, in its arguments.
	testenv.Eventually(d.t, "its processes are gone", func() bool { return len(processes(d.t, d.tmp)) == 0 })
	testenv.Eventually(d.t, "its temporary folders are gone", func() bool {
		entries, err := os.ReadDir(d.tmp)
		return err == nil && len(entries) == 0
	})
}

// processes returns the ids and arguments of the processes with text among their arguments.
func processes(t *testing.T, text string) (found []string) {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-o", "pid=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

func TestUpEndsWithoutTrace(t *testing.T) {
	tests := []struct {
		name   string
		args   []string
		signal syscall.Signal
		code   int
	}{
		{"SIGTERM", nil, syscall.SIGTERM, 0},
		{"SIGINT", nil, syscall.SIGINT, 0},
		{"SIGKILL", nil, syscall.SIGKILL, -1},
		{"SIGKILL with all servers", []string{"--kafka=real", "--mariadb"}, syscall.SIGKILL, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := start(t, append([]string{"up", "--ports=free", "-o", "json"}, tt.args...)...)
			e := d.ready()
			if e.PID != d.cmd.Process.Pid {
				t.Errorf("its process id is %d, not %d", e.PID, d.cmd.Process.Pid)
			}
			if got := get(t, e.ClickHouse.HTTP+"/?query=EXISTS+DATABASE+reporting"); got != "1\n" {
				t.Errorf("EXISTS DATABASE reporting is %q", got)
			}
			// The check that follows must be able to fail.
			if len(processes(t, d.tmp)) < 2 {
				t.Errorf("processes of the stack: %q", processes(t, d.tmp))
			}
			if code := d.end(tt.signal); code != tt.code {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, d.stderr)
			}
			d.nothingLeft()
		})
	}
}

// Whatever it is doing when it is killed, nothing remains.
func TestKillWhileStarting(t *testing.T) {
	for range 6 {
		delay := time.Duration(rand.Int64N(int64(1500 * time.Millisecond)))
		t.Run(delay.String(), func(t *testing.T) {
			d := start(t, "up", "--ports=free", "--mariadb")
			<-time.After(delay) // any moment will do
			d.end(syscall.SIGKILL)
			d.nothingLeft()
		})
	}
}

func TestUpEndsWhenAServerDies(t *testing.T) {
	d := start(t, "up", "--ports=free", "-o", "json")
	e := d.ready()
	if err := syscall.Kill(e.ClickHouse.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err := d.cmd.Wait()
	if code := d.cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(d.stderr.String(), "ClickHouse exited signal: killed") {
		t.Errorf("exit code %d, %v: %s", code, err, d.stderr)
	}
	d.nothingLeft()
}

func TestDataAreKept(t *testing.T) {
	data := t.TempDir()
	for round, want := range []string{"0\n", "1\n"} {
		d := start(t, "up", "--ports=free", "-o", "json", "--data", data)
		e := d.ready()
		post(t, e.ClickHouse.HTTP, "CREATE TABLE IF NOT EXISTS reporting.t (a Int8) ENGINE = MergeTree ORDER BY a")
		if got := get(t, e.ClickHouse.HTTP+"/?query=SELECT+count()+FROM+reporting.t"); got != want {
			t.Errorf("round %d: %q rows, want %q", round, got, want)
		}
		post(t, e.ClickHouse.HTTP, "INSERT INTO reporting.t VALUES (1)")
		if code := d.end(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d: %s", code, d.stderr)
		}
		d.nothingLeft()
	}
}

func TestBackground(t *testing.T) {
	cache := t.TempDir()
	do := func(args ...string) (code int, stdout, stderr string) {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "DEVSTACK_CACHE="+cache)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), out.String(), errs.String()
	}
	t.Cleanup(func() { do("down") })
	expect := func(code int, text string, args ...string) (stdout string) {
		t.Helper()
		got, stdout, stderr := do(args...)
		if got != code || !strings.Contains(stdout+stderr, text) {
			t.Errorf("%q exits with %d, want %d with %q: %s%s", args, got, code, text, stdout, stderr)
		}
		return stdout
	}
	expect(exitNo, "not running", "status")
	expect(exitNo, "not running", "down")
	up := expect(0, "export PROJECTOR_KAFKA__BROKERS=", "up", "--detach", "--no-clickhouse", "--ports=free")
	if status := expect(0, "", "status"); status != up {
		t.Errorf("status prints %q, up printed %q", status, up)
	}
	var e endpoints
	if err := json.Unmarshal([]byte(expect(0, "", "status", "-o", "json")), &e); err != nil {
		t.Fatal(err)
	}
	expect(exitFailed, "runs in the background already", "up", "--detach", "--ports=free")
	expect(0, "stopped", "down")
	expect(exitNo, "not running", "status")

	// One that was killed is not taken for running.
	expect(0, "", "up", "--detach", "--no-clickhouse", "--ports=free")
	if err := json.Unmarshal([]byte(expect(0, "", "status", "-o", "json")), &e); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(e.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the killed process is not taken for running", func() bool {
		code, _, _ := do("status")
		return code == exitNo
	})

	// One that cannot start says why.
	file := filepath.Join(cache, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	expect(exitFailed, "start kfake", "up", "--detach", "--no-clickhouse", "--ports=free", "--data", file)
	expect(exitNo, "not running", "status")
}

func TestUsage(t *testing.T) {
	tests := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"help", []string{"--help"}, 0, "Real Kafka, ClickHouse and MariaDB"},
		{"help of a command", []string{"up", "--help"}, 0, "--kafka"},
		{"unknown command", []string{"upp"}, exitUsage, "upp"},
		{"unknown kind of Kafka", []string{"up", "--kafka=mock"}, exitUsage, "fake"},
		{"no partitions", []string{"up", "--topics=orders=0"}, exitUsage, "topic orders cannot have 0 partitions"},
		{"unknown server", []string{"install", "oracle"}, exitUsage, "clickhouse"},
		{"nothing to run", []string{"keep", "--log=x"}, exitUsage, "command"},
		{"no such library", []string{"serve-clickhouse", "/nonexistent.so"}, exitFailed, "load /nonexistent.so"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if code := run(tt.args, &out, &out); code != tt.code || !strings.Contains(out.String(), tt.want) {
				t.Errorf("exit code %d, want %d with %q: %s", code, tt.code, tt.want, &out)
			}
		})
	}
}

// What is printed for a shell survives the shell's evaluation.
func TestShellOutput(t *testing.T) {
	e := endpoints{
		Kafka:      &kafkaEndpoint{Brokers: []string{"127.0.0.1:1", "127.0.0.1:2"}},
		ClickHouse: &clickHouseEndpoint{Address: "127.0.0.1:3", HTTP: "http://127.0.0.1:4", Database: "it's $HOME"},
		MariaDB:    &mariaDBEndpoint{DSN: "root@tcp(127.0.0.1:5)/s0"},
	}
	var out bytes.Buffer
	if err := e.print(&out, "shell"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"PROJECTOR_KAFKA__BROKERS":        "127.0.0.1:1,127.0.0.1:2",
		"PROJECTOR_CLICKHOUSE__ADDRESSES": "127.0.0.1:3",
		"PROJECTOR_CLICKHOUSE__DATABASE":  "it's $HOME",
		"DEVSTACK_CLICKHOUSE_HTTP":        "http://127.0.0.1:4",
		"DEVSTACK_MYSQL_DSN":              "root@tcp(127.0.0.1:5)/s0",
	} {
		got, err := exec.Command("sh", "-c", out.String()+`printf %s "$`+name+`"`).Output()
		if err != nil || string(got) != want {
			t.Errorf("%s is %q, want %q (%v)", name, got, want, err)
		}
	}
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func get(t *testing.T, url string) string {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	return body(t, response)
}

func post(t *testing.T, url, statement string) {
	t.Helper()
	response, err := client.Post(url, "text/plain", strings.NewReader(statement))
	if err != nil {
		t.Fatal(err)
	}
	if text := body(t, response); response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", statement, text)
	}
}

func body(t *testing.T, response *http.Response) string {
	t.Helper()
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
