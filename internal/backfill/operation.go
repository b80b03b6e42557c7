package backfill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/audit"
)

// Scope is what the record keeps of what was asked for.
type Scope struct {
	Campaigns []string `json:"campaigns,omitempty"`
	All       bool     `json:"all,omitempty"` // of the source's list, taken anew when the operation is resumed; see Passed
	Rate      int      `json:"rate,omitempty"`
	Table     string   `json:"table"`
	Shards    []string `json:"shards"`
}

// Found is what the table held of the campaigns before the operation.
type Found struct {
	Rows    uint64 `ch:"rows" json:"rows"` // physical ones: a record may have several
	Highest uint64 `ch:"highest" json:"highest_version"`
}

// Before asks what the table holds of the campaigns; of all for none.
func Before(ctx context.Context, conn chschema.Conn, table chschema.Table, campaigns []string) (Found, error) {
	query := fmt.Sprintf("SELECT count() AS rows, toUInt64(max(%s)) AS highest FROM %s", chschema.QuoteName(table.Version), table.Qualified(table.Physical()))
	if len(campaigns) > 0 {
		query += fmt.Sprintf(" WHERE %s IN (%s)", chschema.QuoteName(table.Campaign), chschema.QuoteStrings(campaigns))
	}
	var found []Found
	if err := conn.Select(ctx, &found, query+" SETTINGS final = 0"); err != nil {
		return Found{}, fmt.Errorf("count the rows of %s: %w", table.Physical(), err)
	}
	return found[0], nil
}

// Passed returns those of the listed campaigns that are behind the checkpoint of
// an operation although it has covered nothing of them that can still be seen:
// the source has rows of them, and the table has none of the operation's origin.
// They have appeared since, or all that was written of them has been replaced.
// The operation will not come back to them. The source must have been prepared.
func Passed(ctx context.Context, conn chschema.Conn, table chschema.Table, source *Source, op audit.Operation, list []string) ([]string, error) {
	var at Checkpoint
	if len(op.Checkpoint) > 0 {
		if err := json.Unmarshal(op.Checkpoint, &at); err != nil {
			return nil, fmt.Errorf("operation %s: its checkpoint: %w", op.ID, err)
		}
	}
	var behind []string
	for _, campaign := range list {
		if at.Campaign != "" && (at.Done || compareCampaigns(campaign, at.Campaign) < 0) {
			behind = append(behind, campaign)
		}
	}
	if len(behind) == 0 {
		return nil, nil
	}
	var rows []struct {
		Campaign string `ch:"campaign"`
	}
	query := fmt.Sprintf("SELECT DISTINCT toString(%s) AS campaign FROM %s WHERE _origin = %s SETTINGS final = 0",
		chschema.QuoteName(table.Campaign), table.Qualified(table.Physical()), chschema.QuoteString(op.Origin()))
	if err := conn.Select(ctx, &rows, query); err != nil {
		return nil, fmt.Errorf("list the campaigns of %s in %s: %w", op.Origin(), table.Physical(), err)
	}
	covered := map[string]bool{}
	for _, r := range rows {
		covered[r.Campaign] = true
	}
	var passed []string
	for _, campaign := range behind {
		if covered[campaign] {
			continue
		}
		argument, err := source.campaign(campaign)
		if err != nil {
			return nil, err
		}
		exists, err := source.exists(ctx, argument)
		if err != nil {
			return nil, err
		}
		if exists {
			passed = append(passed, campaign)
		}
	}
	return passed, nil
}

// saveEvery is how much work a killed process repeats at least: a checkpoint is
// a row of the record, and one after each small chunk would be many.
const saveEvery = time.Second

// Execute copies what o says from where the operation stands, and keeps the
// record: checkpoints, signs of life, and in the end applied or failed. What it
// returns beside an error is what was done until then.
func Execute(ctx context.Context, run *audit.Run, source *Source, o Options, writers ...*Writer) (Counts, error) {
	if from := run.Operation().Checkpoint; len(from) > 0 {
		if err := json.Unmarshal(from, &o.From); err != nil {
			return Counts{}, fmt.Errorf("operation %s: its checkpoint: %w", run.Operation().ID, err)
		}
		if err := o.From.check(source, run.Operation(), o.Campaigns); err != nil {
			return Counts{}, err
		}
	}
	last := o.From
	saved := time.Now()
	o.Save = func(ctx context.Context, at Checkpoint) error {
		last = at
		if time.Since(saved) < saveEvery {
			return nil
		}
		saved = time.Now()
		return run.Advance(ctx, func(op *audit.Operation) { op.Checkpoint, op.Outcome = encode(at), encode(at.Counts) })
	}

	var counts Counts
	group, work := errgroup.WithContext(ctx)
	keeping, done := context.WithCancel(work)
	group.Go(func() error { return run.Keep(keeping) })
	group.Go(func() (err error) {
		defer done()
		counts, err = Copy(work, source, o, writers...)
		return err
	})
	err := group.Wait()
	if errors.Is(err, audit.ErrTaken) {
		return counts, err
	}
	return counts, run.End(ctx, err, func(op *audit.Operation) { op.Checkpoint, op.Outcome = encode(last), encode(counts) })
}

// check refuses a checkpoint that this program has not written for the operation:
// whatever it stands for, what comes after it is not all that is left.
func (at Checkpoint) check(source *Source, op audit.Operation, campaigns []string) error {
	var scope Scope
	if err := json.Unmarshal(op.Scope, &scope); err != nil {
		return fmt.Errorf("operation %s: its scope: %w", op.ID, err)
	}
	wrong := ""
	switch n := len(at.After); {
	case !slices.Contains(source.phases(), at.Phase):
		wrong = fmt.Sprintf("phase %d", at.Phase)
	case n != 0 && n != len(source.cfg.Spec.Identity):
		wrong = fmt.Sprintf("a key of %d values (after)", n)
	case at.Sequence < 0:
		wrong = fmt.Sprintf("sequence %d", at.Sequence)
	case !scope.All && at.Campaign != "" && !slices.Contains(campaigns, at.Campaign): // one of --all may have gone from the source
		wrong = fmt.Sprintf("campaign %q", at.Campaign)
	default:
		return nil
	}
	return fmt.Errorf("operation %s: its checkpoint in %s has %s, which no backfill of its campaigns has written; begin a new backfill", op.ID, audit.Table, wrong)
}

func encode(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // these types have nothing that JSON lacks
	}
	return text
}
