package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/chprojector/projector/internal/backfill"
	"github.com/chprojector/projector/mapping"
)

// dryBackfill is what a backfill would do.
type dryBackfill struct {
	Projection string            `json:"projection"`
	Table      string            `json:"table"`
	SQL        map[string]string `json:"sql"` // by phase, as the shards are asked
	Samples    []drySample       `json:"samples"`
	backfill.Counts
}

type drySample struct {
	Campaign string       `json:"campaign"`
	Query    string       `json:"query"`
	Row      []triedValue `json:"row"`
}

const (
	sampleRows = 2  // of each campaign and phase
	maxSamples = 10 // in all
)

// dryRun reads and maps all that a backfill would write, so that its counts are
// those of the backfill and every refusal is known before.
func (j *backfillJob) dryRun(ctx context.Context, list []string) error {
	dry := dryBackfill{
		Projection: j.projection.Name, Table: j.table.Physical(),
		SQL: map[string]string{backfill.Live.String(): j.source.Statement(backfill.Live)}, Samples: []drySample{},
	}
	if j.source.Plan(backfill.Deleted) != nil {
		dry.SQL[backfill.Deleted.String()] = j.source.Statement(backfill.Deleted)
	}
	progress := newProgress(ctx, j.p.stderr, j.log, j.source, list)
	counts, err := backfill.Map(ctx, j.source, backfill.Options{Campaigns: list, Progress: progress.report}, sampleRows, func(campaign string, phase backfill.Phase, rows *mapping.Rows) {
		for i := range min(rows.Len(), sampleRows) {
			if len(dry.Samples) < maxSamples {
				dry.Samples = append(dry.Samples, drySample{campaign, phase.String(), valuesOf(rows, i)})
			}
		}
	})
	progress.close()
	if err != nil {
		return err
	}
	dry.Counts = counts
	result := backfillResult{Counts: counts}
	if j.command.json() {
		return errors.Join(printJSON(j.p.stdout, dry), result.answer())
	}
	w := j.p.stdout
	for _, phase := range []backfill.Phase{backfill.Live, backfill.Deleted} {
		if sql, ok := dry.SQL[phase.String()]; ok {
			fmt.Fprintf(w, "-- %s, on each shard\n%s;\n\n", phase, sql)
		}
	}
	for _, s := range dry.Samples {
		fmt.Fprintf(w, "campaign %s, from %s:\n", s.Campaign, s.Query)
		if err := printRow(w, s.Row); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "Nothing was written to %s. A backfill of %s would write %d of %s and %s; refused: %d, not unique: %d.\n",
		dry.Table, count(int(counts.Campaigns), "campaign"), counts.Written, count(int(counts.Rows), "row"), count(int(counts.Deletions), "deletion"), counts.Refused, counts.Repeated)
	return errors.Join(printRefusals(w, counts.Refusals, counts.Refused+counts.Repeated), result.answer())
}
