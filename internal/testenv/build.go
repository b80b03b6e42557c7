package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

var builds struct {
	sync.Mutex
	paths map[string]string
}

// Build builds the program cmd/NAME of this repository, once for each process, and returns its path. `go build` itself
// knows whether the program is up to date, and then takes a fraction of a second.
func Build(ctx context.Context, name string) (string, error) {
	builds.Lock()
	defer builds.Unlock()
	if path, ok := builds.paths[name]; ok {
		return path, nil
	}
	root, err := repository()
	if err != nil {
		return "", fmt.Errorf("build cmd/%s: %w", name, err)
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	release, err := lock(ctx, cache, name)
	if err != nil {
		return "", err
	}
	defer release()
	path := filepath.Join(cache, "bin", name)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/"+name)
	cmd.Dir = root
	// No -race or -tags from the environment, and no cgo: what people run has neither.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cmd/%s: %w\n%s", name, err, strings.TrimSpace(string(out)))
	}
	if builds.paths == nil {
		builds.paths = map[string]string{}
	}
	builds.paths[name] = path
	return path, nil
}
