package chschema_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/testenv"
)

// profiles that a reader may be given. A constraint forbids the reader to
// change the setting, and must not forbid the view to.
const profiles = `
<readonly><readonly>1</readonly></readonly>
<hostile><readonly>1</readonly><final>1</final>
  <optimize_move_to_prewhere_if_final>1</optimize_move_to_prewhere_if_final>
  <use_skip_indexes_if_final_exact_mode>0</use_skip_indexes_if_final_exact_mode>
  <apply_deleted_mask>0</apply_deleted_mask><apply_row_policy_after_final>0</apply_row_policy_after_final>
  <do_not_merge_across_partitions_select_final>0</do_not_merge_across_partitions_select_final></hostile>
<constrained><final>1</final><optimize_move_to_prewhere_if_final>1</optimize_move_to_prewhere_if_final>
  <use_skip_indexes_if_final_exact_mode>0</use_skip_indexes_if_final_exact_mode>
  <constraints><final><readonly/></final><optimize_move_to_prewhere_if_final><readonly/></optimize_move_to_prewhere_if_final>
    <use_skip_indexes_if_final_exact_mode><readonly/></use_skip_indexes_if_final_exact_mode>
    <apply_deleted_mask><readonly/></apply_deleted_mask>
    <do_not_merge_across_partitions_select_final><readonly/></do_not_merge_across_partitions_select_final></constraints></constrained>
`

// grantsRequired is what the config.xml of a server's package has; the embedded
// server has no such file.
const grantsRequired = `<access_control_improvements>
<select_from_system_db_requires_grant>true</select_from_system_db_requires_grant>
<on_cluster_queries_require_cluster_grant>true</on_cluster_queries_require_cluster_grant>
<settings_constraints_replace_previous>true</settings_constraints_replace_previous>
</access_control_improvements>`

// user is an element of users.xml, which grants without naming the grantee.
func user(name, profile string, grants ...string) string {
	var b strings.Builder
	for _, grant := range grants {
		before, _, _ := strings.Cut(grant, " TO ")
		fmt.Fprintf(&b, "<query>%s</query>", before)
	}
	return fmt.Sprintf("<%s><password>secret</password><profile>%s</profile><grants>%s</grants></%s>\n", name, profile, b.String(), name)
}

func login(t *testing.T, s *testenv.ClickHouse, name string, settings clickhouse.Settings) server {
	t.Helper()
	conn := dial(t, s.Addr(), clickhouse.Auth{Database: "d", Username: name, Password: "secret"}, settings)
	return server{&testenv.ClickHouseDatabase{ClickHouse: s, Name: "d"}, conn}
}

// startWithUsers gives every role of the table r a user with its grants alone.
func startWithUsers(t *testing.T) *testenv.ClickHouse {
	t.Helper()
	table := chschema.Table{Database: "d", Name: "r", Generation: 1, Views: []chschema.View{{Name: "by_detect", Query: "{current}"}}}
	reader := table.Grants(chschema.RoleReader, "x")
	return testenv.NewClickHouse(t, testenv.ClickHouseConfig{
		Databases: []string{"d"}, Profiles: profiles,
		Server: grantsRequired,
		Users: user("owner", "default", table.Grants(chschema.RoleSchema, "x")...) +
			user("consumer", "default", table.Grants(chschema.RoleConsumer, "x")...) +
			user("analyst", "readonly", reader...) + user("misled", "hostile", reader...) + user("bound", "constrained", reader...) +
			strings.Replace(user("filtered", "default", reader...), "</filtered>",
				"<databases><d><r_g1><filter>project_id = 1</filter></r_g1></d></databases></filtered>", 1),
	})
}

func TestRoles(t *testing.T) {
	s := startWithUsers(t)
	admin := server{&testenv.ClickHouseDatabase{ClickHouse: s, Name: "d"}, dial(t, s.Addr(), clickhouse.Auth{Database: "d"}, nil)}
	owner := login(t, s, "owner", nil)

	// The schema's role creates, checks and changes everything.
	table := viewTable("d")
	owner.apply(t, table)
	table.Columns = append(table.Columns, column("kind Enum8('a' = 1)"))
	owner.apply(t, table)
	table.Columns = slices.Clone(table.Columns)
	table.Columns[len(table.Columns)-1] = column("kind Enum8('a' = 1, 'b' = 2)")
	table.Settings["fsync_after_insert"] = "1"
	owner.apply(t, table)
	owner.exec(t, table.RaiseFence(1))

	admin.exec(t, skipIndexes, "SYSTEM STOP MERGES r_g1")
	blocks := history(300, 4, 300)
	live := current(slices.Concat(blocks...))

	// The consumer's role checks, inserts and reads the lineage.
	consumer := login(t, s, "consumer", clickhouse.Settings{"async_insert": 0})
	if err := chschema.Check(t.Context(), consumer.conn, table); err != nil {
		t.Error(err)
	}
	insert(t, consumer, blocks...)
	consumer.exec(t, "SELECT max(_offset) FROM r_g1")
	denied(t, consumer, "ALTER TABLE r_g1 DROP COLUMN unit", "TRUNCATE TABLE r_g1", "SELECT * FROM r_current")

	// Readers see the views, all of them right, and never the table.
	for _, name := range []string{"analyst", "misled", "bound", "filtered"} {
		reader := login(t, s, name, nil)
		for _, q := range questions {
			if got, err := ask(t.Context(), reader.conn, q.query); err != nil || got != q.answer(live) {
				t.Errorf("%s: %s\n got %s, %v\nwant %s", name, q.query, got, err, q.answer(live))
			}
		}
		for view, want := range map[string]int{"r_versions": 1200, "r_conflicts": 0} {
			if got, err := ask(t.Context(), reader.conn, "SELECT toString(count()) AS answer FROM "+view); err != nil || got != fmt.Sprint(want) {
				t.Errorf("%s: %s has %s rows, not %d, %v", name, view, got, want, err)
			}
		}
		denied(t, reader, "SELECT * FROM r_g1", "INSERT INTO r_g1 (data_id, _generation) VALUES (1, 1)", "DROP VIEW r_current")
	}
}

func denied(t *testing.T, s server, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		err := s.conn.Exec(t.Context(), statement)
		if exception := new(clickhouse.Exception); !asException(err, exception) || exception.Code != 497 && exception.Code != 164 {
			t.Errorf("%s: %v", statement, err)
		}
	}
}
