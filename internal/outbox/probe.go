package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/chprojector/projector/internal/mysql"
)

// DesignError is an outbox, or a server, that no waiting makes right. The
// message names the remedy.
type DesignError struct{ message string }

func (e *DesignError) Error() string { return e.message }

func design(format string, args ...any) error { return &DesignError{fmt.Sprintf(format, args...)} }

// Probe looks at the server and at the table, and learns the name of the index
// that claims go by. A *DesignError is final; any other error may pass, a table
// that does not exist yet among them.
func (s *Store) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	for _, check := range []func(context.Context) error{s.checkServer, s.checkTable, s.checkIndexes, s.checkPlan} {
		if err := check(ctx); err != nil {
			return fmt.Errorf("shard %s: %w", s.shard, admitted(err))
		}
	}
	return nil
}

// ProbeRights tries the statements of a relay on no row, in a transaction that
// is rolled back: whether locks can be skipped, and whether this user may do
// all of it, only the statements themselves tell.
func (s *Store) ProbeRights(ctx context.Context, heartbeat bool) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	back := errors.New("roll back")
	statements := []string{
		fmt.Sprintf("UPDATE %s FORCE INDEX (PRIMARY) SET attempts = attempts WHERE id = 0", s.table),
		fmt.Sprintf("DELETE FROM %s WHERE id = 0", s.table),
	}
	if heartbeat {
		statements = append(statements, fmt.Sprintf("INSERT INTO %[1]s (event_id, aggregate_type, aggregate_id, version, payload) SELECT event_id, aggregate_type, aggregate_id, version, payload FROM %[1]s WHERE id = 0", s.table))
	}
	err := s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := try(ctx, tx, s.pickDue()+limited(1)+skipLocked); err != nil {
			return err
		}
		for _, statement := range statements {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return errors.Join(back, s.checkIsolation(ctx, tx))
	})
	if design, ok := errors.AsType[*DesignError](err); ok {
		return fmt.Errorf("shard %s: %w", s.shard, design)
	}
	if errors.Is(err, back) {
		return nil
	}
	return fmt.Errorf("shard %s: try the relay's statements: %w", s.shard, admitted(err))
}

// try runs a query and reads its result to the end.
func try(ctx context.Context, tx *sql.Tx, query string) error {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}

// checkIsolation asks the server under which isolation the transaction runs: a
// proxy in between may have dropped the wish for READ COMMITTED, and under
// REPEATABLE READ claims block the application's inserts. Seeing it needs the
// right PROCESS, which a relay need not have; without it nothing is known.
func (s *Store) checkIsolation(ctx context.Context, tx *sql.Tx) error {
	var level string
	err := tx.QueryRowContext(ctx, "SELECT trx_isolation_level FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID()").Scan(&level)
	if err != nil || level == "READ COMMITTED" {
		return nil //nolint:nilerr // not to be seen
	}
	return design("transactions run at %s although READ COMMITTED was asked for: does a proxy between the relay and the server drop SET TRANSACTION? Connect to the server itself", level)
}

var versionPattern = regexp.MustCompile(`^(\d+)\.(\d+)\.(\d+)`)

func (s *Store) checkServer(ctx context.Context) error {
	var version, format, zone string
	var binlog bool
	var offset int
	err := s.db.QueryRowContext(ctx, "SELECT VERSION(), @@global.log_bin, @@session.binlog_format, @@session.time_zone, TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW())").
		Scan(&version, &binlog, &format, &zone, &offset)
	if err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	if err := checkVersion(version); err != nil {
		return err
	}
	if binlog && format == "STATEMENT" {
		return design("binlog_format is STATEMENT, under which InnoDB refuses to write at READ COMMITTED; set binlog_format=ROW (or MIXED) on the server")
	}
	if offset != 0 {
		return design("the session's time zone %s is %d s from UTC although +00:00 was asked for: does a proxy between the relay and the server drop SET time_zone? Connect to the server itself", zone, offset)
	}
	return nil
}

// checkVersion wants SKIP LOCKED: MariaDB 10.6, MySQL 8.0.1.
func checkVersion(version string) error {
	name, least := "MySQL", [3]int{8, 0, 1}
	if strings.Contains(version, "MariaDB") {
		name, least = "MariaDB", [3]int{10, 6, 0}
		version = strings.TrimPrefix(version, "5.5.5-") // put there for clients that know no 10
	}
	m := versionPattern.FindStringSubmatch(version)
	if m == nil {
		return design("the server calls its version %q, which is neither MySQL's nor MariaDB's", version)
	}
	var have [3]int
	for i := range have {
		have[i], _ = strconv.Atoi(m[i+1])
	}
	if slices.Compare(have[:], least[:]) < 0 {
		return design("%s %s has no SKIP LOCKED; MariaDB 10.6 or MySQL 8.0.1 is needed", name, m[0])
	}
	return nil
}

