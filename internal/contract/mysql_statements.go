package contract

import (
	"fmt"
	"slices"
	"strings"
)

// Scan is which part of a campaign a statement reads, and how much of it.
type Scan struct {
	Level   Level
	Buckets uint32   // how many buckets there are, at least 1
	Only    []uint32 // those to read; empty = all
	// LiveOnly leaves the table's deleted records out of its digests: the source
	// keeps no record of deletions to compare them with.
	LiveOnly bool
}

// Level is how much is compared. Each level includes those before it.
type Level uint8

// The levels, from the cheapest.
const (
	Counts   Level = iota // how many records are live and how many are deleted
	Versions              // which ones, at which version
	Fields                // with which content
)

// String is the level as the command line spells it.
func (l Level) String() string { return [...]string{"counts", "versions", "fields"}[l] }

// ParseLevel is the inverse of String.
func ParseLevel(s string) (Level, error) {
	for l := Counts; l <= Fields; l++ {
		if l.String() == s {
			return l, nil
		}
	}
	return 0, fmt.Errorf("level %q: use counts, versions or fields", s)
}

// Statement is SQL and how often it takes the campaign as its parameter.
type Statement struct {
	SQL   string
	Marks int
}

// mysqlCanon is field i in its canonical form. MySQL gives NULL not only for
// NULL but for a text that exceeds max_allowed_packet, and then so is whatever
// it is a part of, up to the fields of [MySQL.Rows]: only n tells a null.
func mysqlCanon(i int) string {
	return fmt.Sprintf("IFNULL(CONCAT('V',LENGTH(t%d),':',t%[1]d,';'),IF(n%[1]d,'N;',NULL))", i)
}

// live is the derived table of the live rows: i, the canonical identity; v, the
// version; k…, integers of the identity, by which MySQL can use an index; f,
// the canonical fields.
//
// The canonical texts are bytes: a comparison of them must not depend on a
// collation.
func (m *MySQL) live(fields bool) string { return m.derived(m.rows, m.texts, m.sources(), fields) }

// deleted is the derived table of the newest deletion of each record.
func (m *MySQL) deleted() string {
	texts, raw := make([]string, len(m.fields)), make([]string, len(m.fields))
	for j, i := range m.told() {
		texts[i], raw[i] = m.gone[j], m.fields[i].Deletion
	}
	var keys strings.Builder
	for k := range m.integers() {
		fmt.Fprintf(&keys, ",MAX(k%d) AS k%[1]d", k)
	}
	return fmt.Sprintf("(SELECT i,MAX(v) AS v%s FROM %s AS e GROUP BY i)", keys.String(), m.derived(m.deletions, texts, raw, false))
}

func (m *MySQL) derived(q *Query, texts, raw []string, fields bool) string {
	var inner, outer []string
	for i, text := range texts {
		if text != "" && (fields || slices.Contains(m.identity, i) || m.campaignText() && i == m.campaign) {
			inner = append(inner, fmt.Sprintf("%s AS t%d", text, i), fmt.Sprintf("(%s) IS NULL AS n%d", raw[i], i))
		}
	}
	var id []string
	for _, i := range m.identity {
		id = append(id, mysqlCanon(i))
	}
	outer = append(outer, fmt.Sprintf("CAST(CONCAT(%s) AS BINARY) AS i", strings.Join(id, ",")), "v")
	// Beside an unsigned number a version below zero is an error; CAST would make one near 2^64 of it.
	inner = append(inner, fmt.Sprintf("CAST((%s)+CAST(0 AS UNSIGNED) AS UNSIGNED) AS v", raw[m.version]))
	for k, i := range m.integers() {
		inner = append(inner, fmt.Sprintf("(%s) AS k%d", raw[i], k))
		outer = append(outer, fmt.Sprintf("k%d", k))
	}
	if fields {
		all := make([]string, len(m.fields))
		for i := range m.fields {
			all[i] = mysqlCanon(i)
		}
		outer = append(outer, fmt.Sprintf("CAST(CONCAT(%s) AS BINARY) AS f", strings.Join(all, ",")))
	}
	where := ""
	if m.campaignText() {
		where = fmt.Sprintf(" WHERE t%d=CAST(? AS BINARY)", m.campaign)
	}
	return fmt.Sprintf("(SELECT %s FROM (SELECT %s %s) AS c%s)", strings.Join(outer, ","), strings.Join(inner, ","), q.from, where)
}

// Spellings are the statements that list which campaigns the configured queries
// give for one, by their bytes; empty where it is no text. A list made with
// DISTINCT has but one of those that a collation takes for equal.
func (m *MySQL) Spellings() (rows, deletions Statement) {
	if !m.campaignText() {
		return Statement{}, Statement{}
	}
	list := func(text string, q *Query) Statement {
		return Statement{fmt.Sprintf("SELECT DISTINCT t FROM (SELECT %s AS t %s) AS c", text, q.from), 1}
	}
	rows = list(m.texts[m.campaign], m.rows)
	if m.deletions != nil {
		deletions = list(m.gone[slices.Index(m.told(), m.campaign)], m.deletions)
	}
	return rows, deletions
}

