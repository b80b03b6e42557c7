package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// output is the flag of commands that print results.
type output struct {
	Output string `short:"o" help:"Format of the result: table for people, json for programs." enum:"table,json" default:"table" placeholder:"FORMAT"`
}

func (o output) json() bool { return o.Output == "json" }

// checkedWriter is stdout. It remembers what could not be written, so that half a result never ends with the exit code
// of a whole one, whoever did not look.
type checkedWriter struct {
	w      io.Writer
	failed error
}

func (c *checkedWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	if c.failed == nil {
		c.failed = err
	}
	return n, err
}

// with is the error of a command and that of its results, which decides the exit code.
func (c *checkedWriter) with(err error) error {
	switch {
	case c.failed == nil:
		return err
	case errors.Is(err, c.failed): // its text alone: an answer may be joined to it
		return errors.New(err.Error())
	case err == nil:
		return fmt.Errorf("write the result: %w", c.failed)
	}
	return fmt.Errorf("write the result: %w; apart from that, %s", c.failed, err.Error())
}

// printJSON writes one value with a line end.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// orEmpty makes a list that programs can count on: [] and not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// printEach writes several results for people, with an empty line between them.
func printEach[T interface{ print(w io.Writer) error }](w io.Writer, all []T) error {
	for i, one := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := one.print(w); err != nil {
			return err
		}
	}
	return nil
}

// table aligns rows in columns, two spaces between them.
type table struct {
	w *tabwriter.Writer
}

func newTable(w io.Writer, header ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(header) > 0 {
		t.row(header...)
	}
	return t
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = printable(c)
	}
	fmt.Fprintln(t.w, strings.TrimRight(strings.Join(cells, "\t"), " "))
}

func (t *table) flush() error {
	if err := t.w.Flush(); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// printable keeps what an event holds from steering the terminal or breaking
// the table.
func printable(s string) string {
	clean := func(r rune) bool { return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }
	if strings.IndexFunc(s, clean) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if clean(r) {
			fmt.Fprintf(&b, `\x%02x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
