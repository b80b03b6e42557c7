// Package testenv runs real servers on one machine without containers, for tests, benchmarks and the demo.
package testenv
