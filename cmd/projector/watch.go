package main

import (
	"context"
	"encoding/hex"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/ops"
	"github.com/chprojector/projector/internal/reconcile"
)

// How often run looks for contradictions and at the record of findings. Merges
// of new parts begin within seconds under load, and take the evidence with
// them.
//
// A look under way at the end of the process may end by itself for a moment. To
// cut a question off makes the server report a lost client, and the embedded
// ClickHouse of the tests abort.
const (
	watchEvery  = 20 * time.Second
	lookTimeout = 40 * time.Second
	lastLook    = 3 * time.Second
)

// watcher looks beside the stream for two contents of one version, records them,
// and exports what is recorded. Nothing of it holds up the stream.
type watcher struct {
	watches  []*reconcile.Watch
	bases    []audit.Finding // what findings of each watch have in common
	findings *audit.Findings
	log      zerolog.Logger
	seen     map[string]bool // contradictions recorded by this process

	open      *prometheus.GaugeVec
	conflicts *prometheus.GaugeVec
	last      *prometheus.GaugeVec
}

// maxSeen bounds the memory of what was recorded; beyond it sightings repeat.
const maxSeen = 100_000

func newWatcher(s *shared, reader reconcile.Reader, registry prometheus.Registerer) *watcher {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "projector_" + name, Help: help}, labels)
		registry.MustRegister(v)
		return v
	}
	w := &watcher{
		findings: audit.OpenFindings(s.control, s.cfg.Audit()), log: s.log, seen: map[string]bool{},
		open:      gauge("discrepancies", "Unresolved findings of comparisons.", "projection", "kind"),
		conflicts: gauge("conflicts", "Records found with two contents at one version and not settled since.", "projection"),
		last:      gauge("last_reconcile_timestamp_seconds", "When a campaign was last compared with the source.", "projection", "against"),
	}
	for i := range s.cfg.Projections {
		p := &s.cfg.Projections[i]
		rules, _ := s.cfg.Contract(p) // without one, contents are all columns
		w.watches = append(w.watches, &reconcile.Watch{Table: s.cfg.Table(p), Contract: rules, Reader: reader})
		w.bases = append(w.bases, audit.Finding{Projection: p.Name, Generation: p.Generation, Against: "table", Kind: versionConflict})
	}
	w.zero()
	return w
}

// zero sets what is known of nothing: a series that begins with its first
// discrepancy would hide the step from an alert.
func (w *watcher) zero() {
	w.open.Reset()
	w.conflicts.Reset()
	for _, base := range w.bases {
		w.conflicts.WithLabelValues(base.Projection).Set(0)
		for _, k := range reconcile.Kinds() {
			w.open.WithLabelValues(base.Projection, string(k)).Set(0)
		}
	}
}

// versionConflict is the kind of a contradiction within the table or the topic.
const versionConflict = "version_conflict"

// start lets the watcher work until the function that it returns is called.
func (w *watcher) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	working.Go(func() { w.run(ctx) })
	return func() {
		cancel()
		working.Wait()
	}
}

// run works until ctx is done. Trouble is one streak in the log.
func (w *watcher) run(ctx context.Context) {
	streak := ops.NewStreak(w.log, "watch for contradictions")
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		look, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
		hurry := context.AfterFunc(ctx, func() { time.AfterFunc(lastLook, cancel) })
		err := w.look(look)
		hurry()
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			streak.Fail(admitted(err))
		default:
			streak.Succeed()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *watcher) look(ctx context.Context) error {
	for i, watch := range w.watches {
		found, err := watch.Look(ctx)
		if err != nil {
			return err
		}
		if err := w.record(ctx, w.bases[i], found); err != nil {
			return err
		}
	}
	return w.export(ctx)
}

// record writes what was not written before.
func (w *watcher) record(ctx context.Context, base audit.Finding, found []reconcile.Conflict) error {
	var fresh []reconcile.Conflict
	for _, c := range found {
		if !w.seen[base.Projection+c.Key] {
			fresh = append(fresh, c)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	w.log.Error().Str("projection", base.Projection).Int("records", len(fresh)).Str("first", fresh[0].ID).Uint64("version", fresh[0].Version).
		Msg("one version has two contents: the producer broke its promise, and which one readers see is not defined")
	if err := w.findings.Ensure(ctx); err != nil {
		return err
	}
	if err := w.findings.Add(ctx, conflictFindings(base, fresh)...); err != nil {
		return err
	}
	if len(w.seen) > maxSeen {
		clear(w.seen)
	}
	for _, c := range fresh {
		w.seen[base.Projection+c.Key] = true
	}
	return nil
}

func (w *watcher) export(ctx context.Context) error {
	counts, err := w.findings.Counts(ctx)
	if err != nil {
		return err
	}
	last, err := w.findings.LastComparisons(ctx, "")
	if err != nil {
		return err
	}
	w.zero()
	for _, c := range counts {
		if c.Kind == versionConflict {
			w.conflicts.WithLabelValues(c.Projection).Set(float64(c.Count))
		} else {
			w.open.WithLabelValues(c.Projection, c.Kind).Set(float64(c.Count))
		}
	}
	for _, l := range last {
		w.last.WithLabelValues(l.Projection, l.Against).Set(float64(l.At.Unix()))
	}
	return nil
}

// conflictFindings are contradictions as findings.
func conflictFindings(base audit.Finding, conflicts []reconcile.Conflict) (list []audit.Finding) {
	for _, c := range conflicts {
		row := base
		row.Against, row.Kind, row.Campaign = string(c.In), versionConflict, c.Campaign
		row.Key, row.ID, row.TargetVersion = hex.EncodeToString([]byte(c.Key)), c.ID, &c.Version
		list = append(list, row)
	}
	return list
}
