package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ClickHouse/ch-go"

	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/projector"
)

// TestOneRemedy: whoever shows an error adds what to do about it, and so does
// every command at its end.
func TestOneRemedy(t *testing.T) {
	refused := &projector.InsertError{Class: projector.Fatal, Code: 497, Message: "not enough privileges", Err: &ch.Exception{Code: 497, Message: "not enough privileges"}}
	if clickhouse.Code(refused) != 497 {
		t.Fatalf("code %d", clickhouse.Code(refused))
	}
	for name, add := range map[string]func(error) error{
		"admitted":                   admitted,
		"remedied":                   remedied,
		"admitted twice":             func(err error) error { return admitted(fmt.Errorf("look: %w", admitted(err))) },
		"remedied twice":             func(err error) error { return remedied(fmt.Errorf("run: %w", remedied(err))) },
		"remedied and then admitted": func(err error) error { return admitted(fmt.Errorf("run: %w", remedied(err))) },
	} {
		t.Run(name, func(t *testing.T) {
			if text := add(refused).Error(); strings.Count(text, rights) != 1 {
				t.Errorf("the remedy stands %d times: %s", strings.Count(text, rights), text)
			}
		})
	}
}