// marks is how often a derived table takes the campaign.
func (m *MySQL) marks() int {
	if m.campaignText() {
		return 2
	}
	return 1
}

// integers are the identity's fields of class integer.
func (m *MySQL) integers() (list []int) {
	for _, i := range m.identity {
		if m.fields[i].Class == Integer {
			list = append(list, i)
		}
	}
	return list
}

// same is the condition that l and d are one record. The integers are there for
// the index; the canonical text decides.
func (m *MySQL) same() string {
	var b strings.Builder
	for k := range m.integers() {
		fmt.Fprintf(&b, "l.k%d=d.k%[1]d AND ", k)
	}
	return b.String() + "l.i=d.i"
}

// states are the two selects whose rows are the source's state of a campaign:
// of each record the live row or its deletion, whichever has the higher
// version. At equal versions the live row holds.
func (m *MySQL) states(s Scan) (live, deleted Statement) {
	fields := s.Level >= Fields
	list, where := "l.i,l.v", filter("l.i", s)
	if fields {
		list += ",l.f"
	}
	if m.deletions == nil {
		return Statement{fmt.Sprintf("SELECT %s FROM %s AS l%s", list, m.live(fields), where), m.marks()}, Statement{}
	}
	and := func(where, more string) string {
		if where == "" {
			return " WHERE " + more
		}
		return where + " AND " + more
	}
	live = Statement{fmt.Sprintf("SELECT %s FROM %s AS l LEFT JOIN %s AS d ON %s%s",
		list, m.live(fields), m.deleted(), m.same(), and(where, "(d.v IS NULL OR d.v<=l.v)")), 2 * m.marks()}
	deleted = Statement{fmt.Sprintf("SELECT d.i,d.v FROM %s AS d LEFT JOIN %s AS l ON %s%s",
		m.deleted(), m.live(false), m.same(), and(filter("d.i", s), "(l.v IS NULL OR l.v<d.v)")), 2 * m.marks()}
	return live, deleted
}

// filter keeps the buckets of a scan.
func filter(id string, s Scan) string {
	if len(s.Only) == 0 {
		return ""
	}
	return fmt.Sprintf(" WHERE CRC32(%s) MOD %d IN (%s)", id, s.Buckets, numbers(s.Only))
}

func numbers(list []uint32) string {
	texts := make([]string, len(list))
	for i, n := range list {
		texts[i] = fmt.Sprint(n)
	}
	return strings.Join(texts, ",")
}

// Rows are the statements that list the state of a campaign: live rows as
// identity, version and, at the level fields, canonical fields, or NULL where
// they are longer than the server puts together; deletions as identity and
// version. The second is empty without a record of deletions.
func (m *MySQL) Rows(s Scan) (live, deleted Statement) { return m.states(s) }

// Digests are the statements that sum up the state of a campaign: for each
// bucket its number, its rows, the sum of versions, and the four sums of the
// digests of versions and of fields, as decimal numbers modulo 2^64. A row whose
// fields are NULL is left out of the last two, so that its bucket differs.
func (m *MySQL) Digests(s Scan) (live, deleted Statement) {
	live, deleted = m.states(s)
	live.SQL = mysqlSums(live.SQL, s, "0")
	if deleted.SQL != "" {
		deleted.SQL = mysqlSums(deleted.SQL, Scan{Level: min(s.Level, Versions), Buckets: s.Buckets}, "1")
	}
	return live, deleted
}

func mysqlSums(states string, s Scan, deleted string) string {
	list := []string{fmt.Sprintf("CRC32(i) MOD %d AS b", s.Buckets), "COUNT(*)", "SUM(v) MOD 18446744073709551616"}
	if s.Level >= Versions {
		list = append(list, mysqlHalves(fmt.Sprintf("MD5(CONCAT('%s',i,'V',LENGTH(v),':',v,';V1:%s;'))", prefix, deleted))...)
	}
	if s.Level >= Fields {
		list = append(list, mysqlHalves(fmt.Sprintf("MD5(CONCAT('%s',f))", prefix))...)
	}
	return fmt.Sprintf("SELECT %s FROM (%s) AS s GROUP BY b", strings.Join(list, ","), states)
}

func mysqlHalves(hash string) []string {
	sum := func(side string) string {
		return fmt.Sprintf("IFNULL(SUM(CAST(CONV(%s(%s,16),16,10) AS UNSIGNED)),0) MOD 18446744073709551616", side, hash)
	}
	return []string{sum("LEFT"), sum("RIGHT")}
}
