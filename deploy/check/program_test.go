package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// program is the binary as it is built from this repository.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int { //nolint:forbidigo // nothing is deferred out here
		folder, err := os.MkdirTemp("", "projector-check")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(folder)
		program = filepath.Join(folder, "projector")
		build := exec.Command("go", "build", "-o", program, "./cmd/projector")
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %v\n%s", build, err, out)
			return 1
		}
		return m.Run()
	}())
}

// run runs the program to its end and returns its standard output.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Env = []string{}
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("projector %s: %v\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return out
}

// configOf writes the configuration of m's ConfigMap to a file.
func configOf(t *testing.T, m *Manifests) (path string) {
	t.Helper()
	if len(m.ConfigMaps) != 1 || len(m.ConfigMaps[0].Data) != 1 {
		t.Fatalf("%d ConfigMaps, want one with one file", len(m.ConfigMaps))
	}
	for name, text := range m.ConfigMaps[0].Data {
		path = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// effective is what holds after the program has read the ConfigMap's configuration, which it finds no fault with.
func effective(t *testing.T, m *Manifests) *Config {
	t.Helper()
	path := configOf(t, m)
	run(t, "--config", path, "config", "check", "--no-secrets")
	cfg, err := ReadConfig(run(t, "--config", path, "config", "print"))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// dockerImage is what the Dockerfile says.
func dockerImage(t *testing.T) Image {
	t.Helper()
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	number := func(instruction string) int64 {
		match := regexp.MustCompile(`(?m)^` + instruction + ` (\d+)`).FindSubmatch(text)
		if match == nil {
			t.Fatalf("the Dockerfile has no %s", instruction)
		}
		n, err := strconv.ParseInt(string(match[1]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return Image{User: number("USER"), Port: int32(number("EXPOSE"))}
}

// The commands of every workload exist, and so do their flags.
func TestCommandsExist(t *testing.T) {
	for name, m := range overlays(t) {
		for _, w := range m.Workloads() {
			t.Run(name+"/"+w.Name, func(t *testing.T) {
				var command []string
				for _, arg := range w.Container().Args {
					if strings.HasPrefix(arg, "-") {
						break
					}
					command = append(command, arg)
				}
				help := string(run(t, append(command, "--help")...))
				usage, _, _ := strings.Cut(help, "\n")
				if want := "Usage: projector " + strings.Join(command, " "); !strings.HasPrefix(usage, want) {
					t.Errorf("%s\nwant %s", usage, want)
				}
				for _, arg := range w.Container().Args[len(command):] {
					flag, _, _ := strings.Cut(arg, "=")
					if strings.HasPrefix(flag, "--") && !regexp.MustCompile(`(?m)^ .*`+flag+`\b`).MatchString(help) {
						t.Errorf("%s has no flag %s:\n%s", strings.Join(command, " "), flag, help)
					}
				}
			})
		}
	}
}

// What the probes ask is served even while no server can be reached: live, and not ready. And the memory that the process
// may take by its configuration, and the thirty per cent that it was seen to take above it at the most, are granted to it.
func TestProcess(t *testing.T) {
	m := overlays(t)["base"]
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, "--config", configOf(t, m), "--log-format=json", "--set=http.address=127.0.0.1:0",
		"--set=kafka.brokers=127.0.0.1:1", "--set=clickhouse.addresses=127.0.0.1:1", "--set=clickhouse.password_file="+secret, "--set=http.token_file="+secret, "run")
	command.Env = []string{}
	stderr, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}()
	var serving struct{ Address string }
	for lines := bufio.NewScanner(stderr); serving.Address == "" && lines.Scan(); {
		if err := json.Unmarshal(lines.Bytes(), &serving); err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
	}
	go func() { _, _ = bufio.NewReader(stderr).WriteTo(new(bytes.Buffer)) }()
	c := m.Deployments[0].Spec.Template.Spec.Containers[0]
	for path, want := range map[string]int{c.LivenessProbe.HTTPGet.Path: http.StatusOK, c.ReadinessProbe.HTTPGet.Path: http.StatusServiceUnavailable, "/metrics": http.StatusOK, "/": http.StatusUnauthorized} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+serving.Address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if path == "/metrics" { // as Prometheus asks
			request.Header.Set("Authorization", "Bearer secret")
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != want || err != nil {
			t.Errorf("%s answers %d, %v; want %d", path, response.StatusCode, err, want)
		}
		if path != "/metrics" {
			continue
		}
		budget, granted := regexp.MustCompile(`(?m)^projector_memory_budget_bytes (\S+)$`).FindSubmatch(body), c.Resources.Limits.Memory()
		if budget == nil {
			t.Fatalf("no projector_memory_budget_bytes in\n%s", body)
		}
		if need, err := strconv.ParseFloat(string(budget[1]), 64); err != nil || 1.3*need > granted.AsApproximateFloat64() {
			t.Errorf("the process may need 1.3 times %.0f MiB (%v), the limit is %s", need/(1<<20), err, granted)
		}
	}
}
