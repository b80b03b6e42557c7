package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// job is what a contestant that is part of this program is told. It travels as JSON in the child's arguments.
type job struct {
	Brokers    []string
	Topic      string
	Partitions int32
	Group      string
	Events     int // the child ends when it has consumed so many and all their rows are acknowledged and committed
	ClickHouse string
	Database   string // plain: the DSN of the outbox's
	Table      string
	Lanes      int    // limit: clients, each with a connection of its own
	Variant    string // limit: comma-separated options, see limit.go
}

// Rows of one insert, the batch.rows of the default configuration.
const batchRows = 100_000

// children are the parts of this program that run as processes of their own, so that their processor time and memory
// are theirs alone.
var children = map[string]func(context.Context, job, io.Writer) error{
	"broker": serveBroker,
	"limit":  runLimit,
	"naive":  runNaive,
	"plain":  runPlain,
}

// runChild runs one of children in this process.
func runChild(ctx context.Context, name, text string, stdout io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return fmt.Errorf("read the job of %s: %w", name, err)
	}
	return children[name](ctx, j, stdout)
}

// childCommand returns the command line of a child.
func childCommand(name string, j job) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("write the job of %s: %w", name, err)
	}
	return []string{self, "child", name, string(text)}, nil
}
