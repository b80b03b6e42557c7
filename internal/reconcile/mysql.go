package reconcile

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	mysqldriver "github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/mysql"
)

// MySQL is the authoritative source: several shards, whose records are one set.
type MySQL struct {
	contract *contract.Contract
	shards   []*shard
}

type shard struct {
	name string
	db   *sql.DB
	sql  *contract.MySQL
}

// OpenMySQL connects to every shard, and checks there that the contract's
// columns exist and that their types fit. Close it.
func OpenMySQL(ctx context.Context, shards []mysql.Shard, c *contract.Contract) (_ *MySQL, err error) {
	m := &MySQL{contract: c}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	for _, s := range shards {
		db, err := s.Open(2)
		if err != nil {
			return nil, err
		}
		m.shards = append(m.shards, &shard{name: s.Name, db: db})
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range m.shards {
		group.Go(func() error {
			if err := s.probe(ctx, c); err != nil {
				return fmt.Errorf("shard %s: %w", s.name, err)
			}
			return nil
		})
	}
	return m, group.Wait()
}

// Close closes the connections.
func (m *MySQL) Close() {
	for _, s := range m.shards {
		s.db.Close()
	}
}

// errLockWait is MySQL's number for a lock, here of a table, that did not come in time.
const errLockWait = 1205

// probe learns the types of the contract's expressions. If one of them is at
// fault it is found by asking for each alone.
func (s *shard) probe(ctx context.Context, c *contract.Contract) error {
	if err := s.db.PingContext(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	rows, err := s.types(ctx, c.Probe(-1))
	if refused, ok := errors.AsType[*mysqldriver.MySQLError](err); ok && refused.Number == errLockWait {
		return fmt.Errorf("rows: %w", err) // as each alone would be waited for
	}
	if err != nil {
		var wrong []error
		for i, column := range c.Columns() {
			if _, err := s.types(ctx, c.Probe(i)); err != nil {
				wrong = append(wrong, fmt.Errorf("fields[%d] (%s): %w", i, column, err))
			}
		}
		if len(wrong) > 0 && len(wrong) < len(c.Columns()) {
			return errors.Join(wrong...)
		}
		return fmt.Errorf("rows: %w", err) // the query itself
	}
	var deletions []contract.SourceType
	if query := c.ProbeDeletions(); query != "" {
		if deletions, err = s.types(ctx, query); err != nil {
			return fmt.Errorf("deletions: %w; where identity, version or a campaign that is a text have other names there, give fields[].deletion", err)
		}
	}
	s.sql, err = c.MySQL(rows, deletions)
	return err
}

func (s *shard) types(ctx context.Context, query string) ([]contract.SourceType, error) {
	rows, err := s.db.QueryContext(ctx, query, "")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.ColumnTypes()
	if err != nil {
		return nil, err
	}
	types := make([]contract.SourceType, len(columns))
	for i, c := range columns {
		types[i].Name = c.DatabaseTypeName()
		types[i].Precision, types[i].Scale, _ = c.DecimalSize()
	}
	return types, rows.Err()
}

// snapshot runs f in a transaction that sees one moment.
func (s *shard) snapshot(ctx context.Context, f func(*sql.Conn) error) (err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("shard %s: connect: %w", s.name, err)
	}
	defer func() {
		// A connection whose transaction did not end is of no use to anybody.
		if _, ended := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); ended != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
		conn.Close()
	}()
	for _, statement := range []string{
		"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", // below it a consistent snapshot means nothing
		"START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("shard %s: begin a snapshot: %w", s.name, err)
		}
	}
	if err := f(conn); err != nil {
		return fmt.Errorf("shard %s: %w", s.name, err)
	}
	return nil
}

