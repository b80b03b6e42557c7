package e2e

import (
	"strings"
	"testing"
)

// withProjections is the repository's configuration with other projections, and without a source.
func withProjections(t testing.TB, projections string) string {
	t.Helper()
	head, _, found := strings.Cut(repositoryConfig(t), "\nprojections:\n")
	if !found {
		t.Fatal("the repository's configuration has no projections")
	}
	return head + "\nprojections:\n" + strings.TrimPrefix(projections, "\n")
}
