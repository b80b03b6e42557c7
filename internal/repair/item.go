package repair

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/reconcile"
)

// The states of an item, in the order in which they follow each other.
const (
	Planned  = "planned"
	Removing = "removing" // its rows are being removed, or their remover was killed
	Applied  = "applied"  // by the account of the run that did it
	Skipped  = "skipped"  // a side has changed since the plan; nothing was written
	Verified = "verified" // another run has compared it and found it equal
	Refuted  = "refuted"  // another run has compared it and found it different
)

var steps = map[string]uint32{Planned: 1, Removing: 2, Applied: 3, Skipped: 3, Verified: 4, Refuted: 4}

// Row is one physical row that the table had when the repair was planned.
type Row struct {
	Version   uint64          `json:"version"`
	Deleted   bool            `json:"deleted"`
	Topic     string          `json:"topic"`
	Partition int32           `json:"partition"`
	Offset    int64           `json:"offset"`
	Origin    string          `json:"origin"`
	At        time.Time       `json:"ingested_at"`
	Row       json.RawMessage `json:"row,omitempty"` // all of it, where it is to be removed
}

// NewItem is the item of a finding. rows are what the table has of it.
func NewItem(campaign string, f reconcile.Finding, rows []reconcile.Physical) audit.Item {
	item := audit.Item{Step: steps[Planned], Campaign: campaign, Key: hex.EncodeToString([]byte(f.Key)), ID: f.ID, Kind: string(f.Kind), State: Planned}
	if f.Source != nil {
		item.SourceVersion, item.SourceDeleted, item.Place = &f.Source.Version, f.Source.Deleted, f.Source.Place
	}
	before := now(rows)
	if ActionFor(f.Kind) == Remove {
		for i, r := range rows {
			before[i].Row = json.RawMessage(r.JSON)
		}
	}
	text, err := json.Marshal(before)
	if err != nil {
		panic(err) // the server's own JSON, and plain fields
	}
	item.Before = string(text)
	return item
}

// Before returns the physical rows that the table had.
func Before(item audit.Item) (rows []Row, err error) {
	if err := json.Unmarshal([]byte(item.Before), &rows); err != nil {
		return nil, fmt.Errorf("the record of %s: its rows before: %w", item.ID, err)
	}
	return rows, nil
}

// become is the item in another state. Its step is beyond the one it had, also
// when it is verified again: the server's clock orders nothing.
func become(item audit.Item, state, note string) audit.Item {
	item.Step, item.State, item.Note = max(steps[state], item.Step+1), state, note
	return item
}

func identity(item audit.Item) (string, error) {
	id, err := hex.DecodeString(item.Key)
	if err != nil {
		return "", fmt.Errorf("the record of %s: its key %q: %w", item.ID, item.Key, err)
	}
	return string(id), nil
}

// identities are the canonical identities of items.
func identities(items []audit.Item) ([]string, error) {
	ids := make([]string, len(items))
	for i, item := range items {
		var err error
		if ids[i], err = identity(item); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// newest is what readers see of a record's rows. ok is false where there are none.
func newest(rows []Row) (r Row, ok bool) {
	for i, row := range rows {
		if i == 0 || row.Version > r.Version {
			r, ok = row, true
		}
	}
	return r, ok
}

// now are the physical rows as they would be recorded.
func now(rows []reconcile.Physical) []Row {
	list := make([]Row, len(rows))
	for i, r := range rows {
		list[i] = Row{Version: r.Version, Deleted: r.Deleted, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Origin: r.Origin, At: r.At}
	}
	return list
}

// recorded reports whether a row was there when the repair was planned.
func recorded(before []Row, r Row) bool {
	return slices.ContainsFunc(before, func(b Row) bool {
		return b.Version == r.Version && b.Topic == r.Topic && b.Partition == r.Partition && b.Offset == r.Offset && b.Origin == r.Origin
	})
}

func state(r Row, ok bool) string {
	switch {
	case !ok:
		return "nothing"
	case r.Deleted:
		return fmt.Sprintf("a deletion at version %d (%s)", r.Version, r.Origin)
	}
	return fmt.Sprintf("version %d (%s)", r.Version, r.Origin)
}
