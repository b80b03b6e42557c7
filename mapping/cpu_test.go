package mapping

import (
	"syscall"
	"testing"
	"time"
)

// cpuTime reports the processor time per operation as well, which other load
// on the machine does not touch.
func cpuTime(b *testing.B, per int) func() {
	now := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	start := now()
	return func() { b.ReportMetric(float64(now()-start)/float64(b.N)/float64(per), "cpu-ns/row") }
}
