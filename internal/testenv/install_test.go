package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestInstallFillsOnce(t *testing.T) {
	t.Setenv("DEVSTACK_CACHE", filepath.Join(t.TempDir(), "not", "there", "yet"))
	var fills, seen atomic.Int32
	var wg sync.WaitGroup
	for range 8 { // each opens the lock file for itself, as processes do
		wg.Go(func() {
			dir, err := install(t.Context(), "thing-1", func(dir string) error {
				if fills.Add(1) == 1 {
					<-time.After(200 * time.Millisecond) // long enough for another to come in, could it
				}
				return os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)
			})
			if err != nil {
				t.Error(err)
			} else if isFile(filepath.Join(dir, "file")) {
				seen.Add(1)
			}
		})
	}
	wg.Wait()
	if fills.Load() != 1 || seen.Load() != 8 {
		t.Errorf("filled %d times and seen whole %d times, want 1 and 8", fills.Load(), seen.Load())
	}
}

func TestInstallLeavesNothingHalf(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("DEVSTACK_CACHE", cache)
	broken := errors.New("broken pipe")
	fill := func(failure error) error {
		_, err := install(t.Context(), "thing-1", func(dir string) error {
			if entries, _ := os.ReadDir(dir); len(entries) > 0 {
				t.Errorf("the folder to fill holds %v", entries)
			}
			return errors.Join(os.WriteFile(filepath.Join(dir, "half"), nil, 0o644), failure)
		})
		return err
	}
	// What a process that was killed while it fetched leaves behind.
	if err := os.MkdirAll(filepath.Join(cache, "thing-1.partial", "junk"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := fill(broken); !errors.Is(err, broken) {
		t.Errorf("install says %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "thing-1*")); len(left) != 1 || !strings.HasSuffix(left[0], ".lock") {
		t.Errorf("left behind: %q", left)
	}
	if err := fill(nil); err != nil {
		t.Errorf("install after a failure says %v", err)
	}
}

// A machine without the package clients gets one line for each server: what is missing and what to do.
func TestInstallSaysHowToDoItByHand(t *testing.T) {
	t.Setenv("DEVSTACK_CACHE", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	t.Setenv("JAVA_HOME", "")
	tests := []struct{ server, want string }{
		{"clickhouse", "npm install @chdb/lib-"},
		{"kafka", "apt-get install maven"},
		{"oracle", "there are clickhouse, kafka, mariadb"},
	}
	for _, tt := range tests {
		t.Run(tt.server, func(t *testing.T) {
			err := Install(t.Context(), tt.server)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is not one line with %q: %v", tt.want, err)
			}
		})
	}
}

func TestIdentifier(t *testing.T) {
	for name, want := range map[string]string{
		"TestA/b c":                     "TestA_b_c",
		"Tübingen`; DROP":               "T_bingen___DROP",
		strings.Repeat("long_name_", 9): strings.Repeat("long_name_", 5),
	} {
		if got := identifier(name); got != want {
			t.Errorf("identifier(%q) = %q, want %q", name, got, want)
		}
	}
}
