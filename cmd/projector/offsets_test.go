package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestOffsetsRestoreInterrupted sends the signal while Kafka has the commit: the
// record of the operation is closed nevertheless. Running it would stay for ever.
func TestOffsetsRestoreInterrupted(t *testing.T) {
	w := newWorld(t, "fitness-results")
	w.must(exitDone, "schema", "apply", "--yes")
	ctx, interrupt := context.WithCancel(t.Context())
	w.cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		interrupt()
		return nil, errors.New("the connection ends"), true
	})
	args := []string{"offsets", "restore", "--yes", "--reason", "a test"}
	if code := run(ctx, slices.Concat(w.flags, args), nil, strings.NewReader(""), io.Discard, io.Discard); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if got := w.rows("SELECT kind, state, error LIKE '%commit offsets of group%' FROM projector_operations ORDER BY sequence DESC LIMIT 1"); got != "offsets_restore\tfailed\t1\n" {
		t.Errorf("the record ends with %q", got)
	}
}
