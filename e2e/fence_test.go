package e2e

import (
	"strings"
	"testing"
)

// TestFenced raises the fence of a newer generation under a running process. It ends, so that nobody takes a writer
// whose rows are refused for one that works, and it has committed and parked nothing: whoever goes on loses nothing.
func TestFenced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{partitions: 2})
	w.apply()
	p := w.start("projector", "lanes=2")
	p.ready()
	w.exec(
		"ALTER TABLE fitness_results_g1 DROP CONSTRAINT generation_fence",
		"ALTER TABLE fitness_results_g1 ADD CONSTRAINT generation_fence CHECK _generation >= 2",
	)
	g := events(t, 500, 31)
	w.fill(g)
	p.ends(soon, 1)
	if lag := w.lag(); lag != int64(g.Len()) {
		t.Errorf("lag %d, want %d: nothing committed", lag, g.Len())
	}
	if letters := w.letters(); len(letters) > 0 {
		t.Errorf("%d letters", len(letters))
	}
	for _, want := range []string{`"level":"error"`, "generation_fence"} {
		if !strings.Contains(p.log(), want) {
			t.Errorf("no %q in the log", want)
		}
	}
}
