package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// TestMain makes the test binary the program when a script, or a test that
// needs a process of its own, calls it "projector".
func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"projector": func() {
		if point := os.Getenv("REBUILD_KILL_AT"); point != "" {
			reached = func(at string) {
				if at == point {
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
					select {}
				}
			}
		}
		main()
	}})
}

// leakChecked fails when the tests leave goroutines behind.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts holds what people and their scripts see: output, streams and exit
// codes. No server is needed.
func TestScripts(t *testing.T) {
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("REPOSITORY", repository)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exit": exits},
	})
}

// exits runs a command and holds its exit code, which "!" alone does not:
// exit 3 projector schema check.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit CODE COMMAND…")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		failed, ok := err.(interface{ ExitCode() int })
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = failed.ExitCode()
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}
