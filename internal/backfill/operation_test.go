package backfill_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/backfill"
)

// A checkpoint that was altered by hand would leave rows out, and the operation would be applied.
func TestAlteredCheckpointIsRefused(t *testing.T) {
	w := plainWorld(t)
	w.shards[0].Exec(t, "INSERT INTO results VALUES (1, 1, 1, '', 1), (1, 2, 1, '', 1)")
	record := audit.Open(w.conn, audit.Config{Database: w.db.Name})
	for _, c := range []struct{ checkpoint, want string }{
		{`{"campaign":"1","phase":2}`, "phase 2"},
		{`{"campaign":"1","phase":-1}`, "phase -1"},
		{`{"campaign":"1","after":["MQ==","MQ=="]}`, "a key of 2 values"},
		{`{"campaign":"1","sequence":-5}`, "sequence -5"},
		{`{"campaign":"9"}`, `campaign "9"`},
		{`{"campaign":"1","after":["MQ=="],"sequence":1}`, ""},
	} {
		run, err := record.Begin(t.Context(), audit.Operation{
			Kind: audit.Backfill, State: audit.Running, Scope: json.RawMessage(`{"campaigns":["1"]}`), Checkpoint: json.RawMessage(c.checkpoint),
		})
		if err != nil {
			t.Fatal(err)
		}
		source, err := w.open()
		if err != nil {
			t.Fatal(err)
		}
		got, err := backfill.Execute(t.Context(), run, source, one("1"), w.writer(run.Operation().Origin()))
		switch {
		case c.want == "" && (err != nil || got.Rows != 1):
			t.Errorf("%s: %+v, %v", c.checkpoint, got, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || run.Operation().State == audit.Applied):
			t.Errorf("%s: %s, %v", c.checkpoint, run.Operation().State, err)
		}
	}
}
