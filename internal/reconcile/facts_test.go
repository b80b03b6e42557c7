package reconcile

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chprojector/projector/internal/contract"
)

// fact is a row with everything that could be rendered differently.
type fact struct {
	id, version uint64
	values      []contract.Value // of everything, in the order of factColumns
}

// factColumn is one column in MariaDB, in ClickHouse and in the contract.
type factColumn struct {
	source, target string // types
	field          contract.Field
	make           func(r *rand.Rand) contract.Value
	// wall is the zone in which MariaDB keeps the instant; nil is UTC.
	wall *time.Location
}

var (
	berlin = location("Europe/Berlin")
	east   = time.FixedZone("+08:00", 8*3600)
)

func location(name string) *time.Location {
	l, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return l
}

func text(s string) contract.Value { return contract.Value{Text: s} }

// some makes NULL of every tenth value.
func some(f func(r *rand.Rand) string) func(r *rand.Rand) contract.Value {
	return func(r *rand.Rand) contract.Value {
		if r.IntN(10) == 0 {
			return contract.Value{Null: true}
		}
		return text(f(r))
	}
}

func always(f func(r *rand.Rand) string) func(r *rand.Rand) contract.Value {
	return func(r *rand.Rand) contract.Value { return text(f(r)) }
}

func oneOf(list ...string) func(r *rand.Rand) string {
	return func(r *rand.Rand) string { return list[r.IntN(len(list))] }
}

// unscaled is a decimal text of up to so many digits.
func decimal(digits, scale int) func(r *rand.Rand) string {
	return func(r *rand.Rand) string {
		n := 1 + r.IntN(digits)
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('0' + r.IntN(10))
		}
		s := strings.TrimLeft(string(b), "0")
		for len(s) <= scale {
			s = "0" + s
		}
		if scale > 0 {
			s = s[:len(s)-scale] + "." + s[len(s)-scale:]
		}
		if r.IntN(2) == 0 && strings.Trim(s, "0.") != "" {
			s = "-" + s
		}
		return s
	}
}

// instant is microseconds from the year first to the year last, cut to so many digits.
func instant(first, last, digits int) func(r *rand.Rand) string {
	low := time.Date(first, 1, 2, 0, 0, 0, 0, time.UTC).UnixMicro()
	high := time.Date(last, 12, 30, 0, 0, 0, 0, time.UTC).UnixMicro()
	grain := int64(math.Pow10(6 - digits))
	return func(r *rand.Rand) string {
		us := low + r.Int64N(high-low)
		us -= ((us % grain) + grain) % grain
		return time.UnixMicro(us).UTC().Format("2006-01-02 15:04:05.000000Z07:00")
	}
}

var nasty = []string{
	"", " ", "m", "cm ", " cm", "N;", "V1:x;", "V0:;", ";", "次", "Ünit|#,", "3A", "3a", "é", "e\u0301", `a\b'c"d` + "\te\nf", "\U0001F3C3",
	"\U0001F468\u200D\U0001F469\u200D\U0001F467", "ß", "ss", "ı", "I", "NULL", `\N`, "%s", "\u0000", "a\u0000", "١٢٣", "🇩🇪",
}

