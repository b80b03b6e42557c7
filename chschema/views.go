package chschema

import (
	"fmt"
	"slices"
	"strings"
)

// Definition is a view ready to be created: its query names its sources in
// full and holds the settings that it needs.
type Definition struct {
	Name    string // without the database
	Query   string
	Comment string // what an analyst should know
}

// Settings that the views fix in their own query, where they win over what a
// reader's profile, session or query says (measured on 26.7, also for a reader
// with readonly = 1 or with constraints on them).
//
// optimize_move_to_prewhere_if_final: a filter before the merge hides the
// current row and leaves the old one. use_skip_indexes_if_final_exact_mode:
// without it a skip index that somebody adds does the same, and so does
// apply_row_policy_after_final for a row policy. apply_deleted_mask: what DELETE
// FROM removed stays removed. do_not_merge_across_partitions_select_final makes
// FINAL cheaper and is right only because [Table.Validate] has proven that all
// versions of a record share a partition.
//
// In the views of raw rows final = 0: a reader's final = 1 would hide the very
// rows that they are there to show.
const (
	finalSettings = "optimize_move_to_prewhere_if_final = 0, use_skip_indexes_if_final_exact_mode = 1, " +
		"apply_row_policy_after_final = 1, apply_deleted_mask = 1, do_not_merge_across_partitions_select_final = 1"
	rawSettings = "final = 0, apply_deleted_mask = 1"
)

// Definitions returns the views in the order in which they must be created:
// the table's own, then the configured ones.
func (t Table) Definitions() []Definition {
	list := []Definition{
		{t.Current(), t.currentQuery(), "Current rows of " + t.Name + ": each record once, in its newest version, deleted records left out. Query this."},
		{t.Versions(), t.versionsQuery(), "Every stored row of " + t.Name + " with where it came from. Merges remove rows that a newer version replaced."},
		{t.Conflicts(), t.conflictsQuery(), "Rows of " + t.Name + " that have the same record and version but other content. Should be empty. Merges destroy the evidence."},
		{t.Freshness(), t.freshnessQuery(), "Per Kafka partition the newest row of " + t.Name + " and its age."},
	}
	for _, v := range t.Views {
		query := strings.ReplaceAll(strings.TrimSpace(v.Query), CurrentPlaceholder, t.Qualified(t.Current()))
		list = append(list, Definition{v.Name, query, "Report over " + t.Current() + "."})
	}
	return list
}

// currentQuery keeps the filter of deleted records beside FINAL instead of
// around it: a reader's own filter ends up in the same place in the query plan
// anyway, so that only the settings, not the nesting, decide when it runs.
func (t Table) currentQuery() string {
	var where string
	if t.Deleted != "" {
		where = fmt.Sprintf("WHERE %s = 0\n", QuoteName(t.Deleted))
	}
	return fmt.Sprintf("SELECT\n%s\nFROM %s FINAL\n%sSETTINGS %s",
		selectList(names(t.Columns)), t.Qualified(t.Physical()), where, finalSettings)
}

func (t Table) versionsQuery() string {
	return fmt.Sprintf("SELECT\n%s\nFROM %s\nSETTINGS %s",
		selectList(names(t.allColumns())), t.Qualified(t.Physical()), rawSettings)
}

// conflictsQuery reads the table twice and keeps two hashes per record and
// version. Collecting the rows in the groups instead would read it once, but
// holds every row of the table in memory to find that none conflicts.
//
// It groups by the identity, not by the order key: an order_by column that
// changed for a record, against the promise of the configuration, shows too.
// The hash takes a tuple because sipHash128 of several arguments is NULL as
// soon as one of them is.
func (t Table) conflictsQuery() string {
	key := QuoteNames(append(slices.Clone(t.Identity), t.Version))
	table := t.Qualified(t.Physical())
	digest := fmt.Sprintf("sipHash128(tuple(%s))", QuoteNames(names(t.Columns)))
	return fmt.Sprintf(`SELECT
%s
FROM %s
WHERE (%s) IN
(
    SELECT %s
    FROM %s
    GROUP BY %s
    HAVING min(%s) != max(%s)
    SETTINGS %s
)
SETTINGS %s`, selectList(names(t.allColumns())), table, key, key, table, key, digest, digest, rawSettings, rawSettings)
}

// freshnessQuery counts only what the stream wrote: a backfill that runs now
// says nothing of how far the stream has come.
func (t Table) freshnessQuery() string {
	return fmt.Sprintf(`SELECT
    %[1]s,
    %[2]s,
    max(%[3]s) AS newest_offset,
    max(%[4]s) AS newest_ingested_at,
    dateDiff('millisecond', max(%[4]s), now64(3)) / 1000 AS seconds_since,
    count() AS rows
FROM %[5]s
WHERE %[6]s = %[7]s
GROUP BY %[1]s, %[2]s
SETTINGS %[8]s`, QuoteName(ColumnTopic), QuoteName(ColumnPartition), QuoteName(ColumnOffset), QuoteName(ColumnIngestedAt),
		t.Qualified(t.Physical()), QuoteName(ColumnOrigin), QuoteString(OriginStream), rawSettings)
}

func selectList(columns []string) string {
	lines := make([]string, len(columns))
	for i, name := range columns {
		lines[i] = "    " + QuoteName(name)
	}
	return strings.Join(lines, ",\n")
}

// CreateView returns the statement that creates the view or replaces it in one
// step, without a moment in which it is missing.
//
// The view runs with the rights of whoever creates it, so that readers need
// SELECT on the views only: a reader who cannot reach the table cannot forget
// FINAL. The price: a row policy on the table binds the creator, not the
// reader.
func (t Table) CreateView(d Definition) string {
	return fmt.Sprintf("CREATE OR REPLACE VIEW %s%s\nDEFINER = CURRENT_USER SQL SECURITY DEFINER\nAS %s\nCOMMENT %s",
		t.Qualified(d.Name), t.onCluster(), d.Query, QuoteString(t.mark(d, "")))
}

// Statements returns the DDL of the table and its views, in order.
func (t Table) Statements() []string {
	list := []string{t.CreateTable()}
	for _, d := range t.Definitions() {
		list = append(list, t.CreateView(d))
	}
	return list
}
