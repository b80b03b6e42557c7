package e2e

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// TestReplayOfLettersThatExpire: retention may take the letters of a replay that is at work, up to the last one and with
// nothing behind it. It comes to its end and tells how many are lost, and the same command has nothing left to go on with.
func TestReplayOfLettersThatExpire(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 1})
	w.apply()
	const n = 200
	right := w.config
	w.write(replaced(t, repositoryConfig(t), "from: userId", "from: user.id"))
	rng := rand.NewChaCha8([32]byte{})
	for i := range n {
		r := numbered(i + 1)
		padding := make([]byte, 50_000) // more than a consumer reads ahead, and nothing that compresses
		_, _ = rng.Read(padding)
		r.Value = fmt.Appendf(nil, `{"padding":"%x",%s`, padding, r.Value[1:])
		w.produce(r)
	}
	wrong := w.start("wrong", "dead_letter.stop_ratio=0", "dead_letter.stop_run=0")
	w.settle()
	wrong.drain()
	w.config = right

	from := time.Now().UTC().Add(-time.Hour).Format(time.RFC3339)
	var first outcome
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		first = w.run(w.replayCommand("--from", from, "--rate", "10")...)
	}()
	w.until(soon, "some letters are replayed", func() bool { return w.ask("SELECT count() FROM fitness_results_versions") != "0" })
	expired := kadm.Offsets{}
	expired.AddOffset(w.topic+"-dlq", 0, n, -1)
	if _, err := w.admin.DeleteRecords(t.Context(), expired); err != nil {
		t.Fatal(err)
	}
	<-ended
	got := w.answered(first)
	if want := fmt.Sprintf("%d expired before they were replayed: backfill their records from the source", got.Expired); first.code != 3 || !strings.Contains(first.stderr, want) {
		t.Errorf("exit code %d, want 3 and %q in\n%s", first.code, want, first.stderr)
	}
	if got.Expired == 0 || got.Stored == 0 || got.Stored+got.Expired != n {
		t.Errorf("%d stored, %d expired, want %d together", got.Stored, got.Expired, n)
	}
	if rows := w.ask("SELECT count() FROM fitness_results_versions"); rows != strconv.Itoa(got.Stored) {
		t.Errorf("%s rows, %d stored", rows, got.Stored)
	}
	if again := w.replay(0, "--from", from, "--rate", "10"); again.Replay != "" || again.Selected != 0 {
		t.Errorf("the same command once more: %+v", again)
	}
}
