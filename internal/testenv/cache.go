package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// CacheDir returns the folder that keeps what Install fetched: $DEVSTACK_CACHE, or .cache at the top of the
// repository that holds the working directory, or the user's own cache folder where there is no repository. The
// folder need not exist yet. (A name that starts with PROJECTOR_ would be a key of projector's configuration.)
func CacheDir() (string, error) {
	if dir := os.Getenv("DEVSTACK_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	if root, err := repository(); err == nil {
		return filepath.Join(root, ".cache"), nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("choose a cache folder (set DEVSTACK_CACHE): %w", err)
	}
	return filepath.Join(dir, "projector"), nil
}

// workingDir is the one at the start: a test may have left it since.
var workingDir, workingDirErr = os.Getwd()

// repository returns the folder of this module's go.mod at or above the working directory. `go test` starts a test in
// its package's folder, so tests always find it.
func repository() (string, error) {
	dir, err := workingDir, workingDirErr
	if err != nil {
		return "", err
	}
	for {
		if isFile(filepath.Join(dir, "go.mod")) && isFile(filepath.Join(dir, "cmd", "devstack", "main.go")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("the working directory is not inside projector's repository")
		}
		dir = parent
	}
}

// lock takes the exclusive lock between processes on the named resource of the cache and returns its release.
func lock(ctx context.Context, cache, name string) (release func(), err error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("create the cache folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(cache, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	tick := time.NewTicker(50 * time.Millisecond) // flock knows no deadline
	defer tick.Stop()
	for {
		locked, err := TryLock(f)
		if locked {
			return func() { f.Close() }, nil
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for %s, which another process has locked: %w", f.Name(), ctx.Err())
		case <-tick.C:
		}
	}
}

// TryLock takes the exclusive lock between processes on f, or reports that another holds it. The lock ends when f is
// closed or its process dies; a child does not inherit it, as os/exec hands down no file unasked.
func TryLock(f *os.File) (locked bool, err error) {
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