func (s *Store) checkTable(ctx context.Context) error {
	var engine sql.NullString
	err := s.db.QueryRowContext(ctx, "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = "+mysql.QuoteString(s.name)).Scan(&engine)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("there is no table %s; create it: projector outbox ddl", s.name)
	}
	if err != nil {
		return fmt.Errorf("describe the table %s: %w", s.name, err)
	}
	if !strings.EqualFold(engine.String, "InnoDB") {
		return design("the table %s has the engine %s, which has neither transactions nor row locks; ALTER TABLE %s ENGINE=InnoDB", s.name, engine.String, s.table)
	}
	rows, err := s.db.QueryContext(ctx, "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, COALESCE(COLUMN_DEFAULT, ''), IS_NULLABLE = 'YES', COALESCE(COLLATION_NAME, '') FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = "+mysql.QuoteString(s.name))
	if err != nil {
		return fmt.Errorf("describe the columns of %s: %w", s.name, err)
	}
	defer rows.Close()
	have := map[string]column{}
	for rows.Next() {
		var name string
		var c column
		if err := rows.Scan(&name, &c.kind, &c.full, &c.byDefault, &c.nullable, &c.collation); err != nil {
			return fmt.Errorf("describe the columns of %s: %w", s.name, err)
		}
		have[strings.ToLower(name)] = c
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("describe the columns of %s: %w", s.name, err)
	}
	return s.checkColumns(have)
}

// column is one of the table as information_schema tells it.
type column struct {
	kind, full, byDefault string
	collation             string // "" of a number
	nullable              bool
}

// needed are the columns and the types that they may have.
var needed = []struct {
	name  string
	kinds []string
}{
	{"id", []string{"bigint"}},
	{"event_id", []string{"varchar", "char"}},
	{"aggregate_type", []string{"varchar", "char"}},
	{"aggregate_id", []string{"varchar", "char", "bigint"}},
	{"version", []string{"bigint"}},
	{"payload", []string{"mediumtext", "text", "longtext", "mediumblob", "blob", "longblob"}},
	{"created_at", []string{"datetime"}},
	{"state", []string{"enum"}},
	{"due_at", []string{"datetime"}},
	{"attempts", []string{"int", "bigint"}},
	{"claim_token", []string{"bigint"}},
	{"claimed_by", []string{"varchar"}},
	{"last_error", []string{"varchar", "text"}},
	{"sent_partition", []string{"int", "bigint"}},
	{"sent_offset", []string{"bigint"}},
}

func (s *Store) checkColumns(have map[string]column) error {
	for _, want := range needed {
		c, ok := have[want.name]
		if !ok {
			return design("the table %s has no column %s; add it as in `projector outbox ddl`", s.name, want.name)
		}
		if !slices.Contains(want.kinds, strings.ToLower(c.kind)) {
			return design("the column %s.%s is %s, want %s; change it as in `projector outbox ddl`", s.name, want.name, c.full, strings.Join(want.kinds, " or "))
		}
	}
	// A row with a NULL would fail the claim of all others, or never be claimed.
	for _, name := range []string{"event_id", "aggregate_type", "aggregate_id", "version", "created_at", "state", "due_at", "attempts", "claim_token"} {
		if have[name].nullable {
			return design("the column %s.%s may be NULL, and such a row could not be claimed; make it NOT NULL as in `projector outbox ddl`", s.name, name)
		}
	}
	for _, name := range []string{"aggregate_type", "aggregate_id"} {
		if by := have[name].collation; by != "" && !strings.HasSuffix(by, "_bin") {
			return design("the column %s.%s is compared by %s, to which different aggregates such as A and a may be one, so that a version of one would supersede those of the other; give it the collation ascii_bin as in `projector outbox ddl`", s.name, name, by)
		}
	}
	for _, name := range []string{"id", "version", "claim_token"} {
		if !strings.Contains(have[name].full, "unsigned") {
			return design("the column %s.%s is %s, want bigint unsigned; change it as in `projector outbox ddl`", s.name, name, have[name].full)
		}
	}
	for _, name := range []string{"created_at", "due_at"} {
		if have[name].full != "datetime(6)" {
			return design("the column %s.%s is %s, want datetime(6); change it as in `projector outbox ddl`", s.name, name, have[name].full)
		}
		by := strings.ToLower(have[name].byDefault)
		if strings.Contains(by, "current_timestamp") || strings.Contains(by, "now(") && !strings.Contains(by, "utc") {
			return design("the column %s.%s defaults to %s, the local time of the application's session, so its events would be due at another time; ALTER TABLE %s MODIFY %s DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))", s.name, name, have[name].byDefault, s.table, name)
		}
	}
	for _, state := range []string{Due, Claimed, Sent, Parked, Superseded} {
		if !strings.Contains(have["state"].full, "'"+state+"'") {
			return design("the column %s.state is %s and knows no '%s'; change it as in `projector outbox ddl`", s.name, have["state"].full, state)
		}
	}
	return nil
}

