package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ClickHouse/ch-go"
	"github.com/go-sql-driver/mysql"

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

// TestShardRemedy holds that a shard that refuses the user, or whose table is locked, says what to do.
func TestShardRemedy(t *testing.T) {
	for number, want := range map[uint16]string{1045: shardAddress, 1049: shardAddress, 1142: shardRights, 1205: shardLocked} {
		err := fmt.Errorf("connect to shard s0: %w", &mysql.MySQLError{Number: number, Message: "denied"})
		if text := admitted(admitted(err)).Error(); strings.Count(text, want) != 1 {
			t.Errorf("%d: got %s; want once %q", number, text, want)
		}
	}
	if err := fmt.Errorf("read: %w", &mysql.MySQLError{Number: 1064}); admitted(err).Error() != err.Error() {
		t.Errorf("a wrong query is no question of rights: %v", admitted(err))
	}
}
