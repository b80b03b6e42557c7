package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/chprojector/projector/internal/config"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err    error
		code   int
		stderr string
	}{
		{nil, exitDone, ""},
		{errors.New("connection refused"), exitFailed, "projector: connection refused\n"},
		{loggedError{errors.New("told")}, exitFailed, ""},
		{usageError{errors.New("unknown flag"), "projector run"}, exitUsage, "projector: unknown flag\nRun \"projector run --help\" for more.\n"},
		{usageError{errors.New("no such file"), ""}, exitUsage, "projector: no such file\n"},
		{config.Problems{{Origin: "c.yaml", Line: 3, Key: "lanes", Message: "bad"}}, exitUsage, "projector: the configuration has 1 problem:\n  c.yaml:3: lanes: bad\n"},
		{answerNo{"drift"}, exitNo, "projector: drift\n"},
		{inconclusive{"moving"}, exitMoving, "projector: moving\n"},
		{fmt.Errorf("wrapped: %w", answerNo{"drift"}), exitNo, "projector: wrapped: drift\n"},
	} {
		var out bytes.Buffer
		report(&out, c.err)
		if got := exitCode(c.err); got != c.code || out.String() != c.stderr {
			t.Errorf("%v: exit code %d and %q, want %d and %q", c.err, got, out.String(), c.code, c.stderr)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain ü 😀": "plain ü 😀", "a\tb\nc": `a\x09b\x0ac`, "\x1b[31m": `\x1b[31m`, "\u009b1m": `\x9b1m`, "": "",
	} {
		if got := printable(in); got != want {
			t.Errorf("%q is printed as %q, want %q", in, got, want)
		}
	}
}

// Long texts are shown where they differ.
func TestWhereTheyDiffer(t *testing.T) {
	const x = "x"
	for _, c := range []struct{ name, a, b, wantA, wantB string }{
		{"short", "ü", "u", "ü", "u"},
		{"the end", strings.Repeat(x, 400) + "a", strings.Repeat(x, 400) + "b", "…" + strings.Repeat(x, 20) + "a", "…" + strings.Repeat(x, 20) + "b"},
		{"the beginning", "a" + strings.Repeat(x, 400), "", "a" + strings.Repeat(x, 199) + "…", ""},
		{"the length", strings.Repeat(x, 400), strings.Repeat(x, 300), "…" + strings.Repeat(x, 120), "…" + strings.Repeat(x, 20)},
		{"within characters", strings.Repeat("🏃", 100) + "é", strings.Repeat("🏃", 100) + "è", "…" + strings.Repeat("🏃", 5) + "é", "…" + strings.Repeat("🏃", 5) + "è"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if a, b := whereTheyDiffer(c.a, c.b); a != c.wantA || b != c.wantB {
				t.Errorf("%q and %q", a, b)
			}
		})
	}
}