func (s *Store) checkIndexes(ctx context.Context) error {
	rows, err := s.db.QueryContext(ctx, "SELECT INDEX_NAME, NON_UNIQUE, COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = "+mysql.QuoteString(s.name)+" ORDER BY INDEX_NAME, SEQ_IN_INDEX")
	if err != nil {
		return fmt.Errorf("describe the indexes of %s: %w", s.name, err)
	}
	defer rows.Close()
	columns, unique := map[string]string{}, map[string]bool{}
	for rows.Next() {
		var index string
		var repeats bool
		var name sql.NullString // of an expression there is none
		if err := rows.Scan(&index, &repeats, &name); err != nil {
			return fmt.Errorf("describe the indexes of %s: %w", s.name, err)
		}
		columns[index] += strings.ToLower(name.String) + " "
		unique[index] = !repeats
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("describe the indexes of %s: %w", s.name, err)
	}
	due, version := "", false
	for index, list := range columns {
		// InnoDB ends every index with the primary key.
		if list == "state due_at id " || list == "state due_at " {
			due = index
		}
		version = version || list == "aggregate_type aggregate_id version " && unique[index]
	}
	switch {
	case columns["PRIMARY"] != "id ":
		return design("the primary key of %s is not (id); compare the table with what `projector outbox ddl` prints", s.name)
	case due == "":
		return design("the table %s has no index on (state, due_at, id), without which a claim sorts, and locks every due row to do so; CREATE INDEX due ON %s (state, due_at, id)", s.name, s.table)
	case !version:
		return design("the table %s has no unique index on (aggregate_type, aggregate_id, version); CREATE UNIQUE INDEX version ON %s (aggregate_type, aggregate_id, version)", s.name, s.table)
	}
	s.index = mysql.QuoteName(due)
	return nil
}

// checkPlan asks the server how it would run the claim. Whether it sorts is
// what decides between locking what it takes and locking what it reads.
func (s *Store) checkPlan(ctx context.Context) error {
	rows, err := s.db.QueryContext(ctx, "EXPLAIN FORMAT=TRADITIONAL "+s.pickDue()+limited(500)+skipLocked)
	if err != nil {
		return fmt.Errorf("explain the claim: %w", err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return fmt.Errorf("explain the claim: %w", err)
	}
	planned := false
	for rows.Next() {
		cells, to := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range cells {
			to[i] = &cells[i]
		}
		if err := rows.Scan(to...); err != nil {
			return fmt.Errorf("explain the claim: %w", err)
		}
		line := map[string]string{}
		for i, name := range names {
			line[strings.ToLower(name)] = cells[i].String
		}
		if line["table"] != "o" {
			continue
		}
		planned = true
		if mysql.QuoteName(line["key"]) != s.index || strings.Contains(line["extra"], "filesort") || strings.Contains(line["extra"], "temporary") {
			return design("the server would run a claim by the index %q (%s) instead of reading %s in its order; compare the table with `projector outbox ddl`", line["key"], line["extra"], s.index)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("explain the claim: %w", err)
	}
	if !planned {
		return design("the server does not explain the claim; EXPLAIN %s", s.pickDue())
	}
	return nil
}

// admitted makes final what only a person can correct, with what to do.
func admitted(err error) error {
	switch code(err) {
	case errAccess, errDatabase:
		return &DesignError{err.Error() + "; correct the shard's dsn"}
	case errTable:
		return &DesignError{err.Error() + "; grant what `projector outbox ddl --grants` lists"}
	case errBinlog:
		return &DesignError{err.Error() + "; set binlog_format=ROW (or MIXED) on the server"}
	}
	return err
}
