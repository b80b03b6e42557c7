package mapping

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented returns the cells of the tables with the given header in the
// mapping reference.
func documented(t *testing.T, header string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("../docs/mapping.md")
	if err != nil {
		t.Fatal(err)
	}
	inTable := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == header:
			inTable = true
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case inTable && !strings.HasPrefix(line, "| ---"):
			cells := strings.Split(strings.Trim(line, "|"), " | ")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

var docOption = regexp.MustCompile(`, (zone|unit|round): ([\w/]+)`)

// Every example of the mapping reference is true.
func TestReferenceIsTrue(t *testing.T) {
	rows := documented(t, "| column | in the event | becomes |")
	if len(rows) < 90 {
		t.Fatalf("only %d examples found", len(rows))
	}
	for _, cells := range rows {
		if len(cells) != 3 {
			t.Errorf("%q is no example", cells)
			continue
		}
		typ, event := strings.Trim(cells[0], "`"), strings.Trim(cells[1], "`")
		var options Column
		for _, m := range docOption.FindAllStringSubmatch(typ, -1) {
			switch m[1] {
			case "zone":
				options.Zone = m[2]
			case "unit":
				options.Unit = m[2]
			case "round":
				options.Round = m[2]
			}
		}
		plan := mustCompile(t, single(t, docOption.ReplaceAllString(typ, ""), options))
		batch := plan.NewRows()
		err := plan.Append(batch, fmt.Appendf(nil, `{"id":1,"version":1,"v":%s}`, event), Lineage{})
		got := ""
		var e *Error
		switch {
		case errors.As(err, &e):
			got = "refused: " + string(e.Class)
		case err != nil:
			got = err.Error()
		default:
			got = "`" + batch.Format(0, "v") + "`"
		}
		if got != cells[2] {
			t.Errorf("%s: %s becomes %s, the reference says %s", typ, event, got, cells[2])
		}
	}
}

// The reference lists the classes in the order of their precedence.
func TestReferenceListsEveryClass(t *testing.T) {
	var listed []Class
	for _, cells := range documented(t, "| class | means | usual remedy |") {
		listed = append(listed, Class(strings.Trim(cells[0], "`")))
	}
	slices.Sort(listed)
	want := Classes()
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("the reference lists %v, want %v", listed, want)
	}
}
