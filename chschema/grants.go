package chschema

import "fmt"

// Role is a kind of user of the table.
type Role uint8

// The roles.
const (
	RoleConsumer Role = iota // `projector run`: inserts, checks the table at start, reads back its lineage
	RoleReader               // analysts: the views alone
	RoleSchema               // `projector schema apply`: owns the views, which run with its rights
	RoleRemover              // `projector repair apply`, where it may remove rows: beside the consumer's rights
	RoleRebuild              // `projector rebuild`: fills this table, switches the views, closes and drops the older ones
)

// Grants returns the statements that give user what the role needs for this
// table, and nothing more.
func (t Table) Grants(role Role, user string) []string {
	grant := func(rights, object string) string {
		return fmt.Sprintf("GRANT%s %s ON %s TO %s", t.onCluster(), rights, object, QuoteName(user))
	}
	table := t.Qualified(t.Physical())
	var list []string
	switch role {
	case RoleConsumer:
		list = append(list, grant("SELECT, INSERT", table), grant("SELECT", "system.parts")) // new parts are looked at for contradictions
		if t.Cluster != "" {
			list = append(list, grant("SELECT", "system.clusters"), grant("REMOTE", "*.*")) // to compare the replicas
		}
	case RoleReader:
		for _, d := range t.Definitions() {
			list = append(list, grant("SELECT", t.Qualified(d.Name)))
		}
	case RoleSchema:
		list = append(list, grant("SELECT, CREATE TABLE, ALTER ADD COLUMN, ALTER MODIFY COLUMN, ALTER CONSTRAINT, ALTER SETTINGS", table))
		for _, d := range t.Definitions() {
			list = append(list, grant("SELECT, INSERT, CREATE TABLE, DROP VIEW, ALTER MODIFY COMMENT", t.Qualified(d.Name)))
		}
		list = append(list, grant("TABLE ENGINE", "ReplacingMergeTree"))
		// CREATE OR REPLACE builds the new view under a name of its own, renames
		// it and drops the old one under that name. CREATE TABLE implies CREATE
		// VIEW.
		list = append(list, grant("SELECT, DROP TABLE", QuoteName(t.Database)+"._tmp_replace_*"),
			grant("SELECT", "system.merge_tree_settings"))
		if t.Cluster != "" {
			list = append(list, grant("SELECT", "system.clusters"), grant("REMOTE, CLUSTER", "*.*"))
		}
	case RoleRemover:
		list = append(list, grant("ALTER DELETE", table))
	case RoleRebuild:
		list = append(t.Grants(RoleConsumer, user), t.Grants(RoleSchema, user)...)
		for older := t; older.Generation > 1; {
			older.Generation--
			list = append(list, grant("SELECT, ALTER CONSTRAINT, DROP TABLE", t.Qualified(older.Physical())))
		}
	}
	return list
}
