// Package e2e tests the built projector as a stranger would meet it: a process with a configuration file, between a
// real Apache Kafka and a real ClickHouse, with faults. Nothing in here reaches into the program; what it did is read
// from the servers, its exit code, its probes and its metrics.
//
// Every test has a topic, a database and a consumer group of its own. E2E_EVENTS says with how many events
// TestTwoProcessesMillionEvents runs (`make e2e-full`: 1,000,000), E2E_SEED at which moments TestKillNine kills.
package e2e
