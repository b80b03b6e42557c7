package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/testenv"
)

// TestPageTellsHiddenFromMissing asks as a user with all rights and as a consumer with the least: what that one may not
// see is unknown, and neither missing nor none.
func TestPageTellsHiddenFromMissing(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	load := func(set ...string) *config.Config {
		t.Helper()
		cfg, err := config.Load(config.Input{Path: "../../config.yaml", Set: set})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	cfg := load()
	table := cfg.Table(&cfg.Projections[0])
	account := func(name string, grants ...string) string {
		var list strings.Builder
		for _, grant := range grants {
			statement, _, _ := strings.Cut(grant, " TO ")
			fmt.Fprintf(&list, "<query>%s</query>", statement)
		}
		return fmt.Sprintf("<%s><password></password><grants>%s</grants></%[1]s>", name, &list)
	}
	least := table.Grants(chschema.RoleConsumer, "")
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{
		Databases: []string{"reporting"},
		Users:     account("bob", least...) + account("amy", append(least, cfg.Audit().WatchGrants("")...)...),
		// As in the config.xml of a server's package.
		Server: "<access_control_improvements><select_from_system_db_requires_grant>true</select_from_system_db_requires_grant></access_control_improvements>",
	})
	ask := func(user string) (*questions, *config.Projection) {
		cfg := load("clickhouse.addresses="+server.Addr(), "clickhouse.username="+user)
		conn, err := clickhouse.Open(cfg.Control())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return &questions{cfg: cfg, timeout: pageTimeout, control: conn}, &cfg.Projections[0]
	}
	owner, results := ask("default")
	consumer, _ := ask("bob")
	granted, _ := ask("amy")

	control := owner.control
	if err := chschema.Apply(t.Context(), control, chschema.Diff(table, &chschema.State{DatabaseEngine: "Atomic"}), nil); err != nil {
		t.Fatal(err)
	}
	if d, err := owner.drift(t.Context(), results); err != nil || len(d.Changes) > 0 || d.Hidden != "" {
		t.Errorf("the owner sees %+v, %v", d, err)
	}
	if d, err := consumer.drift(t.Context(), results); err != nil || len(d.Changes) > 0 || !strings.Contains(d.Hidden, "not visible to bob") {
		t.Errorf("the consumer sees %+v, %v", d, err)
	}

	if err := control.Exec(t.Context(), "DROP VIEW reporting.fitness_results_conflicts"); err != nil {
		t.Fatal(err)
	}
	if d, err := owner.drift(t.Context(), results); err != nil || len(d.Changes) != 1 || d.Changes[0].Object != "fitness_results_conflicts" {
		t.Errorf("the owner sees %+v, %v", d, err)
	}

	if list, err := owner.operations(t.Context()); err != nil || list == nil || len(list) > 0 {
		t.Errorf("before the first operation: %v, %v", list, err)
	}
	record := audit.Open(control, owner.cfg.Audit())
	for _, state := range []audit.State{audit.Running, audit.Withdrawn} {
		run, err := record.Begin(t.Context(), audit.Operation{Kind: audit.Backfill, Projection: results.Name, State: audit.Running, Actor: "eve", Reason: "a test"})
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Advance(t.Context(), func(o *audit.Operation) { o.State = state }); err != nil {
			t.Fatal(err)
		}
	}
	list, err := owner.operations(t.Context())
	if err != nil || !slices.ContainsFunc(list, func(o pageOperation) bool { return o.State == audit.Running && o.Actor == "eve" }) || len(list) != 1 {
		t.Errorf("operations %+v, %v", list, err)
	}
	if f, err := consumer.found(t.Context(), results); err == nil || f.discrepancies != nil || !strings.Contains(err.Error(), "GRANT SELECT ON `reporting`.`projector_findings` TO bob") {
		t.Errorf("the consumer sees %+v, %v", f, err)
	}
	if f, err := granted.found(t.Context(), results); err != nil || f.discrepancies == nil {
		t.Errorf("who has the rights of the record sees %+v, %v", f, err)
	}
	if list, err := granted.operations(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("who has the rights of the record sees %v, %v", list, err)
	}
	conn, err := clickhouse.Open(consumer.cfg.Control())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	registry := prometheus.NewRegistry()
	watch := newWatcher(&shared{cfg: consumer.cfg, control: conn, log: zerolog.Nop()}, clickhouse.NewReader(conn), registry)
	err = watch.export(t.Context())
	for _, hidden := range []string{"projector_findings", "projector_operations"} {
		if err == nil || !strings.Contains(err.Error(), "GRANT SELECT ON `reporting`.`"+hidden+"` TO bob") {
			t.Errorf("the consumer's watch says %v", err)
		}
	}
	if families, err := registry.Gather(); err != nil || len(families) > 0 {
		t.Errorf("the consumer exports %v of what it may not see, %v", families, err)
	}
	if list, err := consumer.operations(t.Context()); err == nil || list != nil || !strings.Contains(err.Error(), "GRANT SELECT ON `reporting`.`projector_operations` TO bob") {
		t.Errorf("the consumer sees %v, %v", list, err)
	}
}
