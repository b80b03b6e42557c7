package mysql

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestKeysAreOrderedAsNumbersAndBytes holds the order that shards are merged
// in against integers of any size, and against bytes.
func TestKeysAreOrderedAsNumbersAndBytes(t *testing.T) {
	sign := func(n int) int {
		return min(max(n, -1), 1)
	}
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(
			rapid.Map(rapid.Int64(), func(n int64) string { return strconv.FormatInt(n, 10) }),
			rapid.Map(rapid.Uint64(), func(n uint64) string { return strconv.FormatUint(n, 10) }))
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, _ := new(big.Int).SetString(a, 10)
		y, _ := new(big.Int).SetString(b, 10)
		if got, want := sign(compareTexts([]byte(a), []byte(b), true)), x.Cmp(y); got != want {
			t.Errorf("%s to %s as numbers: %d, want %d", a, b, got, want)
		}
		c, d := rapid.String().Draw(t, "c"), rapid.String().Draw(t, "d")
		if got, want := sign(compareTexts([]byte(c), []byte(d), false)), strings.Compare(c, d); got != want {
			t.Errorf("%q to %q as bytes: %d, want %d", c, d, got, want)
		}
	})
	if compareTexts(nil, []byte("-1"), true) >= 0 || compareTexts([]byte{}, nil, false) <= 0 || compareTexts(nil, nil, true) != 0 {
		t.Error("NULL does not come first")
	}
}

func TestStatement(t *testing.T) {
	layout := &Layout{Columns: []Column{{"a`b", "BIGINT"}, {"text", "VARCHAR"}, {"raw", "VARBINARY"}, {"dec", "DECIMAL"}}, marks: 2}
	for _, c := range []struct {
		name  string
		key   []int
		after Key
		only  []Key
		want  string
		args  []any
	}{
		{"one integer", []int{0}, nil, nil, "ORDER BY `a``b`", []any{uint64(7), uint64(7)}},
		{"after an integer", []int{0}, Key{[]byte("18446744073709551615")}, nil, "WHERE `a``b` > ?\nORDER BY `a``b`", []any{uint64(7), uint64(7), uint64(18446744073709551615)}},
		{"after a negative one", []int{0}, Key{[]byte("-5")}, nil, "WHERE `a``b` > ?\nORDER BY `a``b`", []any{uint64(7), uint64(7), int64(-5)}},
		{"after NULL", []int{0}, Key{nil}, nil, "ORDER BY `a``b`", []any{uint64(7), uint64(7)}},
		{
			"two columns",
			[]int{0, 1},
			Key{[]byte("1"), []byte("x")},
			nil,
			"WHERE `a``b` >= ? AND ((`a``b` > ?) OR (`a``b` = ? AND CAST(CONVERT(`text` USING utf8mb4) AS BINARY) > ?))\nORDER BY `a``b`, CAST(CONVERT(`text` USING utf8mb4) AS BINARY)",
			[]any{uint64(7), uint64(7), uint64(1), uint64(1), uint64(1), "x"},
		},
		{"bytes", []int{2}, nil, nil, "ORDER BY CAST(`raw` AS BINARY)", []any{uint64(7), uint64(7)}},
		{
			"single records",
			[]int{0, 3},
			nil,
			[]Key{{[]byte("1"), []byte("2.50")}, {[]byte("2"), []byte("3")}},
			"WHERE ((`a``b` = ? AND `dec` = CAST(? AS DECIMAL(65,1))) OR (`a``b` = ? AND `dec` = CAST(? AS DECIMAL(65,0))))\nORDER BY `a``b`, CAST(`dec` AS BINARY)",
			[]any{uint64(7), uint64(7), uint64(1), "2.50", uint64(2), "3"},
		},
		{
			"single texts",
			[]int{1},
			nil,
			[]Key{{[]byte("x")}},
			"WHERE ((`text` = ? AND CAST(CONVERT(`text` USING utf8mb4) AS BINARY) = ?))\nORDER BY CAST(CONVERT(`text` USING utf8mb4) AS BINARY)",
			[]any{uint64(7), uint64(7), "x", "x"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			layout.key = c.key
			text, args := Query{SQL: "SELECT 1 -- ? ;\n;", Campaign: uint64(7)}.Statement(layout, c.after, c.only)
			if want := "SELECT * FROM (\nSELECT 1 -- ?\n) AS source_rows\n" + c.want; text != want {
				t.Errorf("got\n%s\nwant\n%s", text, want)
			}
			for i, a := range args {
				if b, ok := a.([]byte); ok {
					args[i] = string(b)
				}
			}
			if d := cmp.Diff(c.args, args); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestKeyIsForPeople(t *testing.T) {
	for want, key := range map[string]Key{
		`5, "a\"b"`: {[]byte("5"), []byte(`a"b`)}, "NULL": {nil}, `"\xff"`: {[]byte{0xff}}, `""`: {[]byte{}},
	} {
		if got := key.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	copied := Key{[]byte("a"), nil, {}}.Clone(nil)
	if !slices.EqualFunc(copied, Key{[]byte("a"), nil, {}}, func(a, b []byte) bool { return string(a) == string(b) && (a == nil) == (b == nil) }) {
		t.Errorf("copied as %q", copied)
	}
}
