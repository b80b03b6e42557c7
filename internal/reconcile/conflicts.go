package reconcile

import (
	"context"
	"fmt"
	"slices"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/contract"
)

// Conflict is one version of a record with several contents. In the table it is
// not defined which of them readers see, and a merge keeps only one; in the
// topic, which of them the state is.
type Conflict struct {
	ID      string     `json:"id"`
	Key     string     `json:"-"`
	Version uint64     `json:"version"`
	Rows    uint64     `json:"rows"` // events, in the topic
	In      Contradict `json:"in"`
	// Superseded is that a newer version hides it: readers see none of its contents.
	Superseded bool `json:"superseded"`

	Campaign string `json:"-"`
}

// Contradict is where a version has several contents.
type Contradict string

// The two places.
const (
	InTable Contradict = "table"
	InTopic Contradict = "topic"
)

// maxConflicts bounds the list of one look: where there are more, something is
// wrong with the producer, and a list does not help.
const maxConflicts = 1000

// conflicts looks among all physical rows of a campaign.
func (t *Table) conflicts(ctx context.Context, campaign string) ([]Conflict, error) {
	list, err := readConflicts(ctx, t.Reader, t.Contract.Conflicts(t.Name, campaign, maxConflicts), t.Contract.Identity)
	if err != nil || len(list) == 0 {
		return list, err
	}
	for chunk := range slices.Chunk(list, 200) { // a statement has its limit
		ids := make([]string, len(chunk))
		for i, c := range chunk {
			ids[i] = c.Key
		}
		rows, err := t.Physical(ctx, campaign, ids)
		if err != nil {
			return nil, err
		}
		for i := range chunk {
			c := &chunk[i]
			c.Superseded = slices.ContainsFunc(rows[c.Key], func(p Physical) bool { return p.Version > c.Version })
		}
	}
	return list, nil
}

func readConflicts(ctx context.Context, reader Reader, query string, name func(key string) string) ([]Conflict, error) {
	list := []Conflict{}
	err := reader.Each(ctx, query, func(scan func(...any) error) error {
		c := Conflict{In: InTable}
		if err := scan(&c.Key, &c.Version, &c.Rows, &c.Campaign); err != nil {
			return err
		}
		c.ID = name(c.Key)
		list = append(list, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for conflicts: %w", err)
	}
	return list, nil
}

// Watch looks for contradictions in what was written lately, before a merge
// keeps one of the contents and removes the evidence.
type Watch struct {
	Table    chschema.Table
	Contract *contract.Contract // nil: contents are all columns
	Reader   Reader

	since int64 // the server's clock at the last look, in seconds
}

// Bounds of a look. Where the table is larger, new rows are compared with each
// other only; the rest is found by a comparison of the campaign.
const (
	maxParts   = 1000
	maxRows    = 2_000_000  // new rows of one look
	maxHistory = 20_000_000 // rows of a table whose old rows are looked at too
)

// Look returns the contradictions that the parts written since the last look
// have among themselves and, in a table that is not large, with what was there
// before. The first look goes back a minute.
func (w *Watch) Look(ctx context.Context) ([]Conflict, error) {
	name := w.Table.Qualified(w.Table.Physical())
	var parts []string
	var fresh, total uint64
	var now int64
	err := w.Reader.Each(ctx, fmt.Sprintf("SELECT name,rows,level<=1 AND modification_time>=toDateTime(%s),toInt64(toUnixTimestamp(now())) "+
		"FROM system.parts WHERE active AND database=%s AND table=%s ORDER BY modification_time DESC",
		w.from(), chschema.QuoteString(w.Table.Database), chschema.QuoteString(w.Table.Physical())), func(scan func(...any) error) error {
		var part string
		var rows uint64
		var isNew uint8
		if err := scan(&part, &rows, &isNew, &now); err != nil {
			return err
		}
		if total += rows; isNew != 0 && len(parts) < maxParts && fresh+rows <= maxRows {
			parts, fresh = append(parts, part), fresh+rows
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the parts of %s: %w", name, err)
	}
	w.since = max(w.since, now-1) // a part of this second may follow
	if len(parts) == 0 {
		return nil, nil
	}
	where := contract.InParts(name, w.Table.Identity, w.Table.Version, parts, total <= maxHistory)
	query, show := contract.Contradictions(w.Table, where, maxConflicts), contract.Identity
	if w.Contract != nil {
		query, show = w.Contract.Contradictions(name, where, maxConflicts), w.Contract.Identity
	}
	return readConflicts(ctx, w.Reader, query+",max_execution_time=30,max_threads=1", show)
}

func (w *Watch) from() string {
	if w.since == 0 {
		return "now()-60"
	}
	return fmt.Sprint(w.since)
}
