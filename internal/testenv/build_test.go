package testenv

import (
	"path/filepath"
	"slices"
	"testing"
)

// What a test of the program depends on is the program whole: its own folder, packages that no test imports, and what
// is embedded in them.
func TestSources(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	got, err := sources(t.Context(), root, "projector")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cmd/projector", "projector", "internal/ops/assets/page.js", "go.mod"} {
		if !slices.Contains(got, filepath.Join(root, want)) {
			t.Errorf("%s is not among %q", want, got)
		}
	}
}
