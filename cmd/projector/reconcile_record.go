package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/reconcile"
)

// record writes the comparison, what it saw, and what it no longer saw.
func (s *scales) record(ctx context.Context, r *reconcile.Report, next uint32) error {
	revision, err := json.Marshal(r.Parts)
	if err != nil {
		return err
	}
	base := audit.Finding{Projection: r.Projection, Generation: s.projection.Generation, Against: r.Against, Campaign: r.Campaign}
	var list []audit.Finding
	for _, f := range r.Findings {
		row := base
		row.Key, row.ID, row.Kind = hex.EncodeToString([]byte(f.Key)), f.ID, string(f.Kind)
		if f.Source != nil {
			row.SourceVersion, row.SourceDeleted, row.Place = &f.Source.Version, f.Source.Deleted, f.Source.Place
		}
		if f.Target != nil {
			row.TargetVersion, row.TargetDeleted = &f.Target.Version, f.Target.Deleted
		}
		if len(f.Fields) > 0 {
			fields, err := json.Marshal(f.Fields)
			if err != nil {
				return err
			}
			row.Fields = string(fields)
		}
		list = append(list, row)
	}
	settled, err := s.settled(ctx, r, base)
	if err != nil {
		return err
	}
	list = append(list, settled...)
	list = append(list, conflictFindings(base, r.Conflicts)...)
	if err := s.findings.Add(ctx, list...); err != nil {
		return admitted(err)
	}
	return admitted(s.findings.AddComparison(ctx, audit.Comparison{
		Projection: r.Projection, Generation: s.projection.Generation, Against: r.Against, Campaign: r.Campaign, Level: r.Level,
		Verdict: string(r.Verdict), Findings: uint64(len(r.Findings)), Buckets: r.Buckets, Compared: r.Compared, Next: next,
		SourceLive: r.Source.Live, TargetLive: r.Target.Live, Revision: string(revision), Seconds: r.Seconds, Error: r.Error,
	}))
}

// settled are the findings that this run has looked at and not found again. One
// of contents is settled only by a run that compares contents.
func (s *scales) settled(ctx context.Context, r *reconcile.Report, of audit.Finding) ([]audit.Finding, error) {
	if r.Verdict == reconcile.Failed {
		return nil, nil
	}
	known, err := s.findings.Unresolved(ctx, audit.FindingsFilter{
		Projection: of.Projection, Generation: of.Generation, Campaign: of.Campaign,
	})
	if err != nil {
		return nil, admitted(err)
	}
	visible := map[string]bool{} // contradictions that are still in the table
	for _, c := range r.Conflicts {
		visible[hex.EncodeToString([]byte(c.Key))] = true
	}
	var list []audit.Finding
	for _, f := range known {
		key, err := hex.DecodeString(f.Key)
		contents := f.Kind == string(reconcile.ContentConflict) || f.Kind == versionConflict
		switch {
		case f.Against != of.Against && f.Kind != versionConflict, f.Kind == versionConflict && visible[f.Key]:
			continue
		case err != nil, !r.Covers(string(key)), r.Level == "counts", contents && r.Level != "fields":
			continue
		}
		f.Resolved = true
		list = append(list, f)
	}
	return list, nil
}

// lag is how far a consumer group is.
type lag struct {
	admin  *kafka.Admin
	group  string
	topics []string
}

// Mark implements [reconcile.Progress]. A topic that does not exist has no
// events that could be under way.
func (l lag) Mark(ctx context.Context) (reconcile.Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if err := l.admin.Ping(ctx); err != nil {
		return nil, err
	}
	offsets, err := l.admin.Offsets(ctx, l.topics...)
	if errors.Is(err, kafka.ErrUnknownTopic) {
		return reconcile.Mark{}, nil
	}
	if err != nil {
		return nil, err
	}
	mark := reconcile.Mark{}
	for _, o := range offsets {
		mark[reconcile.Partition{Topic: o.Topic, ID: o.Partition}] = o.End
	}
	return mark, nil
}

// Behind implements [reconcile.Progress].
func (l lag) Behind(ctx context.Context, mark reconcile.Mark) (behind int64, err error) {
	if len(mark) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	lags, err := l.admin.Lag(ctx, l.group, l.topics...)
	if err != nil {
		return 0, err
	}
	for _, p := range lags {
		end, ok := mark[reconcile.Partition{Topic: p.Topic, ID: p.Partition}]
		if ok {
			behind += max(0, end-max(p.Committed, p.Start))
		}
	}
	return behind, nil
}
