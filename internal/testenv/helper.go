package testenv

import (
	"context"
	"os"
	"sync/atomic"
)

// IsHelper tells testenv that the running program is cmd/devstack, so that keepers and ClickHouse servers run this
// very executable instead of one built from the repository.
func IsHelper() { isHelper.Store(true) }

var isHelper atomic.Bool

// helperPath returns the program for keepers and ClickHouse servers. It is not the running test binary: with the race
// detector, ClickHouse's mappings collide with the detector's shadow memory and every process would cost its
// overhead.
func helperPath(ctx context.Context) (string, error) {
	if isHelper.Load() {
		return os.Executable()
	}
	return Build(ctx, "devstack")
}
