package main

import (
	"math"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chprojector/projector/internal/config"
)

// ownMemory is what the process holds besides its lanes: the program, its
// goroutines, the clients of Kafka, metrics and the status page.
const ownMemory = 64 << 20

// memoryBudget is what the process may take of the machine's memory, in bytes,
// whatever the size of the events and however long ClickHouse stalls. It
// counts the lanes that the configuration allows; a topic with fewer
// partitions has fewer.
func memoryBudget(cfg *config.Config) int64 {
	lanes := cfg.Lanes
	if lanes == 0 {
		lanes = runtime.GOMAXPROCS(0)
	}
	engine := cfg.Engine()
	return ownMemory + int64(lanes*len(cfg.Projections))*int64(engine.LaneBytes())
}

// limitMemory makes the collector work harder when the process comes near its
// budget, unless GOMEMLIMIT is set. The limit is soft: what is needed is given.
func limitMemory(budget int64) {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(budget)
	}
}

// budgetGauge shows the budget beside process_resident_memory_bytes.
func budgetGauge(budget int64) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "projector_memory_budget_bytes",
		Help: "What the process may take of memory by its configuration, whatever the size of the events.",
	})
	g.Set(float64(budget))
	return g
}
