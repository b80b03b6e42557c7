// Package testenv runs real servers on one machine without containers, for tests, benchmarks, the demo and
// cmd/devstack. Start and New functions install what is missing into a cache (see CacheDir) and return when the server
// answers; nothing has to be set up by hand, and once cached nothing needs the network.
//
// # ClickHouse
//
// ClickHouse 26.7 comes as libchdb out of an npm package: clickhouse-local, which since 26.6 can listen for the native
// and the HTTP protocol. It is loaded without cgo and always runs in a process of its own, since it installs signal
// handlers, and since tests kill it.
//
// Works: users with passwords and grants (from configuration), profiles, system.query_log, MergeTree tables with
// background merges, EXCHANGE TABLES, constraints, materialized views, Distributed tables over two such servers, the
// Kafka table engine, and the data after kill -9. Does not: CREATE USER (error 514), replicated tables (225), ON CLUSTER
// without such a cluster (701, and 392 with one), SYSTEM RELOAD CONFIG, system.asynchronous_metrics. The database
// "default" is one of engine Overlay. A session differs from a full server's in implicit_select and
// allow_introspection_functions, both on. Only linux/amd64 has been tried.
//
// # Kafka
//
// Apache Kafka 4 comes as jars out of Maven and needs Java 17: one broker that is its own controller, which can be
// killed. NewFakeKafka is franz-go's kfake inside the test binary: it starts at once, and faults can be injected.
//
// # MariaDB
//
// MariaDB 10.6 or newer comes from the system's packages; on Debian and Ubuntu it is installed with apt-get if we are
// root or sudo asks no password. It speaks MySQL's protocol and knows SKIP LOCKED.
//
// # Chromium
//
// NewBrowser is Debian's Chromium without windows, for the test of the status page. It is driven by its own protocol
// over two pipes, and ends with us because they do.
//
// # Cleaning up
//
// Between us and each server stands a keeper, a small process that kills the server and removes its temporary folder
// when its owner ends, by whatever signal. See Keep.
package testenv
