package clickhouse

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/mapping"
)

// Superseded asks for each of the rows [from,to) whether the table has a row of
// the same key with its version or a newer one, so that readers would not see
// it. key is the table's order key, which the server can look up; version is
// the version column. Both are names of columns of rows.
//
// The rows' own columns travel as an external table: there is no literal to
// write for any type, and nothing to quote.
func (in *Inserter) Superseded(ctx context.Context, rows *mapping.Rows, from, to int, key []string, version string) ([]bool, error) {
	join := fmt.Sprintf("(SELECT %[1]s, max(%[2]s) AS _newest FROM %[3]s WHERE (%[1]s) IN (SELECT %[1]s FROM letters) GROUP BY %[1]s)",
		chschema.QuoteNames(key), chschema.QuoteName(version), in.into)
	return in.compare(ctx, rows, from, to, append(key[:len(key):len(key)], version), join, key, "t._newest >= l."+chschema.QuoteName(version))
}

// Holds asks for each of the rows [from,to) whether the table has the row that
// the stream made of the same record: the same key, version and place.
func (in *Inserter) Holds(ctx context.Context, rows *mapping.Rows, from, to int, key []string, version string) ([]bool, error) {
	columns := append(key[:len(key):len(key)], version, "_topic", "_partition", "_offset", "_origin")
	join := fmt.Sprintf("(SELECT DISTINCT %[1]s FROM %[2]s WHERE (%[3]s) IN (SELECT %[3]s FROM letters))", chschema.QuoteNames(columns), in.into, chschema.QuoteNames(key))
	return in.compare(ctx, rows, from, to, columns, join, columns, "1")
}

// compare sends columns of the rows as the table letters and joins it with
// others on some of them; the rows for which where holds are true.
func (in *Inserter) compare(ctx context.Context, rows *mapping.Rows, from, to int, columns []string, others string, on []string, where string) ([]bool, error) {
	result := make([]bool, to-from)
	if from == to {
		return result, nil
	}
	err := in.attempt(ctx, func(ctx context.Context) error {
		block := &block{from: from, to: to, conn: in.conn}
		var number proto.ColUInt32
		for i := range to - from {
			number.Append(uint32(i))
		}
		letters := proto.Input{{Name: "_n", Data: number}}
		for _, c := range rows.Columns() {
			if slices.Contains(columns, c.Name()) {
				letters = append(letters, proto.InputColumn{Name: c.Name(), Data: column{c, block}})
			}
		}
		if len(letters) != len(columns)+1 {
			return fmt.Errorf("not all of %s are columns of the rows", strings.Join(columns, ", "))
		}
		same := make([]string, len(on))
		for i, name := range on {
			same[i] = "l." + chschema.QuoteName(name) + " = t." + chschema.QuoteName(name)
		}
		var found proto.ColUInt32
		return in.client.Do(ctx, ch.Query{
			Body: fmt.Sprintf("SELECT l._n AS n FROM letters AS l INNER JOIN %s AS t ON %s WHERE %s SETTINGS final = 0, apply_deleted_mask = 1",
				others, strings.Join(same, " AND "), where),
			ExternalTable: "letters",
			ExternalData:  letters,
			Result:        proto.Results{{Name: "n", Data: &found}},
			OnResult: func(context.Context, proto.Block) error {
				for _, n := range found {
					result[n] = true
				}
				return nil
			},
			Settings: in.config.settings("", whole),
		})
	})
	if err != nil {
		return nil, fmt.Errorf("compare %d rows with %w", to-from, err)
	}
	return result, nil
}
