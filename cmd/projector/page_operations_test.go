package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
)

// TestTell holds what the page says of operations whose states no command leaves for long.
func TestTell(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	removal := json.RawMessage(`{"action": "remove", "records": 2}`)
	for name, c := range map[string]struct {
		op             audit.Operation
		ago            time.Duration
		progress, next string
		silent         bool
	}{
		"a removal that is planned": {
			audit.Operation{Kind: audit.Repair, State: audit.Planned, Scope: removal},
			time.Hour,
			"remove of 2 records", "projector repair apply ID --actor SECOND-PERSON", false,
		},
		"a removal that is approved": {
			audit.Operation{Kind: audit.Repair, State: audit.Approved, Scope: removal},
			time.Hour,
			"remove of 2 records", "projector repair apply ID", false,
		},
		"a repair at work": {
			audit.Operation{Kind: audit.Repair, State: audit.Running, Scope: removal},
			time.Second,
			"remove of 2 records", "", false,
		},
		"a repair whose process died": {
			audit.Operation{Kind: audit.Repair, State: audit.Running, Scope: removal},
			time.Minute,
			"remove of 2 records", "projector repair apply ID", true,
		},
		"a repair that was wrong": {
			audit.Operation{Kind: audit.Repair, State: audit.Refuted, Scope: removal, Outcome: json.RawMessage(`{"records":2,"applied":2}`), Verification: json.RawMessage(`{"records":2,"verified":1,"refuted":1}`)},
			0,
			"remove of 2 records: 2 applied, 0 skipped, 1 verified, 1 refuted", "projector repair plan, to see what differs", false,
		},
		"a rebuild before its first step": {
			audit.Operation{Kind: audit.Rebuild, State: audit.Failed, Scope: json.RawMessage(`{"from":1,"to":2}`)},
			0,
			"generation 1 to 2, 0 of 9 steps done; step 1: create the table", "projector rebuild start", false,
		},
		"a rebuild that cannot be read": {audit.Operation{Kind: audit.Rebuild, State: audit.Failed}, 0, "", "", false},
		"a backfill that was killed": {
			audit.Operation{Kind: audit.Backfill, State: audit.Running, Outcome: json.RawMessage(`{"campaigns":1,"written":4211}`)},
			time.Hour,
			"1 campaign finished, 4211 records written", "projector backfill --resume ID", true,
		},
		"a backfill that has just begun": {audit.Operation{Kind: audit.Backfill, State: audit.Running}, 0, "", "", false},
		"a replay that failed":           {audit.Operation{Kind: audit.Replay, State: audit.Failed}, 0, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			c.op.ID, c.op.At = "ID", now.Add(-c.ago)
			if got := tell(c.op, now); got.Progress != c.progress || got.Next != c.next || got.Silent != c.silent {
				t.Errorf("%q, next %q, silent %v", got.Progress, got.Next, got.Silent)
			}
		})
	}
}

// TestPageOperations: what the commands record is what the page reads, and what it names next does go on.
func TestPageOperations(t *testing.T) {
	g1, g2 := newRebuildWorld(t, 50)
	cfg, err := config.Load(config.Input{Path: g1.config, Set: []string{"clickhouse.addresses=" + g1.db.Addr(), "clickhouse.database=" + g1.db.Name}})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := clickhouse.Open(cfg.Control())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	q := &questions{cfg: cfg, timeout: pageTimeout, control: conn}
	shown := func(want map[audit.Kind][2]string) map[audit.Kind]string {
		t.Helper()
		list, err := q.operations(t.Context())
		if err != nil || len(list) != len(want) {
			t.Fatalf("%+v, %v", list, err)
		}
		next := map[audit.Kind]string{}
		for _, o := range list {
			if o.Progress != want[o.Kind][0] || !strings.HasPrefix(o.Next, want[o.Kind][1]) || o.Silent {
				t.Errorf("%s: %q, next %q", o.Kind, o.Progress, o.Next)
			}
			next[o.Kind] = o.Next
		}
		return next
	}
	g2.must(0, "rebuild", "start", "--yes")
	g1.plantDefect(defects()[0])
	g1.planned(exitNo, "--campaign", "10001") // the wrong units are no repair's business
	copied := [2]string{"generation 1 to 2, 4 of 9 steps done; step 5: wait for the stream", "projector rebuild verify"}
	next := shown(map[audit.Kind][2]string{audit.Rebuild: copied, audit.Repair: {"replay of 1 record", "projector repair apply "}})
	g1.must(0, strings.Fields(next[audit.Repair])[1:]...)
	next = shown(map[audit.Kind][2]string{audit.Rebuild: copied, audit.Repair: {"replay of 1 record: 1 applied, 0 skipped", "projector repair verify "}})
	g1.run(strings.Fields(next[audit.Repair])[1:]...) // with the wrong unit it is refuted
	shown(map[audit.Kind][2]string{audit.Rebuild: copied, audit.Repair: {"replay of 1 record: 1 applied, 0 skipped, 0 verified, 1 refuted", "projector repair plan"}})
}
