package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chprojector/projector/internal/contract"
)

// candidate is a record that differed when it was first read.
type candidate struct {
	pair
	kind Kind
}

// open reads the differing buckets record by record, and confirms what differs.
//
// A round reads the source (A), the table, waits for what is under way, reads
// the table again and then the source again (B). Every change of a record raises
// its version, so a record that is the same in A and B was so all the while, and
// the table, read between them, had to agree. Whatever else holds goes into the
// next round.
func (j *job) open(ctx context.Context, scans []contract.Scan) error {
	var again map[string]bool // the records that the next round looks at; nil = all
	for round := range j.o.Rounds {
		j.report.Rounds = round + 1
		found, used, err := j.compare(ctx, scans, again)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			again = nil
			break
		}
		reason, err := j.settle(ctx, found, used)
		if err != nil {
			return err
		}
		if again, err = j.confirm(ctx, found, used, reason); err != nil {
			return err
		}
		if len(again) == 0 {
			break
		}
		if j.Again != nil {
			j.Again(j.campaign, round+1, j.o.Rounds, len(again), j.report.Reason)
		}
		scans = used
	}
	j.report.Unresolved = len(again)
	if len(again) == 0 {
		j.report.Reason = ""
	}
	for id := range again {
		j.report.open[id] = true
	}
	slices.SortFunc(j.report.Findings, func(a, b Finding) int { return strings.Compare(a.Key, b.Key) })
	return nil
}

// compare reads both sides once and returns what differs, and the scans that it
// is in. When the limit of findings is reached the other scans stay closed.
func (j *job) compare(ctx context.Context, scans []contract.Scan, only map[string]bool) (map[string]*candidate, []contract.Scan, error) {
	found := map[string]*candidate{}
	var used []contract.Scan
	for n, scan := range scans {
		if len(found)+len(j.report.Findings) >= j.o.Limit {
			if only == nil {
				for _, s := range scans[n:] {
					j.report.Unopened += len(s.Only)
				}
				break
			}
		}
		pairs, err := j.source(ctx, scan, nil)
		if err != nil {
			return nil, nil, err
		}
		if err := j.table(ctx, scan, pairs); err != nil {
			return nil, nil, err
		}
		before := len(found)
		for id, p := range pairs {
			if only != nil && !only[id] {
				continue
			}
			if p.source == nil && p.target.Deleted && only == nil && p.rows == 1 && j.Deletes {
				j.report.Forgotten++
			}
			if k := j.judge(*p); k != "" {
				found[id] = &candidate{pair: *p, kind: k}
			}
		}
		if len(found) > before {
			used = append(used, scan)
		}
	}
	return found, used, nil
}

// judge is the kind of a pair, as far as this source can tell.
func (j *job) judge(p pair) Kind {
	k := p.kind(j.o.Level)
	if j.o.Partial && (k == Unexpected || k == Ahead) {
		return "" // what shows it may have been removed from the source
	}
	return k
}

// source reads one scan of the source into pairs.
func (j *job) source(ctx context.Context, scan contract.Scan, only map[string]*candidate) (map[string]*pair, error) {
	pairs := map[string]*pair{}
	err := j.Source.Records(ctx, j.campaign, scan, func(r Record) error {
		if only != nil && only[r.ID] == nil {
			return nil
		}
		p := pairs[r.ID]
		if p == nil {
			p = &pair{}
			pairs[r.ID] = p
		}
		if !r.Deleted {
			if p.live != nil {
				return fmt.Errorf("the source holds the record %s twice (%s, %s): no table can be equal to both; correct the source, or source.projections.*.rows",
					j.Contract.Identity(r.ID), p.live.Place, r.Place)
			}
			p.live = &r
		}
		if p.source == nil || r.outranks(p.source) {
			p.source = &r
		}
		return nil
	})
	return pairs, err
}

// outranks reports whether r, and not o, which another shard has, is the state of
// their record: the higher version wins, and at equal versions the row, as within
// a shard.
func (r *Record) outranks(o *Record) bool {
	return r.Version > o.Version || r.Version == o.Version && o.Deleted
}

// table reads one scan of the table into pairs.
func (j *job) table(ctx context.Context, scan contract.Scan, pairs map[string]*pair) error {
	return j.Table.Records(ctx, j.campaign, scan, func(r Record) error {
		p := pairs[r.ID]
		if p == nil {
			p = &pair{}
			pairs[r.ID] = p
		}
		p.rows++
		if p.target == nil || r.Version > p.target.Version {
			p.target = &r
		}
		return nil
	})
}

