package chschema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/testenv"
)

// TestReplicasAreCompared needs no replicated tables, which these servers
// lack: the replicas of a cluster are whoever the configuration names.
func TestReplicasAreCompared(t *testing.T) {
	var ports [2]int
	for i := range ports {
		port, release, err := testenv.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(release)
		ports[i] = port
	}
	replica := func(port int) string {
		return fmt.Sprintf("<replica><host>127.0.0.1</host><port>%d</port></replica>", port)
	}
	clusters := "<remote_servers><one><shard><internal_replication>true</internal_replication>" + replica(ports[0]) + replica(ports[1]) + "</shard></one>" +
		"<two><shard>" + replica(ports[0]) + "</shard><shard>" + replica(ports[1]) + "</shard></two></remote_servers>"
	table := fitness("d")
	var conn chschema.Conn
	for i, port := range ports {
		s := testenv.NewClickHouse(t, testenv.ClickHouseConfig{Databases: []string{"d"}, Server: clusters, TCPPort: port})
		c := dial(t, s.Addr(), clickhouse.Auth{Database: "d"}, nil)
		older := table
		if i == 1 {
			older.Columns = append(columns("data_id UInt64", "detect_id UInt64", "user_id UInt32", "extra String"), table.Columns[3:8]...)
		} else {
			conn = c
		}
		if err := c.Exec(t.Context(), older.CreateTable()); err != nil {
			t.Fatal(err)
		}
	}
	for cluster, wants := range map[string][]string{
		"one": {
			"it is ReplacingMergeTree and not replicated",
			fmt.Sprintf(":%d the column user_id is UInt32 instead of UInt64", ports[1]),
			fmt.Sprintf(":%d the column event_id is missing instead of String", ports[1]),
			fmt.Sprintf(":%d has a column extra that this one lacks", ports[1]),
		},
		"two":   {"the cluster two has 2 shards: versions of one record would lie on different shards"},
		"three": {"the server knows no cluster three"},
	} {
		table.Cluster = cluster
		got := verdicts(diff(t, conn, table))
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("cluster %s: %q is missing:\n%s", cluster, want, got)
			}
		}
		if strings.Contains(got, fmt.Sprintf(":%d the column", ports[0])) {
			t.Errorf("the server differs from itself:\n%s", got)
		}
	}
}

// TestReplicatedTableIsRecognized knows the engine as a replica and as a
// cloud server print it.
func TestReplicatedTableIsRecognized(t *testing.T) {
	s := newServer(t)
	table := fitness(s.Name)
	s.apply(t, table)
	state, err := chschema.Inspect(t.Context(), s.conn, table)
	if err != nil {
		t.Fatal(err)
	}
	table.Cluster = "main"
	state.Shards = 1
	plain := state.Table.EngineFull
	for _, family := range []string{"Replicated", "Shared"} {
		state.Table.Engine = family + "ReplacingMergeTree"
		state.Table.EngineFull = strings.Replace(plain, "ReplacingMergeTree(", family+`ReplacingMergeTree('/clickhouse/tables/{uuid}/{shard}', '{replica}', `, 1)
		for _, c := range chschema.DiffTable(table, state) {
			t.Errorf("%s: %s", state.Table.EngineFull, c)
		}
	}
}
