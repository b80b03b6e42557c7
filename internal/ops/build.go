package ops

import (
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// Build says which program is running.
type Build struct {
	Version  string `json:"version"` // a tag, or "development"
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision, RFC 3339
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
}

// ReadBuild reads what the toolchain wrote into the binary. stamped is the
// version given at link time; without one the module's version is taken, which
// the toolchain knows for `go install …@v1.2.3`.
func ReadBuild(stamped string) Build {
	b := Build{Version: stamped}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go = info.GoVersion
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "development"
	}
	return b
}

// String is the build on one line.
func (b Build) String() string {
	s := "projector " + b.Version
	if b.Revision != "" {
		s += " (" + b.Revision[:min(12, len(b.Revision))]
		if b.Modified {
			s += ", modified"
		}
		if b.Time != "" {
			s += ", " + b.Time
		}
		s += ")"
	}
	return s + " " + b.Go
}

// collector is the usual constant gauge by which a dashboard marks releases.
func (b Build) collector() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "projector_build_info",
		Help:        "Always 1; the labels say which build is running.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "go": b.Go},
	})
	g.Set(1)
	return g
}
