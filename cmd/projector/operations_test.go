package main

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// block is one fenced block of docs/operations.md that shows commands of this program and what they print.
type block struct {
	line    int
	section string
	text    string
}

// consoleBlocks returns the ```console blocks of a Markdown text. The headings below "Read the alerts" are sections.
func consoleBlocks(text string) (blocks []block) {
	section, open := "", (*block)(nil)
	indent := ""
	for i, line := range strings.Split(text, "\n") {
		switch trimmed := strings.TrimLeft(line, " "); {
		case open == nil && strings.HasPrefix(line, "#"):
			section = strings.TrimLeft(line, "# ")
		case open == nil && trimmed == "```console":
			indent = line[:len(line)-len(trimmed)]
			open = &block{line: i + 2, section: section}
		case open != nil && trimmed == "```":
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	return blocks
}

// operationID is how the record names an operation.
var operationID = regexp.MustCompile(`\b\d{8}T\d{6}-[0-9a-f]{6}\b`)

// matchesConsole reports whether a command printed what a block shows. "…" stands for any text within a line, and alone
// in a line for any number of lines, none included; runs of blanks are equal, because columns are as wide as their content.
// An operation of the document is called otherwise in reality: known has its real ID once it was printed.
func matchesConsole(shown, printed string, known map[string]string) bool {
	pattern, fresh := "^", []string{}
	for line := range strings.Lines(shown) {
		line = strings.TrimRight(line, " \n")
		if line == "…" {
			pattern += `(?:.*\n)*?`
			continue
		}
		for i, part := range strings.Split(line, "…") {
			if i > 0 {
				pattern += ".*"
			}
			for j, word := range regexp.MustCompile(` +`).Split(part, -1) {
				if j > 0 {
					pattern += " +"
				}
				pattern += operationID.ReplaceAllStringFunc(regexp.QuoteMeta(word), func(id string) string {
					if is, ok := known[id]; ok {
						return is
					}
					fresh = append(fresh, id)
					return "(" + operationID.String() + ")"
				})
			}
		}
		pattern += " *\n"
	}
	found := regexp.MustCompile(pattern + "$").FindStringSubmatch(printed)
	if found == nil {
		return false
	}
	for i, id := range fresh {
		if is, ok := known[id]; ok && is != found[i+1] {
			return false
		}
		known[id] = found[i+1]
	}
	return true
}

func TestMatchesConsole(t *testing.T) {
	for name, c := range map[string]struct {
		shown, printed string
		want           bool
	}{
		"equal":                     {"a b\n", "a b\n", true},
		"other text":                {"a b\n", "a c\n", false},
		"a line too many":           {"a\n", "a\nb\n", false},
		"a line too few":            {"a\nb\n", "a\n", false},
		"any text":                  {"lag …\n", "lag 17\n", true},
		"any text is in one line":   {"lag …\n", "lag\n17\n", false},
		"any lines":                 {"a\n…\nd\n", "a\nb\nc\nd\n", true},
		"any lines may be none":     {"a\n…\nd\n", "a\nd\n", true},
		"any lines, then the wrong": {"a\n…\nd\n", "a\nb\ne\n", false},
		"wider columns":             {"a  b\n", "a     b\n", true},
		"not a pattern":             {"a.b\n", "axb\n", false},
		"the known operation":       {"20261130T134512-4f2a9c\n", "20250102T030405-000001\n", true},
		"another operation":         {"20261130T134512-4f2a9c\n", "20250102T030405-000002\n", false},
		"a new operation":           {"20261130T134513-77ab01\n", "20250102T030405-000002\n", true},
		"one operation twice":       {"20261130T134513-77ab01\n20261130T134513-77ab01\n", "20250102T030405-000002\n20250102T030405-000003\n", false},
		"no operation":              {"20261130T134513-77ab01\n", "a\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			known := map[string]string{"20261130T134512-4f2a9c": "20250102T030405-000001"}
			if got := matchesConsole(c.shown, c.printed, known); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// edited makes the world's commands use a configuration that differs from the repository's in one place.
func (w *world) edited(was, is string) {
	w.t.Helper()
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(was)) {
		w.t.Fatalf("%q is not in config.yaml", was)
	}
	path := filepath.Join(w.t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, bytes.Replace(text, []byte(was), []byte(is), 1), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.flags = slices.Concat([]string{"--config", path}, w.flags[2:])
}

// The columns of config.yaml that sections of docs/operations.md change, and one that they add.
const (
	resultColumn = `- {name: result,     from: result,    type: "Decimal(18, 3)"}`
	eventColumn  = `- {name: event_id,   from: eventId,   type: String}`
	noteColumn   = `- {name: note,       from: note,      type: String, default: ""}`
)

// empty is a world without a database.
func empty(t *testing.T) *world {
	t.Helper()
	return newWorld(t, "fitness-results")
}

// applied has tables and views.
func applied(t *testing.T) *world {
	t.Helper()
	w := empty(t)
	w.must(exitDone, "schema", "apply", "--yes")
	return w
}

// consumed has, besides, some events, of which one became a dead letter.
func consumed(t *testing.T) *world {
	t.Helper()
	w := applied(t)
	r := w.start()
	w.produce(story()...)
	w.until("all is consumed", func() bool { s := w.status(); return s.Lag == 0 && s.Stored > 0 })
	r.stop()
	r.end()
	return w
}

// authoritative has a source with rows, none of which came by the stream.
func authoritative(t *testing.T) *world {
	t.Helper()
	s := newSourceWorld(t, "fitness-results")
	s.fill(100)
	return s.world
}

// equal has a source, and a table that says what it says.
func equal(t *testing.T) *world {
	t.Helper()
	return equalWorld(t, 100).world
}

// differing has a source, and a table that lacks a record and has one that the source knows nothing of.
func differing(t *testing.T) *sourceWorld {
	t.Helper()
	s := equalWorld(t, 100)
	for _, d := range defects() {
		if d.id == 9000 || d.id == 7777 {
			s.plantDefect(d)
		}
	}
	return s
}

// contradicted has a table with two contents at one version.
func contradicted(t *testing.T) *world {
	t.Helper()
	s := equalWorld(t, 100)
	for _, d := range defects() {
		if d.kind == "content_conflict" {
			s.plantDefect(d)
		}
	}
	return s.world
}

// repaired has a repair that was applied, and that nobody has verified.
func repaired(t *testing.T) *world {
	t.Helper()
	s := differing(t)
	p := s.planned(exitDone, "--campaign", "10001")
	s.repaired(exitDone, "apply", p.Repairs[0].Operation)
	return s.world
}

// outboxes has two shards, and in the first one's outbox an event that is due and one that is parked.
func outboxes(t *testing.T) *world {
	t.Helper()
	w := newOutboxWorld(t)
	w.must(exitDone, "schema", "apply", "--yes")
	w.insert(0, result(900_001, 1, 2210))
	w.insert(0, result(900_002, 1, 2310))
	if _, err := w.shards[0].Exec("UPDATE outbox SET state = 'parked', attempts = 10, last_error = 'MESSAGE_TOO_LARGE: too large' WHERE aggregate_id = 900002"); err != nil {
		t.Fatal(err)
	}
	return w.world
}

// operations are the states of the world in which the sections of docs/operations.md are read.
var operations = map[string]func(t *testing.T) *world{
	"Install": empty,
	"Upgrade": applied,
	"Roll back": func(t *testing.T) *world {
		t.Helper()
		w := empty(t)
		original := w.flags
		w.edited(eventColumn, eventColumn+"\n      "+noteColumn)
		w.must(exitDone, "schema", "apply", "--yes")
		w.flags = original
		return w
	},
	"Change a mapping": func(t *testing.T) *world {
		t.Helper()
		w := applied(t)
		w.edited(resultColumn, strings.Replace(resultColumn, "}", ", round: half_even}", 1))
		return w
	},
	"Add a column": func(t *testing.T) *world {
		t.Helper()
		w := applied(t)
		w.edited(eventColumn, eventColumn+"\n      "+noteColumn)
		return w
	},
	"Backfill": authoritative,
	"Recover a lost group": func(t *testing.T) *world {
		t.Helper()
		w := consumed(t)
		client, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := kadm.NewClient(client).DeleteGroup(t.Context(), "projector.fitness_results.g1"); err != nil {
			t.Fatal(err)
		}
		return w
	},
	"Compare with the source": equal,
	"Publish the outbox":      outboxes,
	"Size a deployment":       consumed,
	"ProjectorStale":          consumed,
	"ProjectorBehind":         consumed,
	"ProjectorSignalMissing":  consumed,
	"ProjectorDeadLetters":    consumed,
	"ProjectorRecordsExpired": consumed,
	"ProjectorConflicts":      contradicted,

	"ProjectorDiscrepancies": func(t *testing.T) *world {
		t.Helper()
		s := differing(t)
		s.must(exitNo, "reconcile", "--campaign", "10001", "--settle", "300ms")
		return s.world
	},
	"ProjectorRepairUnverified": repaired,
	"ProjectorNotReconciled":    equal,

	"Correct what a comparison found": func(t *testing.T) *world {
		t.Helper()
		return differing(t).world
	},
	"Rebuild": func(t *testing.T) *world {
		t.Helper()
		_, g2 := newRebuildWorld(t, 100)
		return g2.world
	},

	"ProjectorOutboxUnsent":       outboxes,
	"ProjectorOutboxClaimsExpire": outboxes,
	"ProjectorOutboxParked":       outboxes,
}

// word is one argument of a command, as a shell takes them apart.
var word = regexp.MustCompile(`"([^"]*)"|(\S+)`)

// TestOperations runs every command of docs/operations.md, section by section, each in a world of its own.
func TestOperations(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string][]block{}
	var order []string
	for _, b := range consoleBlocks(string(text)) {
		if sections[b.section] == nil {
			order = append(order, b.section)
		}
		sections[b.section] = append(sections[b.section], b)
	}
	for section := range operations {
		if sections[section] == nil {
			t.Errorf("docs/operations.md has no commands in a section %q", section)
		}
	}
	for _, section := range order {
		t.Run(section, func(t *testing.T) {
			t.Parallel()
			prepare, ok := operations[section]
			if !ok {
				t.Fatalf("the test does not know in which state of the world the section is read: add it to operations")
			}
			w, known := prepare(t), map[string]string{}
			for _, b := range sections[section] {
				for command := range strings.SplitSeq(strings.TrimPrefix(b.text, "$ "), "\n$ ") {
					line, shown, _ := strings.Cut(command, "\n")
					args, ok := strings.CutPrefix(line, "projector ")
					if !ok {
						t.Fatalf("line %d: %q is no command of this program", b.line, line)
					}
					var words []string
					for _, m := range word.FindAllStringSubmatch(args, -1) {
						if known[m[2]] == "" && operationID.MatchString(m[2]) {
							t.Fatalf("line %d: nothing has printed the operation %s", b.line, m[2])
						}
						words = append(words, m[1]+cmp.Or(known[m[2]], m[2]))
					}
					if args == "run" { // in the background, to the end of the section
						w.start().ready()
						continue
					}
					got := w.run(words...)
					if !strings.HasSuffix(shown, "\n") {
						shown += "\n"
					}
					if got.code == exitFailed || got.code == exitUsage {
						t.Errorf("docs/operations.md:%d: `%s` ends with %d:\n%s", b.line, line, got.code, got.stderr)
					}
					if !matchesConsole(shown, got.stdout, known) {
						t.Errorf("docs/operations.md:%d: `%s` ends with %d and prints\n%s%s", b.line, line, got.code, got.stdout, got.stderr)
					}
				}
			}
		})
	}
}

// The shell commands of docs/operations.md apply folders that are there.
func TestOperationsApplyWhatIsThere(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	applied := regexp.MustCompile(`kubectl apply -k (\S+)`).FindAllStringSubmatch(string(text), -1)
	if len(applied) == 0 {
		t.Error("nothing is applied")
	}
	for _, a := range applied {
		if _, err := os.Stat(filepath.Join("../..", a[1], "kustomization.yaml")); err != nil {
			t.Errorf("%s: %v", a[0], err)
		}
	}
}
