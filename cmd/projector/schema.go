package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/internal/config"
)

type schemaCommand struct {
	Print schemaPrint `cmd:"" help:"Print the DDL of tables and views."`
	Plan  schemaPlan  `cmd:"" help:"Show what apply would change."`
	Apply schemaApply `cmd:"" help:"Create what is missing and change what can be changed online."`
	Check schemaCheck `cmd:"" help:"Compare the server with the configuration; exit code 3 on drift or an unsafe design."`
}

// chosen is the flag of commands that can be narrowed to one projection.
type chosen struct {
	Projection string `help:"Only this projection." placeholder:"NAME"`
}

// tables are the tables of the chosen projections.
func (c chosen) tables(cfg *config.Config) ([]chschema.Table, error) {
	list, err := projections(cfg, c.Projection)
	if err != nil {
		return nil, err
	}
	all := make([]chschema.Table, len(list))
	for i, p := range list {
		all[i] = cfg.Table(p)
	}
	return all, nil
}

type schemaPrint struct {
	chosen
	Grants bool `help:"Print the least rights of each role instead: consumer, readers, whoever applies the schema, rebuilds or repairs."`
}

func (schemaPrint) Help() string {
	return `Prints the statements that create everything from nothing, in order. Nothing is
connected.

Examples:

    projector schema print
    projector schema print | clickhouse-client --multiquery
    projector schema print --grants --projection fitness_results`
}

func (c schemaPrint) Run(p *program) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	tables, err := c.tables(cfg)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(p.stdout)
	if c.Grants {
		printGrants(w, tables, cfg)
		return w.Flush()
	}
	for _, change := range chschema.DiffTable(tables[0], &chschema.State{}) { // a server without anything
		for _, statement := range change.Statements {
			if strings.HasPrefix(statement, "CREATE DATABASE") {
				fmt.Fprintf(w, "%s;\n", statement)
			}
		}
	}
	for _, t := range tables {
		for _, statement := range t.Statements() {
			fmt.Fprintf(w, "\n%s;\n", statement)
		}
	}
	fmt.Fprintf(w, "\n-- the record of backfills and repairs, which the first of them creates if it may\n%s;\n", cfg.Audit().CreateTable())
	for _, statement := range append(cfg.Audit().CreateFindings(), cfg.Audit().CreateItems()) {
		fmt.Fprintf(w, "\n%s;\n", statement)
	}
	return w.Flush()
}

// printGrants prints the rights of each role, the commands that it is for above them.
func printGrants(w io.Writer, tables []chschema.Table, cfg *config.Config) {
	const rebuilder = "projector_rebuild"
	consumer, record := cfg.ClickHouse.Username, []string{audit.Table, audit.FindingsTable, audit.ComparisonsTable, audit.ItemsTable}
	for i, role := range []struct {
		comment string
		role    chschema.Role
		user    string
		record  []string // further statements
	}{
		{"projector run and status", chschema.RoleConsumer, consumer, cfg.Audit().WatchGrants(consumer)},
		{"projector schema plan, apply and check; its rights are the views' rights", chschema.RoleSchema, "projector_schema", nil},
		{"reports and dashboards: the views and nothing else", chschema.RoleReader, "reader", nil},
		{"projector rebuild, with the configuration of the new generation", chschema.RoleRebuild, rebuilder, cfg.Audit().Grants(rebuilder, record...)},
	} {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "-- %s\n", role.comment)
		for _, t := range tables {
			for _, statement := range t.Grants(role.role, role.user) {
				fmt.Fprintf(w, "%s;\n", statement)
			}
		}
		for _, statement := range role.record {
			fmt.Fprintf(w, "%s;\n", statement)
		}
	}
	fmt.Fprintf(w, "\n-- projector backfill, reconcile, and whatever else leaves a record: the consumer's rights and these\n")
	for _, statement := range cfg.Audit().Grants(consumer, record...) {
		fmt.Fprintf(w, "%s;\n", statement)
	}
	fmt.Fprintf(w, "\n-- projector repair apply of a removal: for the occasion, and revoked after it\n")
	for _, t := range tables {
		for _, statement := range t.Grants(chschema.RoleRemover, consumer) {
			fmt.Fprintf(w, "-- %s;\n", statement)
		}
	}
	printHeartbeatGrant(w, cfg)
}

// printHeartbeatGrant lets the consumer read back the one view whose freshness
// it exports.
func printHeartbeatGrant(w io.Writer, cfg *config.Config) {
	if p := cfg.HeartbeatProjection(); p != nil {
		t := cfg.Table(p)
		fmt.Fprintf(w, "\n-- projector run: the age of the newest heartbeat\nGRANT SELECT ON %s TO %s;\n", t.Qualified(t.Current()), chschema.QuoteName(cfg.ClickHouse.Username))
	}
}

// difference is one table's part of a plan.
type difference struct {
	Table   string            `json:"table"`
	Changes []chschema.Change `json:"changes"`
	Hidden  string            `json:"hidden,omitempty"` // what this user may not see and so was not compared
}

// control is the connection for questions and DDL.
type control interface {
	chschema.Conn
	io.Closer
}

