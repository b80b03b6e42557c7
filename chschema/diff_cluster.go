package chschema

import (
	"fmt"
	"slices"
)

// cluster reports replicas that differ: an ALTER that reached only some of
// them makes inserts fail or succeed by the address that a client happens to
// pick.
func (d *differ) cluster() {
	if d.table.Cluster == "" {
		return
	}
	switch {
	case d.state.Shards == 0:
		d.refused("name a cluster of system.clusters, or remove cluster from the configuration", "",
			"the server knows no cluster %s", d.table.Cluster)
	case d.state.Shards > 1:
		d.refused("use a cluster of one shard with several replicas",
			"versions of one record would lie on different shards, where they never replace each other",
			"the cluster %s has %d shards", d.table.Cluster, d.state.Shards)
	}
	hosts := map[string]map[string]string{}
	for _, c := range d.state.Replicas {
		if hosts[c.Host] == nil {
			hosts[c.Host] = map[string]string{}
		}
		hosts[c.Host][c.Name] = c.Type
	}
	if d.state.Table == nil {
		return
	}
	for _, host := range sortedKeys(hosts) {
		for _, c := range d.state.Table.Columns {
			if have := hosts[host][c.Name]; have != c.Type {
				d.refused(fmt.Sprintf("on %s: SYSTEM SYNC REPLICA %s, then look into system.replication_queue", host, d.table.Qualified(d.table.Physical())),
					"an insert would fail or succeed by the replica that it reaches",
					"on replica %s the column %s is %s instead of %s", host, c.Name, orText(have, "missing"), c.Type)
			}
		}
		for _, name := range sortedKeys(hosts[host]) {
			if !slices.ContainsFunc(d.state.Table.Columns, func(c ColumnState) bool { return c.Name == name }) {
				d.refused(fmt.Sprintf("on this server: SYSTEM SYNC REPLICA %s, then look into system.replication_queue", d.table.Qualified(d.table.Physical())),
					"an insert would fail or succeed by the replica that it reaches", "replica %s has a column %s that this one lacks", host, name)
			}
		}
	}
}
