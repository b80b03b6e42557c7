package testenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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
			return fmt.Errorf("npm package %s has %d files libchdb.*, expected one", pkg, len(found))
		}
		if err := os.Rename(found[0], filepath.Join(dir, "libchdb.so")); err != nil {
			return err
		}
		if err := os.RemoveAll(filepath.Join(dir, "node_modules")); err != nil {
			return err
		}
		return os.RemoveAll(filepath.Join(dir, "npm"))
	})
	if err != nil {
		return "", fmt.Errorf("install ClickHouse (Node's npm is needed once; by hand: npm install %s): %w", pkg, err)
	}
	return filepath.Join(dir, "libchdb.so"), nil
}
