package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Install fetches the named servers, "clickhouse", "kafka" and "mariadb", and "promtool", or all of them, unless they are
// there already: ClickHouse, Kafka and promtool into CacheDir, MariaDB as packages of the system with its first data in
// CacheDir. "chromium", a package of the system too, is fetched only if it is named: it is large, and one test needs it.
// A start of a server installs it just as well; this is for doing it beforehand, and afterwards nothing needs the network. The error tells of every server
// that could not be installed and how to do it by hand.
func Install(ctx context.Context, servers ...string) error {
	if len(servers) == 0 {
		servers = []string{"clickhouse", "kafka", "mariadb", "promtool"}
	}
	var failed []error
	for _, server := range servers {
		var err error
		switch server {
		case "clickhouse":
			_, err = installClickHouse(ctx)
		case "kafka":
			var dir string
			if dir, err = installKafka(ctx); err == nil {
				_, err = kafkaClassArchive(ctx, dir)
			}
		case "mariadb":
			_, err = installMariaDB(ctx)
		case "promtool":
			_, err = Promtool(ctx)
		case "chromium":
			_, err = installChromium(ctx)
		default:
			err = fmt.Errorf("install %q: there are clickhouse, kafka, mariadb, promtool and chromium", server)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
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
	fmt.Fprintf(os.Stderr, "testenv: installing %s into %s\n", name, cache)
	if err := fill(scratch); err != nil {
		return "", err
	}
	return dir, os.Rename(scratch, dir)
}

// run runs a program in dir; what it printed is part of the error, which stays one line.
func run(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second // its children may hold the output open when ctx has ended it
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, oneLine(strings.TrimSpace(string(out))))
	}
	return nil
}