func factColumns() []factColumn {
	f := func(column string, class contract.Class) contract.Field {
		return contract.Field{Column: column, Source: column, Class: class}
	}
	at := func(column string, precision int, zone string) contract.Field {
		return contract.Field{Column: column, Source: column, Class: contract.Instant, Precision: precision, Zone: zone}
	}
	money := func(column string, scale int) contract.Field {
		return contract.Field{Column: column, Source: column, Class: contract.Decimal, Scale: scale}
	}
	return []factColumn{
		{source: "BIGINT NULL", target: "Nullable(Int64)", field: f("small", contract.Integer), make: some(func(r *rand.Rand) string {
			return oneOf("0", "-1", strconv.FormatInt(math.MinInt64, 10), strconv.FormatInt(math.MaxInt64, 10), strconv.FormatInt(r.Int64()-r.Int64(), 10))(r)
		})},
		{source: "BIGINT UNSIGNED NOT NULL", target: "UInt64", field: f("large", contract.Integer), make: always(func(r *rand.Rand) string {
			return oneOf("0", "9007199254740993", strconv.FormatUint(math.MaxUint64, 10), strconv.FormatUint(r.Uint64(), 10))(r)
		})},
		{source: "INT(10) UNSIGNED ZEROFILL NOT NULL", target: "UInt32", field: f("filled", contract.Integer), make: always(func(r *rand.Rand) string {
			return strconv.Itoa(r.IntN(5000))
		})},
		{source: "DECIMAL(10,2) NULL", target: "Nullable(Decimal(18, 3))", field: money("amount", 3), make: some(decimal(10, 2))},
		{source: "DECIMAL(38,10) NOT NULL", target: "Decimal(38, 10)", field: money("exact", 10), make: always(decimal(38, 10))},
		{source: "DECIMAL(6,0) NOT NULL", target: "Decimal(9, 0)", field: money("whole", 4), make: always(decimal(6, 0))},
		{source: "VARCHAR(64) COLLATE utf8mb4_general_ci NULL", target: "LowCardinality(Nullable(String))", field: f("unit", contract.String), make: some(oneOf(nasty...))},
		{source: "VARCHAR(64) COLLATE utf8mb4_unicode_ci NOT NULL", target: "String", field: f("grade", contract.String), make: always(oneOf(nasty...))},
		{source: "VARCHAR(16) CHARACTER SET latin1 NOT NULL", target: "String", field: f("western", contract.String), make: always(oneOf("é", "ß", "Zoë ", "a"))},
		{source: "CHAR(12) NOT NULL", target: "String", field: f("padded", contract.String), make: always(oneOf("", "ab", " ab", "éé"))},
		{source: "BINARY(4) NOT NULL", target: "FixedString(4)", field: f("fixed", contract.String), make: always(oneOf("", "\x01", "\xff\xfe", "abcd", "a\x00b"))},
		{source: "VARBINARY(16) NULL", target: "Nullable(String)", field: f("raw", contract.String), make: some(oneOf("", "\x00", "\xff\x80", "N;", "a\x00"))},
		{source: "DATETIME(6) NULL", target: "Nullable(DateTime64(6, 'UTC'))", field: at("at", 6, ""), make: some(instant(1901, 2199, 6))},
		{source: "DATETIME(6) NOT NULL", target: "DateTime64(3, 'Etc/GMT-8')", field: at("east", 3, "+08:00"), make: always(instant(1950, 2090, 6)), wall: east},
		{source: "DATETIME(6) NOT NULL", target: "DateTime64(6, 'Etc/GMT+5')", field: at("berlin", 6, "Europe/Berlin"), make: always(instant(1902, 2099, 6)), wall: berlin},
		{source: "TIMESTAMP(3) NOT NULL DEFAULT '2000-01-01'", target: "DateTime64(3, 'UTC')", field: at("stamp", 3, ""), make: always(instant(1971, 2036, 3))},
		{source: "DATETIME NOT NULL", target: "DateTime('UTC')", field: at("second", 0, ""), make: always(instant(1971, 2100, 0))},
		{source: "DATE NOT NULL", target: "Date32", field: at("day", 0, ""), make: always(func(r *rand.Rand) string {
			return time.Unix(0, 0).UTC().AddDate(0, 0, r.IntN(80000)-20000).Format("2006-01-02")
		})},
		{source: "TINYINT(1) NULL", target: "Nullable(Bool)", field: f("flag", contract.Bool), make: some(oneOf("0", "1"))},
		{source: "BIT(1) NOT NULL", target: "Bool", field: f("bit", contract.Bool), make: always(oneOf("0", "1"))},
		{source: "ENUM('red','GREEN','blüe') NULL", target: "Nullable(Enum8('red' = 1, 'GREEN' = 2, 'blüe' = 3))", field: f("color", contract.Enum), make: some(oneOf("red", "GREEN", "blüe"))},
	}
}

// factSpec is the contract, and the table of the source.
func factSpec(t testing.TB) (contract.Spec, []string) {
	t.Helper()
	names := []string{"id UInt64", "campaign UInt32", "version UInt64", "is_deleted Bool"}
	source := []string{"id BIGINT UNSIGNED NOT NULL PRIMARY KEY", "campaign INT UNSIGNED NOT NULL", "version BIGINT UNSIGNED NOT NULL"}
	fields := []contract.Field{
		{Column: "id", Source: "id", Class: contract.Integer}, {Column: "version", Source: "version", Class: contract.Integer},
	}
	for _, c := range factColumns() {
		names = append(names, c.field.Column+" "+c.target)
		source = append(source, "`"+c.field.Column+"` "+c.source)
		fields = append(fields, c.field)
	}
	for i := range fields {
		fields[i].Source = "`" + fields[i].Source + "`"
	}
	tables := []string{
		"CREATE TABLE fact (" + strings.Join(source, ", ") + ", KEY (campaign)) CHARACTER SET utf8mb4",
		"CREATE TABLE gone (id BIGINT UNSIGNED NOT NULL, campaign INT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL, PRIMARY KEY (id, version))",
	}
	return contract.Spec{
		Identity: []string{"id"}, Version: "version", Deleted: "is_deleted", Campaign: "campaign", OrderBy: []string{"campaign", "id"},
		Columns:   columns(t, names...),
		Rows:      "SELECT id, campaign, version FROM fact WHERE campaign = ?",
		Deletions: "SELECT id, version FROM gone WHERE campaign = ?",
		Fields:    fields,
	}, tables
}

