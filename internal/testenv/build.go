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
	if err := readSources(ctx, root, name); err != nil {
		return "", fmt.Errorf("build cmd/%s: %w", name, err)
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

// readSources opens what cmd/NAME is built from. `go test` keeps the result of a test until a file that the test itself
// has opened changes, and knows nothing of what the compiler has: a program that was broken would be reported as good.
func readSources(ctx context.Context, root, name string) error {
	paths, err := sources(ctx, root, name)
	if err != nil {
		return err
	}
	for _, path := range paths {
		f, err := os.Open(path) // of a folder `go test` looks at all that is in it
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

// sources are the folders and files of this repository from which cmd/NAME is built, go.mod with the versions of the
// rest among them.
func sources(ctx context.Context, root, name string) (paths []string, err error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{.Dir}}{{range .EmbedFiles}}\n{{$.Dir}}/{{.}}{{end}}", "./cmd/"+name)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list its packages: %w", err)
	}
	for path := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		if strings.HasPrefix(path, root+string(filepath.Separator)) {
			paths = append(paths, path)
		}
	}
	return append(paths, filepath.Join(root, "go.mod")), nil
}
