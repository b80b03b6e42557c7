package ops

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry makes a registry of its own, so that a library which registers
// with the global one cannot put names into our /metrics. It holds the build,
// the process and the Go runtime.
func NewRegistry(b Build) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		b.collector(),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}
