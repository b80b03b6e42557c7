package main

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/ops"
	"github.com/chprojector/projector/internal/reconcile"
)

// How often run looks for contradictions. Merges of new parts begin within
// seconds under load, and take the evidence with them. The record is read with
// each second look: that takes 0.1 s for 100,000 sightings, 0.6 s for a million
// (measured on two cores).
//
// A look under way at the end of the process may end by itself for a moment. To
// cut a question off makes the server report a lost client, and the embedded
// ClickHouse of the tests abort.
const (
	watchEvery  = 20 * time.Second
	looksARead  = 2
	lookTimeout = 40 * time.Second
	lastLook    = 3 * time.Second
)

// watcher looks beside the stream for two contents of one version, records them,
// and exports what is recorded, as it was last read. Nothing of it holds up the
// stream.
//
// What was never read, or never compared, has no sample: a 0 would say that
// somebody has looked.
type watcher struct {
	watches  []*reconcile.Watch
	bases    []audit.Finding // what findings of each watch have in common
	findings *audit.Findings
	record   *audit.Log
	log      zerolog.Logger
	seen     map[string]bool // contradictions recorded by this process

	open       *prometheus.GaugeVec
	conflicts  *prometheus.GaugeVec
	last       *prometheus.GaugeVec
	operations *prometheus.GaugeVec
	oldest     *prometheus.GaugeVec
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
		findings: audit.OpenFindings(s.control, s.cfg.Audit()), record: audit.Open(s.control, s.cfg.Audit()), log: s.log, seen: map[string]bool{},
		open:      gauge("discrepancies", "Unresolved findings of comparisons.", "projection", "kind"),
		conflicts: gauge("conflicts", "Records found with two contents at one version and not settled since.", "projection"),
		last:      gauge("last_reconcile_timestamp_seconds", "When a campaign was last found equal to its source, or different.", "projection", "against"),

		operations: gauge("operations", "Operations that go on, that failed, or that wait for a person.", "projection", "kind", "state"),
		oldest:     gauge("operations_oldest_timestamp_seconds", "Since when the oldest of them is in its state; of running ones, the oldest last sign of life.", "projection", "kind", "state"),
	}
	for i := range s.cfg.Projections {
		p := &s.cfg.Projections[i]
		rules, _ := s.cfg.Contract(p) // without one, contents are all columns
		w.watches = append(w.watches, &reconcile.Watch{Table: s.cfg.Table(p), Contract: rules, Reader: reader})
		w.bases = append(w.bases, audit.Finding{Projection: p.Name, Generation: p.Generation, Against: "table", Kind: versionConflict})
	}
	return w
}

// versionConflict is the kind of a contradiction within the table or the topic.
const versionConflict = "version_conflict"

// run works until ctx is done. Trouble is one streak in the log.
func (w *watcher) run(ctx context.Context) {
	streak := ops.NewStreak(w.log, "watch for contradictions")
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		look, done := looking(ctx)
		err := w.look(look)
		if n%looksARead == 0 {
			err = errors.Join(err, w.export(look))
		}
		done()
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

// looking is the context of one look, which ends lastLook after ctx does. done
// must be called.
func looking(ctx context.Context) (look context.Context, done func()) {
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	hurry := context.AfterFunc(ctx, func() { time.AfterFunc(lastLook, cancel) })
	return look, func() {
		hurry()
		cancel()
	}
}

// look looks for contradictions and records them. Here and in export what one
// part may not see does not keep the others from being known.
func (w *watcher) look(ctx context.Context) (err error) {
	for i, watch := range w.watches {
		found, failed := watch.Look(ctx)
		if failed == nil {
			failed = w.keep(ctx, w.bases[i], found)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// export reads the record.
func (w *watcher) export(ctx context.Context) error {
	return errors.Join(w.exportFindings(ctx), w.exportOperations(ctx))
}

// keep records what was not recorded before.
func (w *watcher) keep(ctx context.Context, base audit.Finding, found []reconcile.Conflict) error {
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

// exportFindings exports what comparisons and looks have found. A kind of which
// there is none is 0 where a comparison has said so.
func (w *watcher) exportFindings(ctx context.Context) error {
	counts, err := w.findings.Counts(ctx)
	if err != nil {
		return err
	}
	answers, err := w.findings.LastAnswers(ctx)
	if err != nil {
		return err
	}
	w.open.Reset()
	w.last.Reset()
	for _, base := range w.bases {
		w.conflicts.WithLabelValues(base.Projection).Set(0) // this process looks
		for _, a := range answers {
			if a.Projection != base.Projection || a.Generation != base.Generation {
				continue
			}
			w.last.WithLabelValues(a.Projection, a.Against).Set(float64(a.At.Unix()))
			for _, k := range reconcile.Kinds() {
				w.open.WithLabelValues(a.Projection, string(k)).Set(0)
			}
		}
		for _, c := range counts {
			switch {
			case c.Projection != base.Projection || c.Generation != base.Generation:
			case c.Kind == versionConflict:
				w.conflicts.WithLabelValues(c.Projection).Set(float64(c.Count))
			default:
				w.open.WithLabelValues(c.Projection, c.Kind).Set(float64(c.Count))
			}
		}
	}
	return nil
}

// exportOperations exports what writes to the tables beside the stream.
func (w *watcher) exportOperations(ctx context.Context) error {
	counts, err := w.record.Counts(ctx)
	if err != nil {
		return err
	}
	w.operations.Reset()
	w.oldest.Reset()
	for _, c := range counts {
		labels := []string{c.Projection, string(c.Kind), string(c.State)}
		w.operations.WithLabelValues(labels...).Set(float64(c.Operations))
		w.oldest.WithLabelValues(labels...).Set(float64(c.Oldest.Unix()))
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
