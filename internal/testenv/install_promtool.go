package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Promtool returns the path of Prometheus' promtool, which checks and tests alert rules. One that is on the PATH is
// taken; else Debian's is fetched.
func Promtool(ctx context.Context) (path string, err error) {
	if path, err := exec.LookPath("promtool"); err == nil {
		return path, nil
	}
	root, err := repository()
	if err != nil {
		return "", err
	}
	// The package is unpacked, not installed: that would start a Prometheus on port 9090.
	dir, err := install(ctx, "promtool-debian", func(dir string) error {
		if err := run(ctx, dir, filepath.Join(root, "tools", "apt"), "--unpack", dir, "prometheus"); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(dir, "usr", "bin", "promtool"), filepath.Join(dir, "promtool")); err != nil {
			return err
		}
		for _, rest := range []string{"usr", "etc", "lib", "var"} {
			if err := os.RemoveAll(filepath.Join(dir, rest)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("install promtool (by hand: apt-get install prometheus, or on darwin: brew install prometheus): %w", err)
	}
	return filepath.Join(dir, "promtool"), nil
}
