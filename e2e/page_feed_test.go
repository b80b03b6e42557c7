package e2e

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/clickhouse"
)

// trouble records what a comparison has found, a repair that nobody has verified, whose ID it returns, and a rebuild that
// waits for its next command.
func (w *world) trouble() (repair string) {
	w.t.Helper()
	conn, err := clickhouse.Open(clickhouse.Config{Addresses: []string{w.db.Addr()}})
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	cfg, ctx := audit.Config{Database: w.db.Name}, w.t.Context()
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	findings := audit.OpenFindings(conn, cfg)
	must(findings.Ensure(ctx))
	for i, kind := range []string{"missing", "missing", "stale", "version_conflict"} {
		must(findings.Add(ctx, audit.Finding{Projection: "fitness_results", Generation: 1, Against: "mysql", Campaign: "10001", Key: fmt.Sprintf("%02x", i), ID: fmt.Sprint(4711 + i), Kind: kind}))
	}
	must(findings.AddComparison(ctx, audit.Comparison{Projection: "fitness_results", Generation: 1, Against: "mysql", Campaign: "10001", Level: "fields", Verdict: "different", Findings: 3}))
	begun := func(op audit.Operation, end audit.State) string {
		w.t.Helper()
		op.Projection, op.State, op.Actor = "fitness_results", audit.Running, "ann@example.org"
		run, err := audit.Open(conn, cfg).Begin(ctx, op)
		must(err)
		must(run.Advance(ctx, func(o *audit.Operation) { o.State = end }))
		return run.Operation().ID
	}
	begun(audit.Operation{
		Kind: audit.Rebuild, Reason: "wrong school, ticket 4711", Scope: json.RawMessage(`{"from": 1, "to": 2}`),
		Checkpoint: json.RawMessage(`{"steps": [{}, {}, {}, {}]}`),
	}, audit.Waiting)
	return begun(audit.Operation{
		Kind: audit.Repair, Reason: "ticket 4712", Scope: json.RawMessage(`{"action": "replay", "records": 3}`),
		Outcome: json.RawMessage(`{"records": 3, "applied": 3}`),
	}, audit.Applied)
}

// waves feeds events for as long as is said, now more and now fewer, so that charts have something to show.
func (w *world) waves(length time.Duration) {
	w.t.Helper()
	end := time.Now().Add(length)
	for seed := uint64(100); time.Now().Before(end); seed++ {
		f := w.feed(events(w.t, int(2000+1500*(seed%5)), seed))
		f.upTo(1, int(150+100*(seed%5)))
		f.flush()
	}
}
