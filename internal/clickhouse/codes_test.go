package clickhouse

import (
	"strconv"
	"strings"
	"testing"

	"github.com/chprojector/projector/internal/testenv"
)

// codeNames are all error codes of the server.
func codeNames(t *testing.T) map[int]string {
	t.Helper()
	out, err := testenv.SharedClickHouse(t).Query(t.Context(), "SELECT number, errorCodeToName(number) FROM numbers(1, 10000) WHERE errorCodeToName(number) != ''")
	if err != nil {
		t.Fatal(err)
	}
	names := map[int]string{}
	for line := range strings.Lines(out) {
		code, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		n, err := strconv.Atoi(code)
		if err != nil {
			t.Fatal(err)
		}
		names[n] = name
	}
	if len(names) < 500 {
		t.Fatalf("the server names only %d codes", len(names))
	}
	return names
}
