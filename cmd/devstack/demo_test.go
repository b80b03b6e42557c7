package main

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/chprojector/projector/internal/testenv"
)

// TestDemo runs the whole demo with fewer events: what it shows is what the README promises.
func TestDemo(t *testing.T) {
	binary, err := testenv.Build(t.Context(), "projector")
	if err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	cmd := demoCmd{Events: 2000, Config: "../../config.yaml", Binary: binary}
	if err := cmd.Run(t.Context(), streams{out: &out, err: &log}); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &log)
	}
	for _, want := range []string{
		"data_id 1: 2.21 m (version 1)",
		"fitness-result-1-v2  sent",
		"data_id 1: 2.31 m (version 2)",
		"0 different, 0 missing, 0 unexpected, 0 repeated",
		`"2,41": this text is not a decimal number`,
		"drained, committed and left the group, exit 0",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo does not show %q:\n%s", want, &out)
		}
	}
}

// TestDemoKept gives one of the commands that the demo prints when it leaves everything running.
func TestDemoKept(t *testing.T) {
	binary, err := testenv.Build(t.Context(), "projector")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &untilSaid{what: "mariadb -uroot", said: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		cmd := demoCmd{Events: 200, Config: "../../config.yaml", Binary: binary, Keep: true}
		ended <- cmd.Run(ctx, streams{out: out, err: io.Discard})
	}()
	select {
	case <-out.said:
	case err := <-ended:
		t.Fatalf("the demo ended by itself: %v\n%s", err, out)
	}
	var script strings.Builder
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "export ") || strings.Contains(line, " reconcile ") {
			script.WriteString(line)
		}
	}
	got, err := exec.CommandContext(ctx, "sh", "-c", script.String()).CombinedOutput()
	if err != nil || !strings.Contains(string(got), "campaign 10000 of fitness_results against mysql: equal") {
		t.Errorf("%v\n%s\n%s", err, script.String(), got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// untilSaid is a writer that tells when something was written.
type untilSaid struct {
	mu   sync.Mutex
	text strings.Builder
	what string
	said chan struct{}
}

func (u *untilSaid) Write(b []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := strings.Contains(u.text.String(), u.what)
	u.text.Write(b)
	if !before && strings.Contains(u.text.String(), u.what) {
		close(u.said)
	}
	return len(b), nil
}

func (u *untilSaid) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.text.String()
}

// TestDemoNeedsTheProjector shows what a reader sees who has not built it.
func TestDemoNeedsTheProjector(t *testing.T) {
	var out, log bytes.Buffer
	cmd := demoCmd{Events: 1, Config: "../../config.yaml", Binary: t.TempDir() + "/projector"}
	err := cmd.Run(t.Context(), streams{out: &out, err: &log})
	if err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("error %v, want one that names `make build`", err)
	}
}