// each runs a statement and scans its rows.
func (m *MySQL) each(ctx context.Context, conn *sql.Conn, st contract.Statement, campaign string, row func(*sql.Rows) error) error {
	if st.SQL == "" {
		return nil
	}
	args := make([]any, st.Marks)
	for i := range args {
		args[i] = m.parameter(campaign)
	}
	rows, err := conn.QueryContext(ctx, st.SQL, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// parameter is the campaign as MySQL should compare it: a number with a number.
// A text compared with a column of integers could be compared as a float.
func (m *MySQL) parameter(campaign string) any {
	if m.contract.IntegerCampaign() {
		if n, err := strconv.ParseUint(campaign, 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseInt(campaign, 10, 64); err == nil {
			return n
		}
	}
	return campaign
}

// Digests implements [Side]. Each shard is read in a snapshot of its own; there
// is none over all of them, and none is needed: a record lives on one shard, and
// where one was read while it moved to another, the difference is one that a
// second reading does not confirm.
func (m *MySQL) Digests(ctx context.Context, campaign string, s contract.Scan) (Summary, error) {
	sum := Summary{Buckets: make([]Digest, s.Buckets), Parts: make([]Part, len(m.shards))}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for n, sh := range m.shards {
		group.Go(func() error {
			var part Digest
			take := func(deleted bool) func(*sql.Rows) error {
				return func(rows *sql.Rows) error {
					bucket, d, err := scanDigest(rows, deleted)
					if err != nil {
						return err
					}
					part.add(d)
					mu.Lock()
					defer mu.Unlock()
					sum.Buckets[bucket].add(d)
					return nil
				}
			}
			live, deleted := sh.sql.Digests(s)
			err := sh.snapshot(ctx, func(conn *sql.Conn) error {
				if err := m.each(ctx, conn, live, campaign, take(false)); err != nil {
					return fmt.Errorf("sum up campaign %s: %w", campaign, err)
				}
				if err := m.each(ctx, conn, deleted, campaign, take(true)); err != nil {
					return fmt.Errorf("sum up the deletions of campaign %s: %w", campaign, err)
				}
				return nil
			})
			sum.Parts[n] = Part{sh.name, part.Live, part.Deleted, part.Revision}
			return err
		})
	}
	return sum, group.Wait()
}

// scanDigest reads a row of [contract.MySQL.Digests], which has as many columns
// as its level.
func scanDigest(rows *sql.Rows, deleted bool) (bucket uint32, d Digest, err error) {
	columns, err := rows.Columns()
	if err != nil {
		return 0, d, err
	}
	var n uint64
	into := []any{&bucket, &n, &d.Revision, &d.VersionsHigh, &d.VersionsLow, &d.FieldsHigh, &d.FieldsLow}
	if err := rows.Scan(into[:len(columns)]...); err != nil {
		return 0, d, err
	}
	if deleted {
		d.Deleted = n
	} else {
		d.Live = n
	}
	return bucket, d, nil
}

// Records implements [Side].
func (m *MySQL) Records(ctx context.Context, campaign string, s contract.Scan, each func(Record) error) error {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for _, sh := range m.shards {
		group.Go(func() error {
			take := func(deleted bool) func(*sql.Rows) error {
				fields := s.Level >= contract.Fields && !deleted
				return func(rows *sql.Rows) error {
					r := Record{Deleted: deleted, Place: sh.name}
					var content sql.NullString
					into := []any{&r.ID, &r.Version, &content}
					if !fields {
						into = into[:2]
					}
					if err := rows.Scan(into...); err != nil {
						return err
					}
					if r.Content = content.String; fields && !content.Valid {
						return fmt.Errorf("record %s: its fields are longer than the server puts together; raise max_allowed_packet there, or take the long one out of source.projections.*.fields",
							m.contract.Identity(r.ID))
					}
					mu.Lock()
					defer mu.Unlock()
					return each(r)
				}
			}
			live, deleted := sh.sql.Rows(s)
			return sh.snapshot(ctx, func(conn *sql.Conn) error {
				if err := m.each(ctx, conn, live, campaign, take(false)); err != nil {
					return fmt.Errorf("read campaign %s: %w", campaign, err)
				}
				if err := m.each(ctx, conn, deleted, campaign, take(true)); err != nil {
					return fmt.Errorf("read the deletions of campaign %s: %w", campaign, err)
				}
				return nil
			})
		})
	}
	return group.Wait()
}

// Campaigns lists the campaigns of all shards by the configured query, each as
// text, in every spelling that there is.
func (m *MySQL) Campaigns(ctx context.Context, query string) (map[string]bool, error) {
	all := map[string]bool{}
	for _, sh := range m.shards {
		list, err := mysql.Texts(ctx, sh.db, query)
		if err != nil {
			return nil, fmt.Errorf("shard %s: list the campaigns: %w", sh.name, err)
		}
		for _, campaign := range list {
			all[campaign] = true
		}
	}
	return all, m.spell(ctx, all)
}

// spell adds the campaigns that the list lacks because a collation takes them for
// one of it.
func (m *MySQL) spell(ctx context.Context, all map[string]bool) error {
	listed := slices.Collect(maps.Keys(all))
	for _, sh := range m.shards {
		rows, deletions := sh.sql.Spellings()
		if rows.SQL == "" {
			return nil
		}
		err := sh.snapshot(ctx, func(conn *sql.Conn) error {
			for _, campaign := range listed {
				for _, st := range []contract.Statement{rows, deletions} {
					if err := m.each(ctx, conn, st, campaign, func(rows *sql.Rows) error {
						var exact sql.NullString
						err := rows.Scan(&exact)
						if exact.Valid {
							all[exact.String] = true
						}
						return err
					}); err != nil {
						return fmt.Errorf("list the spellings of campaign %s: %w", campaign, err)
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
