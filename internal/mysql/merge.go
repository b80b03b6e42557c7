package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Merge reads the rows of several shards in one order, so that rows of one key
// follow each other wherever they are. It belongs to one goroutine.
type Merge struct {
	readers []*Reader
	alive   []bool
	started bool
	current Key
	repeats bool // the current row has the key of its predecessor
	ahead   bool // its successor has its key
}

// NewMerge joins readers of one query on several shards. Their results must
// agree on the kind of the key: an integer on one shard and a text on another
// have no common order.
func NewMerge(readers ...*Reader) (*Merge, error) {
	for _, r := range readers[1:] {
		first := readers[0]
		for i, c := range r.layout.key {
			a, b := first.layout.Columns[first.layout.key[i]], r.layout.Columns[c]
			if a.IsInteger() != b.IsInteger() {
				return nil, fmt.Errorf("column %s is %s on shard %s and %s on shard %s: the shards must agree on the type of the identity",
					a.Name, a.Type, first.session.Shard, b.Type, r.session.Shard)
			}
		}
	}
	return &Merge{readers: readers, alive: make([]bool, len(readers))}, nil
}

// Next calls take with the next row and the index of its reader, and reports
// whether there was one. The values are gone when take returns: the row after
// it is read before Next returns, to know whether it is about the same record.
func (m *Merge) Next(ctx context.Context, take func(reader int, values []sql.RawBytes) error) (bool, error) {
	if !m.started {
		for i := range m.readers {
			if err := m.step(ctx, i); err != nil {
				return false, err
			}
		}
		m.started = true
	}
	lowest := -1
	for i, r := range m.readers {
		if m.alive[i] && (lowest < 0 || r.layout.compare(r.key, m.readers[lowest].key) < 0) {
			lowest = i
		}
	}
	if lowest < 0 {
		return false, nil
	}
	r := m.readers[lowest]
	m.repeats = m.ahead
	m.current = r.key.Clone(m.current)
	if err := take(lowest, r.values); err != nil {
		return false, err
	}
	if err := m.step(ctx, lowest); err != nil {
		return false, err
	}
	m.ahead = false
	for i, r := range m.readers {
		if !m.alive[i] {
			continue
		}
		d := r.layout.compare(r.key, m.current)
		if d < 0 { // going on after this key would leave that row out
			return false, fmt.Errorf("shard %s gives %s after %s: it does not sort %s as its text is sorted; select the identity as a text or an integer",
				r.session.Shard, r.key, m.current, r.layout.KeyColumn().Type)
		}
		m.ahead = m.ahead || d == 0
	}
	return true, nil
}

func (m *Merge) step(ctx context.Context, i int) (err error) {
	m.alive[i], err = m.readers[i].Next(ctx)
	return err
}

// Key is that of the row which was taken last. It is valid until the next Next.
func (m *Merge) Key() Key { return m.current }

// Repeated reports whether the row before or after the one that was taken last
// has the same key: the identity is not unique.
func (m *Merge) Repeated() bool { return m.repeats || m.ahead }

// Whole reports whether no further row has the key of the one that was taken
// last: reading may end here and go on after this key.
func (m *Merge) Whole() bool { return !m.ahead }

// Close closes the readers.
func (m *Merge) Close() error {
	var errs []error
	for _, r := range m.readers {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
