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

// A merge keeps one of two rows with one version, and it may be that of a backfill: then nothing in the table tells of the
// stream. A group that Kafka has forgotten must not begin at the end all the same.
func TestLatestBesideForeignRows(t *testing.T) {
	w := newWorld(t, "fitness-results")
	w.must(exitDone, "schema", "apply", "--yes")
	w.produce(story()...)
	w.db.Exec(t, "INSERT INTO fitness_results_g1 (detect_id, data_id, version, _origin, _generation) VALUES (1, 1, 1, 'backfill:x', 1)")
	r := w.start("--set", "kafka.start=latest")
	if code := r.end(); code != exitFailed || !strings.Contains(r.log.String(), "run `projector offsets restore --projection fitness_results` first") {
		t.Errorf("exit code %d, want %d with what to do:\n%s", code, exitFailed, r.log)
	}
	w.must(exitDone, "offsets", "restore", "--yes", "--reason", "a test")
	w.start("--set", "kafka.start=latest")
	w.until("the whole topic is read", func() bool {
		return w.rows("SELECT uniqExact(data_id) > 1 FROM fitness_results_g1") == "1\n"
	})
}