// diff asks ClickHouse how the chosen tables differ from the configuration.
func (c chosen) diff(ctx context.Context, p *program) (cfg *config.Config, conn control, all []difference, err error) {
	if cfg, err = p.load(); err != nil {
		return nil, nil, nil, err
	}
	if err = cfg.CheckClickHouse(); err != nil {
		return nil, nil, nil, err
	}
	tables, err := c.tables(cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	if conn, err = clickhouse.Open(cfg.Control()); err != nil {
		return nil, nil, nil, err
	}
	for _, t := range tables {
		d, _, err := compare(ctx, conn, t)
		if err != nil {
			return nil, nil, nil, errors.Join(askClickHouse(cfg, err), conn.Close())
		}
		all = append(all, d)
	}
	return cfg, conn, all, nil
}

// compare asks how one table differs from the configuration.
func compare(ctx context.Context, conn chschema.Conn, t chschema.Table) (difference, *chschema.State, error) {
	state, err := chschema.Inspect(ctx, conn, t)
	if err != nil {
		return difference{}, nil, err
	}
	return difference{Table: t.Physical(), Changes: append([]chschema.Change{}, chschema.Diff(t, state)...)}, state, nil
}

// tally counts the changes by what becomes of them.
func tally(all []difference) (online, refused int) {
	for _, d := range all {
		for _, c := range d.Changes {
			switch c.Verdict {
			case chschema.Online:
				online++
			case chschema.Refused:
				refused++
			case chschema.Tolerated:
			}
		}
	}
	return online, refused
}

type schemaPlan struct {
	chosen
	output
}

func (schemaPlan) Help() string {
	return `Compares ClickHouse with the configuration and shows what "schema apply" would do, with
its statements. It changes nothing. Exit code 3 if something would be refused.

Examples:

    projector schema plan
    projector schema plan --projection fitness_results -o json`
}

func (c schemaPlan) Run(ctx context.Context, p *program) error {
	_, conn, all, err := c.diff(ctx, p)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.json() {
		err = printJSON(p.stdout, all)
	} else {
		printPlan(p.stdout, all, true)
	}
	if _, refused := tally(all); err == nil && refused > 0 {
		return answerNo{count(refused, "difference") + " cannot be changed online; the plan names the way out"}
	}
	return err
}

type schemaCheck struct {
	chosen
	output
}

func (schemaCheck) Help() string {
	return `Compares ClickHouse with the configuration. Exit code 0: all is as configured. Exit
code 3: something is missing, differs or is unsafe. It changes nothing.

Examples:

    projector schema check
    projector schema check -o json`
}

func (c schemaCheck) Run(ctx context.Context, p *program) error {
	_, conn, all, err := c.diff(ctx, p)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.json() {
		err = printJSON(p.stdout, all)
	} else {
		printPlan(p.stdout, all, false)
	}
	online, refused := tally(all)
	switch {
	case err != nil:
		return err
	case refused > 0:
		return answerNo{count(refused, "difference") + " cannot be changed online, see above for the way out"}
	case online > 0:
		return answerNo{count(online, "difference") + "; run `projector schema apply`"}
	}
	return nil
}

type schemaApply struct {
	chosen
	output
	Yes bool `help:"Do not ask."`
}

func (schemaApply) Help() string {
	return `Shows the plan, asks, and executes it: the database, tables and views that are missing
are created, columns added, views replaced without a gap. Nothing is executed if a part of
the plan is refused, for example another sorting key: exit code 3, with the way out. It
can be repeated, and run by two deployments at once.

Examples:

    projector schema apply
    projector schema apply --yes
    projector schema apply --yes --projection fitness_results
    projector schema apply --yes -o json`
}

func (c schemaApply) Run(ctx context.Context, p *program) error {
	cfg, conn, all, err := c.diff(ctx, p)
	if err != nil {
		return err
	}
	defer conn.Close()
	if !c.json() {
		printPlan(p.stdout, all, true)
	}
	online, refused := tally(all)
	if refused == 0 && online > 0 {
		if err := c.apply(ctx, p, cfg, conn, all, online); err != nil {
			return err
		}
	}
	if c.json() {
		err = printJSON(p.stdout, all)
	}
	if err == nil && refused > 0 {
		return answerNo{count(refused, "difference") + " cannot be changed online, so nothing was changed; see above for the way out"}
	}
	return err
}

// apply asks, and makes the changes.
func (c schemaApply) apply(ctx context.Context, p *program, cfg *config.Config, conn control, all []difference, online int) error {
	if !c.Yes {
		if c.json() { // stdout is for the result
			printPlan(p.stderr, all, true)
		}
		if err := p.confirm(fmt.Sprintf("Make %s in the database %s?", count(online, "change"), cfg.ClickHouse.Database)); err != nil {
			return err
		}
	}
	for _, d := range all {
		if err := chschema.Apply(ctx, conn, d.Changes, nil); err != nil {
			return err
		}
	}
	if c.json() {
		return nil
	}
	_, err := fmt.Fprintf(p.stdout, "\n%s made.\n", count(online, "change"))
	return err
}

func printPlan(w io.Writer, all []difference, statements bool) {
	for i, d := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if len(d.Changes) == 0 {
			fmt.Fprintf(w, "%s: as configured\n", d.Table)
			continue
		}
		fmt.Fprintf(w, "%s: %s\n", d.Table, count(len(d.Changes), "difference"))
		for _, c := range d.Changes {
			fmt.Fprintf(w, "  %-9s  %s\n", c.Verdict, printable(c.String()))
			for _, s := range c.Statements {
				if statements {
					fmt.Fprintf(w, "%s;\n", indent(s))
				}
			}
		}
	}
}

// indent moves a statement to the right of its change.
func indent(statement string) string {
	const by = "             "
	return by + strings.ReplaceAll(statement, "\n", "\n"+by)
}
