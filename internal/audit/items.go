package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/chprojector/projector/chschema"
)

// ItemsTable is the name of the table of the records that repairs are about.
const ItemsTable = "projector_repair_items"

// Item is one record within a repair, in one of its states. Each state is a
// row; the newest one holds.
type Item struct {
	Operation string `json:"operation" ch:"operation"`
	Step      uint32 `json:"step" ch:"step"` // orders the states of an item
	Campaign  string `json:"campaign" ch:"campaign"`
	Key       string `json:"key" ch:"key"` // the canonical identity, in hexadecimal
	ID        string `json:"id" ch:"id"`   // the identity for people
	Kind      string `json:"kind" ch:"kind"`
	// SourceVersion is the version of the source that was planned; nil: the source does not have the record.
	SourceVersion *uint64 `json:"source_version" ch:"source_version"`
	SourceDeleted bool    `json:"source_deleted" ch:"source_deleted"`
	Place         string  `json:"place" ch:"place"`   // the shard
	Before        string  `json:"before" ch:"before"` // the physical rows that the table had, as a JSON list
	State         string  `json:"state" ch:"state"`
	Note          string  `json:"note" ch:"note"` // why, for people

	At time.Time `json:"-" ch:"at"` // by the server's clock
}

const itemColumns = "operation, step, campaign, key, id, kind, source_version, source_deleted, place, `before`, state, note"

const itemStructure = "operation String, step UInt32, campaign String, key String, id String, kind String, " +
	"source_version Nullable(UInt64), source_deleted Bool, place String, `before` String, state String, note String"

// CreateItems returns the statement that creates the table.
func (c Config) CreateItems() string {
	return c.Statement(ItemsTable, "at DateTime64(3, 'UTC') DEFAULT now64(3), "+itemStructure, "operation, campaign, key, step",
		"Every record that a repair is about: what was planned, what was there before, and what became of it. The newest row of a record holds.")
}

// Items is the record of what repairs are about.
type Items struct {
	findings Findings
}

// OpenItems asks and writes over conn. Nothing is sent yet.
func OpenItems(f *Findings) *Items { return &Items{*f} }

// Ensure creates the table unless it exists.
func (i *Items) Ensure(ctx context.Context) error {
	return i.findings.cfg.Ensure(ctx, i.findings.conn, ItemsTable, i.findings.cfg.CreateItems())
}

// Add writes states of items.
func (i *Items) Add(ctx context.Context, list ...Item) error {
	if err := add(ctx, &i.findings, ItemsTable, itemColumns, itemStructure, list); err != nil {
		return fmt.Errorf("record the items of a repair: %w", err)
	}
	return nil
}

// List returns the items of a repair as they are now, by campaign and identity.
func (i *Items) List(ctx context.Context, operation string) ([]Item, error) {
	if err := CheckID(operation); err != nil {
		return nil, err
	}
	var list []Item
	query := fmt.Sprintf("SELECT %s, at FROM %s WHERE operation = %s ORDER BY campaign, key, step DESC, at DESC LIMIT 1 BY campaign, key",
		itemColumns, i.findings.cfg.Qualified(ItemsTable), chschema.QuoteString(operation))
	if err := i.findings.conn.Select(ctx, &list, query); err != nil {
		return nil, fmt.Errorf("read the items of repair %s: %w", operation, err)
	}
	return list, nil
}
