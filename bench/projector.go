package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/chprojector/projector/internal/testenv"
)

// binary is the program under test, built from this checkout.
type binary struct {
	path, config string
	profiles     string // folder for its profiles, "" for none
}

// profiler is what -profile adds to the program, which offers no profiles of its own.
//
//go:embed profile.go.txt
var profiler []byte

// buildProjector builds cmd/projector into a folder, with the profiler if it is wanted. Its configuration is the
// repository's config.yaml.
func buildProjector(ctx context.Context, folder string, profile bool) (binary, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return binary{}, fmt.Errorf("find the repository: %w", err)
	}
	repository := strings.TrimSpace(string(root))
	if folder, err = filepath.Abs(folder); err != nil {
		return binary{}, err
	}
	b := binary{path: filepath.Join(folder, "projector"), config: filepath.Join(repository, "config.yaml")}
	args := []string{"build", "-o", b.path}
	if profile {
		b.profiles = folder
		overlay, err := writeOverlay(folder, filepath.Join(repository, "cmd", "projector", "bench_profile.go"))
		if err != nil {
			return binary{}, fmt.Errorf("add the profiler to cmd/projector: %w", err)
		}
		args = append(args, "-overlay", overlay)
	}
	build := exec.CommandContext(ctx, "go", append(args, "./cmd/projector")...)
	build.Dir = repository
	if text, err := build.CombinedOutput(); err != nil {
		return binary{}, fmt.Errorf("build cmd/projector: %w\n%s", err, text)
	}
	return b, nil
}

// writeOverlay makes the Go command see the profiler as the given file, which does not exist.
func writeOverlay(folder, as string) (string, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	source := filepath.Join(folder, "profile.go")
	if err := os.WriteFile(source, profiler, 0o644); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {as: source}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(folder, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o644)
}

// environment overrides what differs between the default configuration and a run.
func (r *run) environment() []string {
	return []string{
		"PROJECTOR_KAFKA__BROKERS=" + strings.Join(r.stage.brokers, ","),
		"PROJECTOR_KAFKA__GROUP=" + r.group,
		"PROJECTOR_CLICKHOUSE__ADDRESSES=" + r.server.native,
		"PROJECTOR_CLICKHOUSE__DATABASE=" + r.database,
		"PROJECTOR_LOG_LEVEL=warn",
	}
}

// applySchema creates the table and its views with the projector's own command.
func (b binary) applySchema(ctx context.Context, r *run) error {
	cmd := exec.CommandContext(ctx, b.path, "--config", b.config, "schema", "apply", "--yes")
	cmd.Env = append(cmd.Environ(), r.environment()...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("projector schema apply: %w\n%s", err, text)
	}
	return nil
}

// projector is the real program with its default configuration but for lanes, where they are not 0, in so many
// processes.
func (b binary) projector(label string, lanes, processes int) contestant {
	return contestant{name: label, start: func(ctx context.Context, r *run) (contest, error) {
		p := &projectorRun{run: r, profiles: b.profiles}
		for range processes {
			port, _, err := testenv.FreePort() // ours until the benchmark ends
			if err != nil {
				return nil, err
			}
			admin := "127.0.0.1:" + strconv.Itoa(port)
			env := append(r.environment(), "PROJECTOR_HTTP__ADDRESS="+admin, "PROJECTOR_LANES="+strconv.Itoa(lanes), "BENCH_PROFILE="+b.profiles)
			c, err := startChild(ctx, env, b.path, "--config", b.config, "run")
			if err != nil {
				p.kill()
				return nil, err
			}
			p.crew, p.admin = append(p.crew, c), append(p.admin, admin)
		}
		return p, nil
	}}
}

type projectorRun struct {
	crew
	run   *run
	admin []string // host:port of each process

	profiles string // folder
}

// check returns an error when a process has ended, even with success: run ends on a signal only.
func (p *projectorRun) check() error {
	for _, c := range p.crew {
		select {
		case <-c.ended:
			return errors.Join(fmt.Errorf("projector ended by itself: %s", c.output.Bytes()), c.err)
		default:
		}
	}
	return nil
}

// finish reads the allocations, then drains the processes as a deployment would.
func (p *projectorRun) finish(ctx context.Context) (time.Duration, error) {
	mallocs := 0.0
	for _, admin := range p.admin {
		n, err := metric(ctx, admin, "go_memstats_mallocs_total")
		if err != nil {
			return 0, err
		}
		mallocs += n
	}
	if p.run.stage.events > 0 {
		p.run.allocs = mallocs / float64(p.run.stage.events)
	}
	for _, c := range p.crew {
		if p.profiles != "" {
			if err := c.endProfile(ctx, p.profiles); err != nil {
				return 0, err
			}
		}
		if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return 0, fmt.Errorf("stop projector: %w", err)
		}
	}
	return p.crew.finish(ctx)
}

// endProfile returns once the process has written its profiles.
func (c *child) endProfile(ctx context.Context, folder string) error {
	if err := c.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		return fmt.Errorf("end the profile: %w", err)
	}
	last := filepath.Join(folder, strconv.Itoa(c.cmd.Process.Pid)+".heap.pprof")
	for {
		if _, err := os.Stat(last); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not appear: %w", last, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// metric reads one metric without labels from a process's /metrics.
func metric(ctx context.Context, admin, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("read the metrics: %w", err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read the metrics: %w", err)
	}
	return 0, fmt.Errorf("/metrics has no %s", name)
}