func makeFact(r *rand.Rand, id uint64) fact {
	f := fact{id: id, version: 2 + r.Uint64N(math.MaxUint64-4)}
	for _, c := range factColumns() {
		v := c.make(r)
		if c.wall != nil { // a time that the wall shows twice is the first of the two
			at := parsed(v.Text)
			v.Text = first(at, c.wall).Format("2006-01-02 15:04:05.000000Z07:00")
		}
		f.values = append(f.values, v)
	}
	return f
}

func parsed(s string) time.Time {
	at, err := time.Parse("2006-01-02 15:04:05.000000Z07:00", s)
	if err != nil {
		panic(err)
	}
	return at
}

// first is the earliest instant that shows the same wall time.
func first(at time.Time, wall *time.Location) time.Time {
	const layout = "2006-01-02 15:04:05.000000"
	for _, back := range []time.Duration{3 * time.Hour, 2 * time.Hour, time.Hour} {
		if earlier := at.Add(-back); earlier.In(wall).Format(layout) == at.In(wall).Format(layout) {
			return earlier.UTC()
		}
	}
	return at.UTC()
}

// campaign is the one that all facts are in.
const campaign = "7"

// mysql is the row as a VALUES list.
func (f fact) mysql() string {
	list := []string{fmt.Sprint(f.id), campaign, fmt.Sprint(f.version)}
	for i, c := range factColumns() {
		list = append(list, c.literal(f.values[i]))
	}
	return "(" + strings.Join(list, ",") + ")"
}

func (c factColumn) literal(v contract.Value) string {
	switch {
	case v.Null:
		return "NULL"
	case c.field.Class == contract.String && strings.Contains(c.source, "BINARY"):
		return "x'" + hex.EncodeToString([]byte(v.Text)) + "'"
	case c.field.Class == contract.String, c.field.Class == contract.Enum:
		return "_utf8mb4 x'" + hex.EncodeToString([]byte(v.Text)) + "'"
	case c.field.Class == contract.Instant && strings.HasSuffix(v.Text, "Z"):
		at := parsed(v.Text)
		if c.wall != nil {
			at = at.In(c.wall)
		}
		return at.Format("'2006-01-02 15:04:05.000000'")
	case c.field.Class == contract.Instant:
		return "'" + v.Text + "'"
	}
	return v.Text
}

// clickhouse is the row as TabSeparated.
func (f fact) clickhouse(version uint64, deleted string) string {
	list := []string{fmt.Sprint(f.id), campaign, fmt.Sprint(version), deleted}
	for i, c := range factColumns() {
		v := f.values[i]
		cell := escape.Replace(v.Text)
		switch {
		case v.Null:
			cell = `\N`
		case c.field.Class == contract.Instant && strings.HasSuffix(v.Text, "Z"):
			layout := "2006-01-02 15:04:05"
			if strings.Contains(c.target, "DateTime64(3") {
				layout += ".000" // cuts, as the contract does
			} else if strings.Contains(c.target, "DateTime64(6") {
				layout += ".000000"
			}
			cell = parsed(v.Text).In(zoneOf(c.target)).Format(layout)
		}
		list = append(list, cell)
	}
	return strings.Join(append(list, "1"), "\t") + "\n"
}

func zoneOf(target string) *time.Location {
	for _, name := range []string{"Etc/GMT-8", "Etc/GMT+5"} {
		if strings.Contains(target, name) {
			return location(name)
		}
	}
	return time.UTC
}

var escape = strings.NewReplacer("\\", "\\\\", "\t", "\\t", "\n", "\\n", "\r", "\\r", "\x00", "\\0")

