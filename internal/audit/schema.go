package audit

import (
	"context"
	"fmt"

	"github.com/chprojector/projector/chschema"
)

// Table is the name of the table of operations.
const Table = "projector_operations"

// Config says where the record is.
type Config struct {
	Database string // that of the projections' tables
	Cluster  string // "" = one server; else the tables are replicated in it
}

// columns are the fields of Operation, in the order of every statement here.
const columns = "id, sequence, kind, `projection`, state, began, actor, `by`, reason, digest, " +
	"scope, source, `before`, outcome, checkpoint, error, verification, run, holder"

const definitions = `    id String,
    sequence UInt64,
    kind LowCardinality(String),
    ` + "`projection`" + ` LowCardinality(String),
    state LowCardinality(String),
    at DateTime64(3, 'UTC') DEFAULT now64(3),
    began DateTime64(3, 'UTC'),
    actor String,
    ` + "`by`" + ` String,
    reason String,
    digest String,
    scope String,
    source String,
    ` + "`before`" + ` String,
    outcome String,
    checkpoint String,
    error String,
    verification String,
    run UInt32,
    holder String`

// CreateTable returns the statement that creates the table of operations.
func (c Config) CreateTable() string {
	return c.Statement(Table, definitions, "id, sequence",
		"Every backfill, repair, replay and rebuild: one row for each change of state, none is ever changed. The row with the highest sequence is the current one.")
}

// Statement returns the statement that creates a table of the record: one that
// is only inserted into, replicated as the projections' tables are.
func (c Config) Statement(table, columns, orderBy, comment string) string {
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s%s\n(\n%s\n)\nENGINE = %s\nORDER BY (%s)\nCOMMENT %s",
		c.Qualified(table), c.onCluster(), columns, c.engine(), orderBy, chschema.QuoteString(comment))
}

func (c Config) engine() string {
	if c.Cluster != "" {
		return "ReplicatedMergeTree"
	}
	return "MergeTree"
}

func (c Config) onCluster() string {
	if c.Cluster != "" {
		return " ON CLUSTER " + chschema.QuoteName(c.Cluster)
	}
	return ""
}

// Qualified returns a table's name with the database, quoted for a statement.
func (c Config) Qualified(table string) string {
	return chschema.QuoteName(c.Database) + "." + chschema.QuoteName(table)
}

// Grants returns the statements that give user what keeping the record takes.
// CREATE TABLE is needed once: whoever may not can have the tables created by
// somebody else, with the statements of `projector schema print`.
func (c Config) Grants(user string, tables ...string) []string {
	cluster := c.onCluster()
	var list []string
	for _, table := range tables {
		list = append(list, fmt.Sprintf("GRANT%s SELECT, INSERT, CREATE TABLE ON %s TO %s", cluster, c.Qualified(table), chschema.QuoteName(user)))
	}
	list = append(list, fmt.Sprintf("GRANT%s TABLE ENGINE ON %s TO %s", cluster, c.engine(), chschema.QuoteName(user)))
	if c.Cluster != "" {
		list = append(list, fmt.Sprintf("GRANT%s CLUSTER ON *.* TO %s", cluster, chschema.QuoteName(user)))
	}
	return list
}

// WatchGrants returns the statements that let user read what was recorded, and
// record the contradictions that it finds itself. The tables need not exist.
func (c Config) WatchGrants(user string) (list []string) {
	for _, g := range []struct{ rights, table string }{{"SELECT", Table}, {"SELECT, INSERT", FindingsTable}, {"SELECT", ComparisonsTable}} {
		list = append(list, fmt.Sprintf("GRANT%s %s ON %s TO %s", c.onCluster(), g.rights, c.Qualified(g.table), chschema.QuoteName(user)))
	}
	return list
}

// Ensure creates a table of the record unless it exists. It looks first,
// because IF NOT EXISTS asks for the right to create even where there is
// nothing to do.
func (c Config) Ensure(ctx context.Context, conn chschema.Conn, table, statement string) error {
	exists, _, err := c.look(ctx, conn, table)
	if err != nil || exists {
		return err
	}
	if err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("create table %s.%s, the record of backfills and repairs (`projector schema print` shows its statement): %w",
			c.Database, table, err)
	}
	return nil
}

// look reports whether a table of the record exists as far as this user sees,
// and who that is.
func (c Config) look(ctx context.Context, conn chschema.Conn, table string) (exists bool, user string, err error) {
	var rows []struct {
		N    uint64 `ch:"n"`
		User string `ch:"user"`
	}
	err = conn.Select(ctx, &rows, fmt.Sprintf("SELECT count() AS n, currentUser() AS user FROM system.tables WHERE database = %s AND name = %s",
		chschema.QuoteString(c.Database), chschema.QuoteString(table)))
	if err != nil {
		return false, "", fmt.Errorf("look for table %s.%s: %w", c.Database, table, err)
	}
	return rows[0].N > 0, rows[0].User, nil // an aggregate without keys has one row
}

// readable reports whether a table of the record exists. A table that is hidden
// from this user looks as if it were missing, and its record as if it were
// empty: that is an error, which names the right.
func (c Config) readable(ctx context.Context, conn chschema.Conn, table string) (bool, error) {
	exists, user, err := c.look(ctx, conn, table)
	if err != nil || exists {
		return exists, err
	}
	var rows []struct {
		Granted uint8 `ch:"result"`
	}
	name := c.Qualified(table)
	if err := conn.Select(ctx, &rows, "CHECK GRANT SELECT ON "+name); err != nil {
		return false, fmt.Errorf("look for table %s.%s: %w", c.Database, table, err)
	}
	if len(rows) != 1 || rows[0].Granted != 1 {
		return false, fmt.Errorf("%s is not visible to %s, if it exists: GRANT SELECT ON %[1]s TO %[2]s", name, user)
	}
	return false, nil
}
