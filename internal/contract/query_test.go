package contract

import (
	"strings"
	"testing"
)

func TestParseQuery(t *testing.T) {
	for _, c := range []struct{ name, query, want string }{ // aliases, and what follows FROM
		{"plain", "SELECT a, b AS c, `d e` FROM t WHERE x = ?", "a,c,d e FROM t WHERE x = ?"},
		{"implicit alias", "select t.a x, count(*) n, 'it''s, FROM' s from t where x=?", "x,n,s from t where x=?"},
		{
			"inner FROM and commas", "SELECT EXTRACT(YEAR FROM d) AS y, IF(a, b, c) z, (SELECT max(v) FROM u WHERE q IN (1, 2)) m FROM t JOIN u USING (id) WHERE t.x = ?",
			"y,z,m FROM t JOIN u USING (id) WHERE t.x = ?",
		},
		{"no alias to tell", "SELECT a + b, 0 FROM t WHERE x = ?", ", FROM t WHERE x = ?"},
		{"a keyword as a name", "SELECT t.limit, `order` FROM t WHERE x = ?", "limit,order FROM t WHERE x = ?"},
		{"line breaks", "SELECT\n  a\nFROM\n  t\nWHERE x = ?\n", "a FROM\n  t\nWHERE x = ?"},
		{"quotes with backslashes", `SELECT 'a\'b FROM' AS q FROM t WHERE x = ?`, `q FROM t WHERE x = ?`},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, err := parseQuery(c.query)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, it := range q.items {
				names = append(names, it.alias)
			}
			if got := strings.Join(names, ",") + " " + q.from; got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestParseQueryRefuses(t *testing.T) {
	for _, c := range []struct{ name, query, want string }{
		{"union", "SELECT a FROM t WHERE x = ? UNION SELECT a FROM u", "UNION"},
		{"group", "SELECT a FROM t WHERE x = ? GROUP BY a", "GROUP BY"},
		{"distinct", "SELECT DISTINCT a FROM t WHERE x = ?", "DISTINCT"},
		{"with", "WITH c AS (SELECT 1) SELECT a FROM c WHERE x = ?", "does not begin with SELECT"},
		{"limit", "SELECT a FROM t WHERE x = ? LIMIT 5", "LIMIT"},
		{"lock", "SELECT a FROM t WHERE x = ? FOR UPDATE", "FOR"},
		{"parenthesised", "(SELECT a FROM t WHERE x = ?)", "does not begin with SELECT"},
		{"mark in the list", "SELECT ? FROM t", "a ? before FROM"},
		{"comment", "SELECT a /*! , b */ FROM t WHERE x = ?", "a comment"},
		{"line comment", "SELECT a FROM t -- WHERE\n WHERE x = ?", "a comment"},
		{"two statements", "SELECT a FROM t; DROP TABLE t", "a semicolon"},
		{"open quote", "SELECT 'a FROM t WHERE x = ?", "not closed"},
		{"open parenthesis", "SELECT (a FROM t WHERE x = ?", "without its )"},
		{"no from", "SELECT 1", "no FROM"},
		{"nothing", "", "does not begin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := parseQuery(c.query); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// FuzzParseQuery holds that what is accepted is a part of the text that begins
// with FROM, outside of quotes and parentheses.
func FuzzParseQuery(f *testing.F) {
	f.Add("SELECT a, b AS c FROM t WHERE x = ?")
	f.Add("SELECT 'x\\' FROM' FROM t")
	f.Add("SELECT (a) FROM `t``u` WHERE (x = ?)")
	f.Fuzz(func(t *testing.T, s string) {
		q, err := parseQuery(s)
		if err != nil {
			return
		}
		if !strings.EqualFold(q.from[:4], "FROM") || !strings.Contains(s, q.from) || len(q.items) == 0 {
			t.Errorf("%q became %+v", s, q)
		}
		tokens, err := tokenize(q.from)
		if err != nil {
			t.Errorf("%q: what follows FROM cannot be read: %v", s, err)
		}
		for i, token := range tokens {
			if (token.is("UNION") || token.is("GROUP")) && tokens[i-1].text != "." {
				t.Errorf("%q: %s stayed", s, token.text)
			}
		}
	})
}
