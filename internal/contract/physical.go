package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chprojector/projector/chschema"
)

// lineageColumns say which insert a physical row is of. They are the same in
// every table.
const lineageColumns = "toString(_topic),toInt32(_partition),toInt64(_offset),toString(_origin)"

// Values are the values of a canonical identity, in the order of the identity's
// columns and in the notation of their classes: what a source is asked with.
func (c *Contract) Values(id string) ([]string, error) {
	parts, err := Split(id)
	if err != nil {
		return nil, err
	}
	if len(parts) != len(c.identity) {
		return nil, fmt.Errorf("identity %s has %d parts; the contract's has %d", Identity(id), len(parts), len(c.identity))
	}
	values := make([]string, len(parts))
	for j, i := range c.identity {
		values[j] = c.Show(i, parts[j])
	}
	return values, nil
}

// IdentityOf is the canonical identity of values as a source shows them, in the
// order of the identity's columns; nil is NULL. A value that is not of its class
// is an error.
func (c *Contract) IdentityOf(values [][]byte) (string, error) {
	if len(values) != len(c.identity) {
		return "", fmt.Errorf("%d values for an identity of %d", len(values), len(c.identity))
	}
	var id []byte
	for j, i := range c.identity {
		var err error
		if id, err = c.fields[i].encode(id, Value{Null: values[j] == nil, Text: string(values[j])}); err != nil {
			return "", fmt.Errorf("%s: %w", c.fields[i].Column, err)
		}
	}
	return string(id), nil
}

// IdentityFields are the fields of the identity, in its order.
func (c *Contract) IdentityFields() []Field {
	list := make([]Field, len(c.identity))
	for j, i := range c.identity {
		list[j] = c.fields[i].Field
	}
	return list
}

// versionsIn is the condition of all versions of a campaign's records. Where a
// record may change its campaign they may be in any: the newest one hides those,
// and they would be seen again if it alone were removed.
func (c *Contract) versionsIn(campaign string) string {
	if c.CampaignMayChange() {
		return "1"
	}
	return c.inCampaign(campaign)
}

// PhysicalRows is the statement that lists every physical row of some records
// of a campaign, superseded ones included, in other campaigns too where a record
// may change it: identity, version, deleted, topic, partition, offset, origin,
// when it was inserted, the order key, and the whole row as JSON.
func (c *Contract) PhysicalRows(table, campaign string, ids []string) string {
	order := make([]string, len(c.spec.OrderBy))
	for i, name := range c.spec.OrderBy {
		order[i] = "toString(" + chschema.QuoteName(name) + ")"
	}
	return fmt.Sprintf("SELECT %s AS i,toUInt64(%s) AS v,%s,%s,_ingested_at,toString([%s]),formatRowNoNewline('JSONEachRow',*) FROM %s WHERE %s AND i IN (%s) ORDER BY i,v SETTINGS %s",
		c.targetID(), chschema.QuoteName(c.spec.Version), c.targetDeleted(), lineageColumns, strings.Join(order, ","),
		table, c.versionsIn(campaign), chschema.QuoteStrings(ids), rawSettings)
}

// PhysicalRow names one physical row: its record, its version and the insert
// that it is of.
type PhysicalRow struct {
	ID        string
	Version   uint64
	Topic     string
	Partition int32
	Offset    int64
	Origin    string
}

// Removal is the statement that removes exactly these physical rows of records
// of a campaign, on every replica, and ends when they are gone.
func (c *Contract) Removal(table, campaign string, rows []PhysicalRow) string {
	which := make([]string, len(rows))
	var ids []string
	for i, r := range rows {
		which[i] = fmt.Sprintf("(%s,%d,%s,%d,%d,%s)", chschema.QuoteString(r.ID), r.Version, chschema.QuoteString(r.Topic), r.Partition, r.Offset, chschema.QuoteString(r.Origin))
		if !slices.Contains(ids, r.ID) {
			ids = append(ids, r.ID)
		}
	}
	return fmt.Sprintf("ALTER TABLE %s DELETE WHERE %s AND %s IN (%s) AND (%[3]s,toUInt64(%[5]s),%s) IN (%s) SETTINGS mutations_sync=2",
		table, c.versionsIn(campaign), c.targetID(), chschema.QuoteStrings(ids), chschema.QuoteName(c.spec.Version), lineageColumns, strings.Join(which, ","))
}
