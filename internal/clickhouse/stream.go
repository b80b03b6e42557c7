package clickhouse

import (
	"context"
	"errors"
	"fmt"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Reader reads results of any size, row by row, over a pool of control
// connections that somebody else owns.
type Reader struct{ conn driver.Conn }

// NewReader reads over conn, which is from Open.
func NewReader(conn driver.Conn) Reader { return Reader{conn} }

// Each runs a query and calls row for each row of its result, with a function
// that scans it. An error of row ends the query and is returned as it is.
func (r Reader) Each(ctx context.Context, query string, row func(scan func(dest ...any) error) error) (err error) {
	rows, err := r.conn.Query(ctx, query)
	if err != nil {
		return fmt.Errorf("ask ClickHouse: %w", err)
	}
	defer func() {
		if closed := rows.Close(); closed != nil {
			err = errors.Join(err, fmt.Errorf("read from ClickHouse: %w", closed))
		}
	}()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read from ClickHouse: %w", err)
	}
	return nil
}
