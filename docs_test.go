package repository_test

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	makeCommand  = regexp.MustCompile("(?m)(?:`|^ {4}|^)make ([a-z0-9-]+)")
	makeTarget   = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
)

// documents returns the text of every Markdown file of the repository by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			text, err := os.ReadFile(path)
			texts[path] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	texts := documents(t)
	for path, text := range texts {
		for _, match := range markdownLink.FindAllStringSubmatch(text, -1) {
			link, err := url.Parse(match[1])
			if err != nil {
				t.Errorf("%s: %s: %v", path, match[1], err)
				continue
			}
			if link.Scheme != "" { // another site: not this test's business, and there may be no network
				continue
			}
			target := path
			if link.Path != "" {
				target = filepath.Join(filepath.Dir(path), link.Path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", path, match[1])
				continue
			}
			if link.Fragment != "" && !anchors(texts[target])[link.Fragment] {
				t.Errorf("%s links to %s, but %s has no such heading", path, match[1], target)
			}
		}
	}
}

// TestFencesAreClosed holds that every block of code ends, and stands apart: what follows it would be read as code.
func TestFencesAreClosed(t *testing.T) {
	for path, text := range documents(t) {
		open := 0 // the line of the block's first fence
		for i, line := range strings.Split(text, "\n") {
			fence := strings.TrimSpace(line)
			switch {
			case !strings.HasPrefix(fence, "```"):
			case open == 0:
				open = i + 1
			case fence == "```":
				open = 0
			default:
				t.Errorf("%s:%d: a block of code begins within the one of line %d", path, i+1, open)
				open = i + 1
			}
		}
		if open != 0 {
			t.Errorf("%s:%d: a block of code is not closed", path, open)
		}
	}
}

// TestDocumentsAreIndexed holds that every page is named by its folder's index: one that is not is not found.
func TestDocumentsAreIndexed(t *testing.T) {
	texts := documents(t)
	for path := range texts {
		folder, name := filepath.Split(path)
		index := texts[filepath.Join(folder, "README.md")]
		if strings.HasPrefix(folder, "docs") && name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("%sREADME.md does not link to %s", folder, name)
		}
	}
}

// anchors returns the names by which the headings of a Markdown text can be linked to.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', r >= 'a' && r <= 'z', r >= '0' && r <= '9', r > 127:
				return r
			}
			return -1
		}, strings.ToLower(match[1]))
		names[name] = true
	}
	return names
}

func TestMakeTargetsInDocumentsExist(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, match := range makeTarget.FindAllStringSubmatch(string(makefile), -1) {
		targets[match[1]] = true
	}
	for path, text := range documents(t) {
		for _, match := range makeCommand.FindAllStringSubmatch(text, -1) {
			if !targets[match[1]] {
				t.Errorf("%s says `make %s`, which the Makefile does not know", path, match[1])
			}
		}
	}
}
