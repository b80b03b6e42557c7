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

// rights splits "GRANT a, b ON object TO x".
func rights(grant string) (list []string, object string) {
	head, tail, _ := strings.Cut(strings.TrimPrefix(grant, "GRANT "), " ON ")
	object, _, _ = strings.Cut(tail, " TO ")
	return strings.Split(head, ", "), object
}

// TestSchemaRoleHasNothingToSpare takes away one right at a time, on all
// objects of its kind, and must see something fail.
func TestSchemaRoleHasNothingToSpare(t *testing.T) {
	type lack struct{ among, right, database string }
	var lacks []lack
	var users strings.Builder
	var databases []string
	for _, grant := range viewTable("d").Grants(chschema.RoleSchema, "x") {
		list, _ := rights(grant)
		for _, right := range list {
			l := lack{strings.Join(list, ", "), right, fmt.Sprint("d", len(lacks))}
			if slices.ContainsFunc(lacks, func(o lack) bool { return o.among == l.among && o.right == l.right }) {
				continue
			}
			lacks = append(lacks, l)
			databases = append(databases, l.database)
			var grants []string
			for _, grant := range viewTable(l.database).Grants(chschema.RoleSchema, "x") {
				list, object := rights(grant)
				if strings.Join(list, ", ") == l.among {
					list = slices.DeleteFunc(list, func(r string) bool { return r == right })
				}
				if len(list) > 0 {
					grants = append(grants, "GRANT "+strings.Join(list, ", ")+" ON "+object)
				}
			}
			users.WriteString(user(l.database, "default", grants...))
		}
	}
	s := testenv.NewClickHouse(t, testenv.ClickHouseConfig{Databases: databases, Users: users.String(), Server: grantsRequired})
	for _, l := range lacks {
		conn := dial(t, s.Addr(), clickhouse.Auth{Username: l.database, Password: "secret"}, nil)
		if err := everyChange(t, conn, l.database); err == nil {
			t.Errorf("%s among %s is not needed", l.right, l.among)
		} else if exception := new(clickhouse.Exception); !asException(err, exception) || exception.Code != 497 {
			t.Errorf("without %s among %s: %v", l.right, l.among, err)
		}
	}
}

// everyChange applies all sorts of changes that can be made online.
func everyChange(t *testing.T, conn chschema.Conn, database string) error {
	t.Helper()
	table := viewTable(database)
	for _, change := range []func(){
		func() {},
		func() { table.Columns = append(table.Columns, column("kind Enum8('a' = 1)")) },
		func() {
			table.Columns[len(table.Columns)-1] = column("kind Enum8('a' = 1, 'b' = 2)")
			table.Settings["fsync_after_insert"] = "1"
		},
	} {
		change()
		state, err := chschema.Inspect(t.Context(), conn, table)
		if err != nil {
			return err
		}
		if err := chschema.Apply(t.Context(), conn, chschema.Diff(table, state), nil); err != nil {
			return err
		}
	}
	return conn.Exec(t.Context(), table.RaiseFence(1))
}
