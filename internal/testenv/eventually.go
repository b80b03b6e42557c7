package testenv

import (
	"testing"
	"time"
)

// Eventually polls until done is true, and fails the test after a minute with what was awaited: what takes a second alone
// may take long on a machine that is busy with something else. It is for foreign processes, which offer nothing to wait
// on; for our own goroutines there are channels and testing/synctest.
func Eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-timeout.C:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
