package chschema

import (
	"testing"

	"pgregory.net/rapid"
)

func TestExpressionSpellings(t *testing.T) {
	same := [][]string{
		{"a % 8", "(a%8)", "modulo(a, 8)", "`a` % 8", `"a" % 8`, "((a)) % (8)"},
		{"a + b * c", "plus(a, multiply(b, c))", "(a + (b * c))"},
		{"a - b - c", "(a - b) - c", "minus(minus(a, b), c)"},
		{"(a, b % 2)", "tuple(a, b % 2)", "( a , modulo(b,2) )"},
		{"f('x''y')", `f('x\'y')`},
		{"a - 1", "minus(a, 1)"},
		{"a * -1", "multiply(a, -1)"},
	}
	seen := map[string]int{}
	for i, spellings := range same {
		for _, s := range spellings {
			e, err := parseExpression(s)
			if err != nil {
				t.Fatalf("%s: %v", s, err)
			}
			if first, _ := parseExpression(spellings[0]); e.String() != first.String() {
				t.Errorf("%s is %s, not %s", s, e, first)
			}
			if j, ok := seen[e.String()]; ok && j != i {
				t.Errorf("%s equals an expression of group %d", s, j)
			}
			seen[e.String()] = i
		}
	}
}

func TestExpressionsThatDiffer(t *testing.T) {
	for _, pair := range [][2]string{
		{"a - (b - c)", "a - b - c"}, {"a % 8", "8 % a"}, {"(a, b)", "(b, a)"}, {"a", "'a'"}, {"f(a)", "F(a)"}, {"1", "'1'"}, {"a", "A"},
	} {
		if samePartition(pair[0], pair[1]) {
			t.Errorf("%s equals %s", pair[0], pair[1])
		}
	}
}

// FuzzExpression: no panic, and what is printed parses to the same.
func FuzzExpression(f *testing.F) {
	for _, s := range []string{"a % 8", "f((a, b), 'x\\n''', -1.5e3)", "`x\\`y` * (2 + c)", "((((", "'", "a b", "\xff", "tuple()"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := parseExpression(s)
		if err != nil {
			return
		}
		again, err := parseExpression(e.String())
		if err != nil || again.String() != e.String() {
			t.Errorf("%q is printed as %q, which is read as %q, %v", s, e, again, err)
		}
	})
}

// FuzzEngine: the text comes from a server of any version: no panic.
func FuzzEngine(f *testing.F) {
	for _, s := range []string{"ReplacingMergeTree(v) PARTITION BY a % 8 ORDER BY (`a`, b) TTL at SETTINGS x = 1", "X(", "MergeTree ORDER BY tuple() SETTINGS", "X SETTINGS a = 'b\\'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if e, err := parseEngine(s); err == nil && e.name == "" {
			t.Errorf("%q is an engine without a name: %+v", s, e)
		}
	})
}

func TestQuotingRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "s"))
		for _, quoted := range []string{QuoteName(s), QuoteString(s)} {
			text, n, err := unquote(quoted)
			if err != nil || text != s || n != len(quoted) {
				t.Errorf("%q is quoted as %s, which is read as %q, %v", s, quoted, text, err)
			}
		}
	})
}

func TestParseEngine(t *testing.T) {
	e, err := parseEngine("ReplicatedReplacingMergeTree('/clickhouse/{uuid}', '{replica}', version, gone) PARTITION BY (settings, ttl(a)) " +
		"ORDER BY (`a`, b) TTL at + toIntervalDay(3) SETTINGS fsync_after_insert = 'true', x = -1, y = 8192")
	if err != nil {
		t.Fatal(err)
	}
	if e.name != "ReplicatedReplacingMergeTree" || len(e.args) != 2 || e.args[0].text != "version" || !e.ttl ||
		e.settings["fsync_after_insert"] != "true" || e.settings["x"] != "-1" || e.settings["y"] != "8192" {
		t.Errorf("%+v", e)
	}
	e, err = parseEngine("ReplacingMergeTree(version) PARTITION BY TTL ORDER BY (a, SETTINGS, ttl) SETTINGS x = 1")
	if err != nil || e.ttl || e.settings["x"] != "1" {
		t.Errorf("columns are taken for clauses: %+v %v", e, err)
	}
	e, err = parseEngine("ReplacingMergeTree(v) PARTITION BY a % TTL ORDER BY settings TTL at + toIntervalDay(TTL)")
	if err != nil || !e.ttl {
		t.Errorf("%+v %v", e, err)
	}
	if e, err := parseEngine("MergeTree ORDER BY tuple()"); err != nil || e.ttl || len(e.settings) != 0 {
		t.Errorf("%+v %v", e, err)
	}
	for _, bad := range []string{"", "(", "'x'", "X(", "X SETTINGS", "X SETTINGS a", "X SETTINGS a = 1 b", "X ?§"} {
		if _, err := parseEngine(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestExpires(t *testing.T) {
	table := TableState{Object: Object{Create: "CREATE TABLE d.t (`a` UInt64 TTL at + toIntervalDay(1), `TTL` DateTime DEFAULT now(), `b` Tuple(`x` UInt8, `y` UInt8) DEFAULT (1, TTL) CODEC(ZSTD(1)) TTL `TTL` + toIntervalDay(1), " +
		"`c` DateTime DEFAULT TTL, `d` String COMMENT ' TTL ', INDEX i a TYPE minmax GRANULARITY 1, CONSTRAINT k CHECK `d` != 'TTL') ENGINE = ReplacingMergeTree(v) ORDER BY e TTL at"}}
	for column, want := range map[string]bool{"a": true, "TTL": false, "b": true, "c": false, "d": false, "e": false} {
		if got := table.expires(column); got != want {
			t.Errorf("%s: %v, want %v", column, got, want)
		}
	}
	table.Create = "CREATE TABLE d.t (`a` UInt64 TTL at @ 1) ENGINE = X"
	if !table.expires("a") {
		t.Error("what is not understood was passed over")
	}
}
