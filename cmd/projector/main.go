// Command projector turns Kafka events into the current rows of ClickHouse
// tables, and keeps them right.
//
// Each command has files of its own name. main maps arguments and environment to
// an exit code; everything below it can be run inside a test.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
	_ "time/tzdata" // zones of timestamps must not depend on what the machine has installed
)

// garbagePercent is how far the heap may grow between collections, unless GOGC
// says otherwise. Nearly all of it is batches and fetched bytes that live for a
// second, so Go's default of 100 holds twice of what is needed; half of that
// costs no measurable processor time.
const garbagePercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	ctx := untilSignal()
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)) //nolint:forbidigo // this is main
}

// sameSignal is how long the first signal may echo. timeout(1) and every parent
// that passes on what the terminal has sent to the whole group deliver one
// request twice, within microseconds, and that must not cut the drain off.
const sameSignal = 100 * time.Millisecond

// untilSignal is done with the first SIGTERM or SIGINT, which asks for an
// orderly end. The second one is not asked of anybody: it ends the process at
// once, whatever hangs.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		first, at := <-signals, time.Now()
		cancel()
		for next := range signals {
			if next != first || time.Since(at) > sameSignal {
				os.Exit(exitForced) //nolint:forbidigo // clean-up is what may hang
			}
		}
	}()
	return ctx
}

// run executes one command and returns its exit code. environ is as from
// os.Environ.
func run(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	results := &checkedWriter{w: stdout}
	p := &program{environ: environ, stdin: stdin, stdout: results, stderr: stderr}
	err := results.with(p.execute(ctx, args))
	report(stderr, err)
	return exitCode(err)
}
