package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/mapping"
)

type mappingCommand struct {
	Check mappingCheck `cmd:"" help:"Validate the mappings of all projections."`
	Try   mappingTry   `cmd:"" help:"Show the row that an event becomes, or why it becomes a dead letter."`
}

type mappingCheck struct{ output }

func (mappingCheck) Help() string {
	return `Compiles the mapping of every projection: paths, types, defaults, zones. Exit code 2 if
one is wrong. Nothing is connected.

Examples:

    projector mapping check
    projector mapping check -o json`
}

// checkedMapping is one projection's line of `mapping check`.
type checkedMapping struct {
	Projection string   `json:"projection"`
	Table      string   `json:"table"`
	Columns    int      `json:"columns"`
	Identity   []string `json:"identity"`
	Version    string   `json:"version"`
}

func (c mappingCheck) Run(p *program) error {
	cfg, err := p.load() // compiles every mapping
	if err != nil {
		return err
	}
	var all []checkedMapping
	for _, pr := range cfg.Projections {
		all = append(all, checkedMapping{pr.Name, pr.Table, len(pr.Columns), pr.Identity, pr.Version})
	}
	if c.json() {
		return printJSON(p.stdout, all)
	}
	t := newTable(p.stdout, "PROJECTION", "TABLE", "COLUMNS", "IDENTITY", "VERSION")
	for _, m := range all {
		t.row(m.Projection, m.Table, fmt.Sprint(m.Columns), strings.Join(m.Identity, ", "), m.Version)
	}
	return t.flush()
}

type mappingTry struct {
	output
	Projection string `help:"Whose mapping to use; needed when there are several." placeholder:"NAME"`
	Lines      bool   `help:"Every line is one event. By default that is found out: a first line that is a whole JSON text means lines."`
	File       string `arg:"" help:"File with the event or events, - for standard input."`
}

func (mappingTry) Help() string {
	return `Maps events exactly as "projector run" would, without Kafka and ClickHouse, and shows
every column's value as ClickHouse prints it. Exit code 3 if one would be a dead letter.

The file is one event, or one event a line.

Examples:

    projector mapping try event.json
    echo '{"dataId": 1}' | projector mapping try -
    projector mapping try --projection fitness_results --lines events.ndjson -o json`
}

// triedEvent is what became of one event.
type triedEvent struct {
	Event   int          `json:"event"` // counted from 1
	Outcome string       `json:"outcome"`
	Row     []triedValue `json:"row,omitempty"`
	Letter  *triedLetter `json:"dead_letter,omitempty"`
}

type triedValue struct {
	Column string `json:"column"`
	Type   string `json:"type"`
	Value  string `json:"value"`
}

type triedLetter struct {
	Class  string `json:"class"`
	Column string `json:"column,omitempty"`
	Path   string `json:"path,omitempty"`
	Value  string `json:"value,omitempty"`
	Reason string `json:"reason"`
}

func (c mappingTry) Run(p *program) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	pr, err := projection(cfg, c.Projection)
	if err != nil {
		return err
	}
	plan, err := pr.Plan()
	if err != nil {
		return err
	}
	text, err := p.read(c.File)
	if err != nil {
		return err
	}
	events := [][]byte{text}
	if c.Lines || manyLines(text) {
		events = lines(text)
	}
	letters := 0
	tried := make([]triedEvent, 0, len(events))
	for i, event := range events {
		t, err := try(plan, event)
		if err != nil {
			return err
		}
		if t.Event = i + 1; t.Letter != nil {
			letters++
		}
		tried = append(tried, t)
	}
	if c.json() {
		err = printJSON(p.stdout, tried)
	} else {
		err = printTried(p.stdout, pr, tried)
	}
	if err == nil && letters > 0 {
		return answerNo{fmt.Sprintf("dead letters: %d of %s", letters, count(len(events), "event"))}
	}
	return err
}

// read gives a file's bytes, or those of standard input.
func (p *program) read(file string) ([]byte, error) {
	if file == "-" {
		text, err := io.ReadAll(p.stdin)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return text, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, usageError{err, ""}
	}
	return text, nil
}

// manyLines reports whether the first line is a whole JSON text and not the
// only one: a file of events, not one event over several lines.
func manyLines(text []byte) bool {
	first, rest, _ := bytes.Cut(bytes.TrimLeft(text, "\r\n"), []byte("\n"))
	return len(bytes.TrimSpace(rest)) > 0 && json.Valid(first)
}

// lines are the lines that hold anything.
func lines(text []byte) (all [][]byte) {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			all = append(all, line)
		}
	}
	return all
}

func try(plan *mapping.Plan, event []byte) (triedEvent, error) {
	rows := plan.NewRows()
	err := plan.Append(rows, event, mapping.Lineage{})
	if letter, ok := errors.AsType[*mapping.Error](err); ok {
		return triedEvent{Outcome: "dead_letter", Letter: &triedLetter{
			Class: string(letter.Class), Column: letter.Column, Path: letter.Path, Value: letter.Value, Reason: letter.Reason,
		}}, nil
	}
	if err != nil {
		return triedEvent{}, err
	}
	return triedEvent{Outcome: "row", Row: valuesOf(rows, 0)}, nil
}

// valuesOf are the values of a row, without its lineage.
func valuesOf(rows *mapping.Rows, i int) (values []triedValue) {
	for _, v := range rows.Columns()[:len(rows.Plan().Spec().Columns)] {
		values = append(values, triedValue{v.Name(), v.Type().String(), v.Format(i)})
	}
	return values
}

func printTried(out io.Writer, pr *config.Projection, all []triedEvent) error {
	w := bufio.NewWriter(out)
	for i, t := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if l := t.Letter; l != nil {
			fmt.Fprintf(w, "event %d: a dead letter of %s\n", t.Event, pr.Name)
			tab := newTable(w)
			for _, line := range [][2]string{{"class", l.Class}, {"column", l.Column}, {"path", l.Path}, {"value", l.Value}, {"reason", l.Reason}} {
				if line[1] != "" {
					tab.row("  "+line[0], line[1])
				}
			}
			if err := tab.flush(); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "event %d: a row of %s\n", t.Event, pr.Table)
		if err := printRow(w, t.Row); err != nil {
			return err
		}
	}
	return w.Flush()
}

// printRow writes what an event or a source row becomes.
func printRow(w io.Writer, row []triedValue) error {
	t := newTable(w, "  COLUMN", "TYPE", "VALUE")
	for _, v := range row {
		t.row("  "+v.Column, v.Type, v.Value)
	}
	return t.flush()
}
