// Package ops is what an operator sees of a running process: metrics, probes,
// the status page, and the log lines of trouble that lasts.
package ops
