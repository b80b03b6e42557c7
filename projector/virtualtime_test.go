//go:build !synctests

package projector

import (
	"os/exec"
	"runtime/debug"
	"testing"
)

// TestInVirtualTime runs the tests of this package that have the build tag synctests. They live in bubbles of virtual
// time, with a broker on a network in memory, so that a lost session costs no seconds and no test waits by guessing.
// For that franz-go must be built with the tag: its mutexes then wait in a way that lets the clock go on. `go test
// -tags synctests` runs them directly.
func TestInVirtualTime(t *testing.T) {
	args := []string{"test", "-tags", "synctests", "-count", "1", "-timeout", "5m"}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	if testing.Short() {
		args = append(args, "-short")
	}
	if testing.Verbose() {
		args = append(args, "-v")
	}
	out, err := exec.CommandContext(t.Context(), "go", append(args, ".")...).CombinedOutput()
	if err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	t.Logf("%s", out)
}