func (f fact) encode(t testing.TB, c *contract.Contract) string {
	t.Helper()
	b, err := c.Encode(nil, append([]contract.Value{text(fmt.Sprint(f.id)), text(fmt.Sprint(f.version))}, f.values...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// sums is the digest of facts, computed in Go.
func sums(t testing.TB, c *contract.Contract, facts []fact, gone map[uint64]uint64, buckets uint32) []Digest {
	t.Helper()
	list := make([]Digest, buckets)
	for _, f := range facts {
		content := f.encode(t, c)
		id, err := c.ID(content)
		if err != nil {
			t.Fatal(err)
		}
		d := Digest{Live: 1, Revision: f.version}
		d.VersionsHigh, d.VersionsLow = contract.SumVersion(id, f.version, false).Halves()
		d.FieldsHigh, d.FieldsLow = contract.Sum(content).Halves()
		list[contract.Bucket(id, buckets)].add(d)
	}
	for n, version := range gone {
		id := fmt.Sprintf("V%d:%d;", len(fmt.Sprint(n)), n)
		d := Digest{Deleted: 1, Revision: version}
		d.VersionsHigh, d.VersionsLow = contract.SumVersion(id, version, true).Halves()
		list[contract.Bucket(id, buckets)].add(d)
	}
	return list
}

// fill writes facts into both shards and the table: superseded versions,
// duplicates and deletions too.
func (w *world) fill(r *rand.Rand, facts []fact, gone map[uint64]uint64) {
	w.t.Helper()
	values := [2][]string{}
	flush := func(shard int) {
		if len(values[shard]) > 0 {
			w.exec(shard, "INSERT INTO fact VALUES "+strings.Join(values[shard], ","))
			values[shard] = nil
		}
	}
	var tsv strings.Builder
	for _, f := range facts {
		shard := int(f.id % 2)
		if values[shard] = append(values[shard], f.mysql()); len(values[shard]) == 500 {
			flush(shard)
		}
		tsv.WriteString(f.clickhouse(f.version, "0"))
		switch r.IntN(8) {
		case 0: // a repetition
			tsv.WriteString(f.clickhouse(f.version, "0"))
		case 1: // an older state with another content
			tsv.WriteString(makeFact(r, f.id).clickhouse(f.version-1, "0"))
		case 2: // an older deletion, which the source remembers
			w.exec(shard, "INSERT INTO gone VALUES (?, 7, ?)", f.id, f.version-1)
			tsv.WriteString(f.clickhouse(f.version-1, "1"))
		}
	}
	flush(0)
	flush(1)
	for id, version := range gone {
		w.exec(int(id%2), "INSERT INTO gone VALUES (?, 7, ?), (?, 7, ?)", id, version-1, id, version)
		f := makeFact(r, id)
		tsv.WriteString(f.clickhouse(version-1, "0"))
		tsv.WriteString(f.clickhouse(version, "1"))
	}
	names := "id, campaign, version, is_deleted"
	for _, c := range factColumns() {
		names += ", " + c.field.Column
	}
	w.insert("INSERT INTO facts_g1 (" + names + ", _generation) SETTINGS optimize_on_insert = 0 FORMAT TabSeparated\n" + tsv.String())
}

// insert writes into the table.
func (w *world) insert(statement string) {
	w.t.Helper()
	if _, err := w.db.Query(w.t.Context(), statement); err != nil {
		w.t.Fatalf("%.2000s", err.Error())
	}
}

// A text that MySQL does not put together, for it is longer than max_allowed_packet allows, is no null: that would be
// equal to a table that has lost it.
func TestTextBeyondTheServersLimit(t *testing.T) {
	spec := plainSpec(t)
	spec.Columns = columns(t, "id UInt64", "campaign UInt64", "version UInt64", "school Nullable(String)", "score Decimal(18, 3)", "is_deleted Bool")
	const long = "CONVERT(REPEAT(CONVERT(%s USING latin1), 9000000) USING utf8mb4)" // 9 MB in latin1, 18 in utf8mb4; the limit is 16
	spec.Fields[2].Source = fmt.Sprintf(long, "school")
	w := newWorld(t, spec,
		"CREATE TABLE fact (id BIGINT UNSIGNED PRIMARY KEY, campaign BIGINT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL, school VARCHAR(40), score DECIMAL(10,2) NOT NULL)",
		"CREATE TABLE gone (id BIGINT UNSIGNED PRIMARY KEY, campaign BIGINT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL)")
	w.exec(1, "INSERT INTO fact VALUES (11, 7, 3, NULL, 1)")
	w.plant("", "(11, 7, 3, NULL, 1, 0, 1)", 11)
	if got := w.comparison().Campaign(t.Context(), "7"); got.Verdict != Equal {
		t.Errorf("null: %+v", got)
	}
	w.exec(1, "UPDATE fact SET school = 'ü'")
	got := w.comparison().Campaign(t.Context(), "7")
	if want := "shard s1: read campaign 7: record 11: its fields are longer than the server puts together; raise max_allowed_packet there, or take the long one out of source.projections.*.fields"; got.Verdict != Failed || got.Error != want {
		t.Errorf("%s: %s; want %s\n%+v", got.Verdict, got.Error, want, got.Findings)
	}
}
