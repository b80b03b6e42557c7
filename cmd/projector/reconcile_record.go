package main

import (
	"context"
	"encoding/hex"
	"encoding/json"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/reconcile"
)

// record writes the comparison, what it saw, and what it no longer saw.
func (s *scales) record(ctx context.Context, r *reconcile.Report, next uint32, before sightings) error {
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
	settled, err := s.settled(ctx, r, base, before)
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
		Verdict: string(r.Verdict), Findings: uint64(len(r.Findings) + r.Contradicted()), Buckets: r.Buckets, Compared: r.Compared, Next: next,
		SourceLive: r.Source.Live, TargetLive: r.Target.Live, Revision: string(revision), Seconds: r.Seconds, Error: r.Error,
	}))
}

// sighting is the last sighting of a finding.
type sighting struct {
	against, campaign, key string
	at                     int64 // Unix milliseconds, the precision of the record
}

func last(f audit.Finding) sighting {
	return sighting{f.Against, f.Campaign, f.Key, f.Last.UnixMilli()}
}

// sightings are those of findings that are unresolved.
type sightings map[sighting]bool

// sightings reads what is unresolved in a campaign, "" is all, before it is
// compared: what somebody sees during the comparison is not settled by it.
func (s *scales) sightings(ctx context.Context, campaign string) (sightings, error) {
	known, err := s.findings.Unresolved(ctx, audit.FindingsFilter{
		Projection: s.projection.Name, Generation: s.projection.Generation, Campaign: campaign,
	})
	before := sightings{}
	for _, f := range known {
		before[last(f)] = true
	}
	return before, admitted(err)
}

// settled are the findings that this run has looked at and not found again, and
// that nobody has seen since before it began.
func (s *scales) settled(ctx context.Context, r *reconcile.Report, of audit.Finding, before sightings) ([]audit.Finding, error) {
	if r.Verdict == reconcile.Failed {
		return nil, nil
	}
	known, err := s.findings.Unresolved(ctx, audit.FindingsFilter{
		Projection: of.Projection, Generation: of.Generation, Campaign: of.Campaign,
	})
	if err != nil {
		return nil, admitted(err)
	}
	return settledBy(r, of, known, before), nil
}

// settledBy are those of the known findings that a run settles. One of contents
// is settled only by a run that compares contents, and a contradiction only by
// one that has listed all there are.
func settledBy(r *reconcile.Report, of audit.Finding, known []audit.Finding, before sightings) (list []audit.Finding) {
	visible := map[reconcile.Contradict]map[string]bool{reconcile.InTable: {}, reconcile.InTopic: {}} // contradictions that are still there
	for _, c := range r.Conflicts {
		visible[c.In][hex.EncodeToString([]byte(c.Key))] = true
	}
	for _, f := range known {
		key, err := hex.DecodeString(f.Key)
		contents := f.Kind == string(reconcile.ContentConflict) || f.Kind == versionConflict
		switch {
		case f.Against != of.Against && f.Against != string(reconcile.InTable): // every comparison looks for contradictions in the table
			continue
		case f.Kind == versionConflict && (visible[reconcile.Contradict(f.Against)][f.Key] || r.ConflictsCut):
			continue
		case !before[last(f)]:
			continue
		case err != nil, !r.Covers(string(key)), r.Level == "counts", contents && r.Level != "fields":
			continue
		}
		f.Resolved = true
		list = append(list, f)
	}
	return list
}
