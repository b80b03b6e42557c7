// Package e2e tests the built projector as a stranger would meet it: a process with a configuration file, between a
// real Apache Kafka and a real ClickHouse, with faults. Nothing in here reaches into the program; what it did is read
// from the servers, its exit code, its probes and its metrics.
//
// Every test has a topic, a database and a consumer group of its own. E2E_EVENTS says with how many events
// TestTwoProcessesMillionEvents runs (`make e2e-full`: 1,000,000), E2E_SEED at which moments TestKillNine kills and with
// which schedule TestChaos begins, E2E_SCHEDULES how many of them it runs (`make chaos`: 200), E2E_AUTOSCALE by how much
// time runs faster for the scaler of TestAutoscale (120, with `make autoscale` 20).
//
// The files chaos_* are the chaos suite: a plan is drawn from a seed (plan), played on shared servers (lab, play, load),
// watched (gate) and judged (verdict). docs/decisions/chaos.md says why it is built so.
//
// The files autoscale_* drive processes up and down by the rule of the ScaledObject in deploy/kubernetes: the rule
// itself (rule), proof that it can thrash (canfail) and what it does with a load that stays (days), and what the broker
// has written down about the group (history). docs/decisions/autoscaling.md has what came of it.
package e2e