func TestPrintStatus(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	n := func(v int64) *int64 { return &v }
	age := 61.4
	all := []*projectionStatus{{
		Projection: "orders", Table: "orders_g2", Group: "projector.orders.g2", Lag: n(15), Newest: &at, Age: &age,
		Partitions: []partitionStatus{
			{Topic: "orders", Partition: 0, Committed: n(90), End: n(100), Lag: n(10), Stored: n(89)},
			{Topic: "orders", Partition: 1, End: n(5), Lag: n(5)},
			{Topic: "orders", Partition: 2, Committed: n(1), End: n(9), Lag: n(0), Expired: 8, Stored: n(0)},
		},
		Letters: []letterStatus{
			{Topic: "orders-dlq", Letters: 20000, Scanned: 10000, Classes: map[string]int{"range": 1, "type": 9998, "": 1}, Newest: &at},
			{Topic: "returns-dlq"},
		},
		Reconciled:    []comparisonStatus{{"mysql", "7", "fields", "different", at}},
		Discrepancies: map[string]uint64{"stale": 1, "missing": 2},
	}, {
		Projection: "users", Table: "users_g1", Group: "projector.users.g1",
		Partitions: []partitionStatus{{Topic: "users", Partition: 0, Stored: n(7)}},
		Unknown:    []string{"offsets: ping kafka: connection refused"},
	}}
	want := `projection  orders
table       orders_g2
group       projector.orders.g2
lag         15
newest row  1m1s ago (2026-01-02T03:04:05Z)
reconciled  2026-01-02T03:04:05Z against mysql: campaign 7 different
discrepancies  missing 2, stale 1

TOPIC   PARTITION  COMMITTED  END  LAG                                STORED
orders  0          90         100  10                                 89
orders  1          none       5    5                                  -
orders  2          1          9    0 (8 expired unread)  0

DEAD LETTERS  COUNT  NEWEST                CLASSES
orders-dlq    20000  2026-01-02T03:04:05Z  type 9998, (not the projector's) 1, range 1 (of the newest 10000)
returns-dlq   0      -                     -

projection  users
table       users_g1
group       projector.users.g1
lag         unknown
newest row  none
reconciled  never
discrepancies  none known

TOPIC  PARTITION  COMMITTED  END      LAG      STORED
users  0          unknown    unknown  unknown  7
unknown  offsets: ping kafka: connection refused
`
	var out bytes.Buffer
	if err := printEach(&out, all); err != nil {
		t.Fatal(err)
	}
	squeeze := func(s string) []string { // how wide a column is does not matter here
		var lines []string
		for line := range strings.Lines(s) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		return lines
	}
	if diff := cmp.Diff(squeeze(want), squeeze(out.String())); diff != "" {
		t.Errorf("-want +got:\n%s\n%s", diff, out.String())
	}
}

// TestCommandsAreDescribed holds docs/commands.md and the grammar together.
func TestCommandsAreDescribed(t *testing.T) {
	text, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	parser, err := kong.New(&commandLine{}, kong.Name("projector"))
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(false) {
		if heading := "\n## " + leaf.FullPath() + "\n"; !strings.Contains(string(text), heading) {
			t.Errorf("docs/commands.md has no section %q", strings.TrimSpace(heading))
		}
		for _, f := range leaf.Flags {
			if f.Name != "help" && !strings.Contains(string(text), "`--"+f.Name) {
				t.Errorf("docs/commands.md does not name --%s of %s", f.Name, leaf.FullPath())
			}
		}
	}
}

// TestAnswerWithoutResult holds that an answer never decides the exit code of a command whose result was not written,
// whoever joins the two.
func TestAnswerWithoutResult(t *testing.T) {
	full := errors.New("no space left on device")
	for _, answer := range []error{nil, answerNo{"3 rows refused"}, inconclusive{"moving"}} {
		results := &checkedWriter{w: writer(func([]byte) (int, error) { return 0, full })}
		err := results.with(errors.Join(printJSON(results, 1), answer))
		if code := exitCode(err); code != exitFailed {
			t.Errorf("%v: exit code %d", answer, code)
		}
		for _, told := range []error{full, answer} {
			if told != nil && strings.Count(err.Error(), told.Error()) != 1 {
				t.Errorf("%q does not say %q once", err, told)
			}
		}
	}
}

// TestResultsAreWritten holds that a full disk is a failure, whichever command writes to it and whatever its answer is.
func TestResultsAreWritten(t *testing.T) {
	full := errors.New("no space left on device")
	for name, args := range map[string][]string{
		"done":   {"outbox", "ddl", "--grants"},
		"the no": {"mapping", "try", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr strings.Builder
			args := append([]string{"--config", "../../config.yaml"}, args...)
			code := run(t.Context(), args, nil, strings.NewReader("{}"), writer(func([]byte) (int, error) { return 0, full }), &stderr)
			if code != exitFailed || !strings.Contains(stderr.String(), full.Error()) {
				t.Errorf("exit code %d, %s", code, stderr.String())
			}
		})
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
