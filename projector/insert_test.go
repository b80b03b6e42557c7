package projector

import (
	"errors"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// table is the database that bisect inserts into: it takes a range whole or not at all.
type table struct {
	bad     map[int]bool // rows that can never be inserted
	largest int          // more rows than this are too many for one insert; 0 = no limit
	rows    []int        // times inserted, by row
	calls   int
}

func (tb *table) insert(from, to int) error {
	tb.calls++
	for i := from; i < to; i++ {
		if tb.bad[i] {
			return &InsertError{Class: Rejected, Message: "bad row"}
		}
	}
	if tb.largest > 0 && to-from > tb.largest {
		return &InsertError{Class: Split, Code: 252, Message: "too many partitions"}
	}
	for i := from; i < to; i++ {
		tb.rows[i]++
	}
	return nil
}

func TestBisectFindsExactlyTheBadRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3000).Draw(t, "rows")
		tb := &table{bad: map[int]bool{}, rows: make([]int, n)}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 40).Draw(t, "bad") {
			tb.bad[i] = true
		}
		var rejected []int
		err := Bisect(0, n, tb.insert, func(i int, _ *InsertError) error {
			rejected = append(rejected, i)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, times := range tb.rows {
			if bad := tb.bad[i]; bad && times != 0 || !bad && times != 1 {
				t.Fatalf("row %d: bad %v, inserted %d times", i, bad, times)
			}
		}
		if len(rejected) != len(tb.bad) || !slices.IsSorted(rejected) {
			t.Fatalf("rejected %v, want the %d bad rows in order", rejected, len(tb.bad))
		}
		if limit := 2*len(tb.bad)*bits.Len(uint(n-1)) + 1; tb.calls > limit {
			t.Fatalf("%d inserts for %d bad rows of %d, more than %d", tb.calls, len(tb.bad), n, limit)
		}
	})
}

func TestBisectSplitsWithoutRejecting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3000).Draw(t, "rows")
		tb := &table{largest: rapid.IntRange(1, 3000).Draw(t, "largest"), rows: make([]int, n)}
		err := Bisect(0, n, tb.insert, func(i int, _ *InsertError) error {
			t.Fatalf("row %d was rejected", i)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, times := range tb.rows {
			if times != 1 {
				t.Fatalf("row %d was inserted %d times", i, times)
			}
		}
		if limit := 4*n/tb.largest + 1; tb.calls > limit {
			t.Fatalf("%d inserts for %d rows of at most %d", tb.calls, n, tb.largest)
		}
	})
}

func TestBisectStops(t *testing.T) {
	gone := errors.New("the drain timeout passed")
	for name, c := range map[string]struct {
		insert func(from, to int) error
		reject error
		want   string
	}{
		"an error of another class": {
			insert: func(int, int) error { return &InsertError{Class: Fatal, Code: 60, Message: "no such table"} },
			want:   "fatal error 60: no such table",
		},
		"an error in a half": {
			insert: func(from, to int) error {
				if to-from > 4 {
					return &InsertError{Class: Rejected}
				}
				return gone
			},
			want: gone.Error(),
		},
		"a letter that cannot be made": {
			insert: func(int, int) error { return &InsertError{Class: Rejected} },
			reject: gone,
			want:   gone.Error(),
		},
		"a single row that is too large": {
			insert: func(int, int) error { return &InsertError{Class: Split, Code: 252, Message: "too many partitions"} },
			want:   "a single row is too large for an insert: split error 252: too many partitions",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := Bisect(0, 16, c.insert, func(int, *InsertError) error { return c.reject })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
