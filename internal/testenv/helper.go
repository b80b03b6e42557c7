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

// IsHelper tells testenv that the running program is cmd/devstack, so that keepers and ClickHouse servers run this
// very executable instead of one built from the repository.
func IsHelper() { helper.self = true }

var helper struct {
	sync.Mutex
	self bool
	path string
}

// helperPath returns the program for keepers and ClickHouse servers. It is not the running test binary: with the race
// detector, ClickHouse's mappings collide with the detector's shadow memory and every process would cost its
// overhead. `go build` itself knows whether the program is up to date, and then takes a fraction of a second.
func helperPath(ctx context.Context) (string, error) {
	helper.Lock()
	defer helper.Unlock()
	if helper.self {
		return os.Executable()
	}
	if helper.path != "" {
		return helper.path, nil
	}
	root, err := repository()
	if err != nil {
		return "", fmt.Errorf("build cmd/devstack: %w", err)
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	release, err := lock(ctx, cache, "devstack")
	if err != nil {
		return "", err
	}
	defer release()
	path := filepath.Join(cache, "bin", "devstack")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/devstack")
	cmd.Dir = root
	// No -race or -tags from the environment, and no cgo: the library is loaded with purego.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cmd/devstack: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	helper.path = path
	return path, nil
}
