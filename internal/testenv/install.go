package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// clickHouseVersion is the npm version of @chdb/lib-*, which carries ClickHouse 26.7.
const clickHouseVersion = "26.7.3-stable.1"

// installClickHouse returns the path of libchdb in the cache, fetching the npm package if it is not there.
func installClickHouse(ctx context.Context) (library string, err error) {
	pkg, ok := map[string]string{
		"linux/amd64":  "@chdb/lib-linux-x64-gnu",
		"linux/arm64":  "@chdb/lib-linux-arm64-gnu",
		"darwin/amd64": "@chdb/lib-darwin-x64",
		"darwin/arm64": "@chdb/lib-darwin-arm64",
	}[runtime.GOOS+"/"+runtime.GOARCH]
	if !ok {
		return "", fmt.Errorf("install ClickHouse: there is no package for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	pkg += "@" + clickHouseVersion
	dir, err := install(ctx, "clickhouse-"+clickHouseVersion, func(dir string) error {
		err := run(ctx, dir, "npm", "install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--prefix=.",
			"--cache=npm", pkg)
		if err != nil {
			return fmt.Errorf("npm package %s: %w", pkg, err)
		}
		found, err := filepath.Glob(filepath.Join(dir, "node_modules", "@chdb", "*", "libchdb.*"))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("npm package %s contains %d files libchdb.*, expected one", pkg, len(found))
		}
		if err := os.Rename(found[0], filepath.Join(dir, "libchdb.so")); err != nil {
			return err
		}
		return removeAll(filepath.Join(dir, "node_modules"), filepath.Join(dir, "npm"))
	})
	if err != nil {
		return "", fmt.Errorf("install ClickHouse (Node's npm is needed once; by hand: npm install %s): %w", pkg, err)
	}
	return filepath.Join(dir, "libchdb.so"), nil
}

// install returns the named folder of the cache, filled by fill if it does not exist. It appears whole or not at all,
// and of several processes that need it one fills it while the others wait.
func install(ctx context.Context, name string, fill func(dir string) error) (dir string, err error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(cache, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	release, err := lock(ctx, cache, name)
	if err != nil {
		return "", err
	}
	defer release()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	scratch := dir + ".partial"
	defer os.RemoveAll(scratch)
	if err := os.RemoveAll(scratch); err != nil {
		return "", err
	}
	if err := os.Mkdir(scratch, 0o755); err != nil {
		return "", err
	}
	if err := fill(scratch); err != nil {
		return "", err
	}
	return dir, os.Rename(scratch, dir)
}

func run(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, oneLine(strings.TrimSpace(string(out))))
	}
	return nil
}

func removeAll(paths ...string) error {
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}