// settle waits until the projection has passed the source as it was read, and
// a little longer for records whose event may not have been published yet. It
// returns why the table may still be behind, "" if it may not.
func (j *job) settle(ctx context.Context, found map[string]*candidate, scans []contract.Scan) (reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, j.o.Settle+stall)
	defer cancel()
	deadline := time.Now().Add(j.o.Settle)
	mark, err := j.Progress.Mark(ctx)
	if err != nil {
		reason = "how far the projection is could not be asked: " + err.Error()
	}
	pause := firstPause
	for {
		if mark != nil {
			switch behind, err := j.Progress.Behind(ctx, mark); {
			case err != nil:
				reason = "how far the projection is could not be asked: " + err.Error()
			case behind > 0:
				reason = fmt.Sprintf("the projection was %d events behind", behind)
			default:
				reason = ""
			}
		}
		waiting, err := j.waiting(ctx, found, scans)
		if err != nil || waiting == 0 || time.Now().After(deadline) {
			return reason, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return reason, ctx.Err()
		case <-timer.C:
		}
		pause = min(2*pause, lastPause)
	}
}

// Pauses between two looks at the table while records are awaited, and how long
// the last look may take beyond the time to settle.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	stall      = 10 * time.Minute
)

// behind reports whether an event that is still under way could explain the
// difference. Where the source keeps no deletions, a row that is gone from it
// may be one whose deletion has not arrived; and where a record may change its
// campaign, one whose newer version is in another campaign.
func (j *job) behind(k Kind) bool {
	return k.behind() || k == Unexpected && (!j.Deletes || j.Contract.CampaignMayChange())
}

// waiting is how many of the found records may yet arrive.
func (j *job) waiting(ctx context.Context, found map[string]*candidate, scans []contract.Scan) (n int, err error) {
	due, leaving := map[string]uint64{}, 0 // leaving: of due, those that the source does not have
	for id, c := range found {
		switch {
		case !j.behind(c.kind):
		case c.source == nil:
			due[id] = c.target.Version
			leaving++
		default:
			due[id] = c.source.Version
		}
	}
	if len(due) == 0 {
		return 0, nil
	}
	arriving, live := len(due)-leaving, 0
	for _, scan := range scans {
		scan.Level = contract.Versions
		err := j.Table.Records(ctx, j.campaign, scan, func(r Record) error {
			version, ok := due[r.ID]
			switch {
			case !ok:
			case found[r.ID].source == nil && !r.Deleted: // it may also leave for another campaign
				live++
			case found[r.ID].source != nil && r.Version >= version:
				arriving--
				delete(due, r.ID)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return arriving + live, nil
}

// confirm reads the table and then the source again. It records what is
// confirmed and returns what is not settled.
func (j *job) confirm(ctx context.Context, found map[string]*candidate, scans []contract.Scan, behind string) (map[string]bool, error) {
	again := map[string]bool{}
	var unexpected []string
	for _, scan := range scans {
		tables := map[string]*pair{}
		if err := j.table(ctx, scan, tables); err != nil {
			return nil, err
		}
		sources, err := j.source(ctx, scan, found)
		if err != nil {
			return nil, err
		}
		for id, first := range found {
			if !inScan(scan, id) {
				continue
			}
			var now pair
			if p := tables[id]; p != nil {
				now = *p
			}
			if p := sources[id]; p != nil {
				now.source = p.source
			}
			kind := j.judge(now)
			switch {
			case !same(first.source, now.source):
				again[id] = true
				j.report.Reason = "records kept changing in the source"
			case kind == "":
			case j.behind(kind) && behind != "":
				again[id] = true
				j.report.Reason = behind
			default:
				if kind == Unexpected {
					unexpected = append(unexpected, id)
				}
				j.found(kind, id, now)
			}
		}
	}
	return again, j.moved(ctx, unexpected)
}

func inScan(s contract.Scan, id string) bool {
	return slices.Contains(s.Only, contract.Bucket(id, s.Buckets))
}

// moved corrects the kind of records that the source has in another campaign,
// because a part of their order key has changed.
func (j *job) moved(ctx context.Context, ids []string) error {
	for chunk := range slices.Chunk(ids, 1000) {
		moved, err := j.Table.Moved(ctx, chunk)
		if err != nil {
			return err
		}
		for i := range j.report.Findings {
			f := &j.report.Findings[i]
			if f.Kind == Unexpected && moved[f.Key] {
				f.Kind = MovedKey
			}
		}
	}
	return nil
}

// found records a confirmed difference.
func (j *job) found(kind Kind, id string, p pair) {
	f := Finding{Kind: kind, ID: j.Contract.Identity(id), Key: id, Source: state(p.source), Target: state(p.target)}
	if kind == ContentConflict && p.source.Content != "" && p.target.Content != "" {
		f.Fields = j.fields(p)
	}
	j.report.Findings = append(j.report.Findings, f)
	j.report.open[id] = true
}

func state(r *Record) *State {
	if r == nil {
		return nil
	}
	return &State{r.Version, r.Deleted, r.Place}
}

// fields names the fields that differ.
func (j *job) fields(p pair) (list []FieldDifference) {
	source, err := contract.Split(p.source.Content)
	if err != nil {
		return nil
	}
	target, err := contract.Split(p.target.Content)
	if err != nil || len(source) != len(target) {
		return nil
	}
	for i, column := range j.Contract.Columns() {
		if source[i] != target[i] {
			list = append(list, FieldDifference{column, j.Contract.Show(i, source[i]), j.Contract.Show(i, target[i])})
		}
	}
	return list
}
