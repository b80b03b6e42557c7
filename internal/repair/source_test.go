package repair

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/backfill"
	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/credentials"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/internal/testenv"
	"github.com/chprojector/projector/mapping"
)

// identity is a kind of identity in MariaDB, in ClickHouse and in the contract.
type identityCase struct {
	name    string
	source  string // the type in MariaDB
	expr    string // of the rows query; "" = the column
	target  string // the type in ClickHouse
	class   contract.Class
	scale   int
	records map[string]string // SQL of the value -> canonical text
	absent  []string          // canonical texts that are like those, and of no record

	campaign       string // SQL of the records' campaign; "" = 7, which is a number
	campaignSource string
	campaignTarget string
}

// newLookup puts record number n, in the order of their SQL, into shard n%2 at
// version n+1.
func newLookup(t *testing.T, c identityCase) (*Source, map[string]uint64) {
	t.Helper()
	if c.campaign == "" {
		c.campaign, c.campaignSource, c.campaignTarget = "7", "BIGINT UNSIGNED", "UInt64"
	}
	var columns []chschema.Column
	for _, column := range [][2]string{{"id", c.target}, {"campaign", c.campaignTarget}, {"version", "UInt64"}} {
		typ, err := chschema.ParseType(column[1])
		if err != nil {
			t.Fatal(err)
		}
		columns = append(columns, chschema.Column{Name: column[0], Type: typ})
	}
	spec := mapping.Spec{Identity: []string{"id"}, Version: "version", Generation: 1}
	for _, column := range columns {
		spec.Columns = append(spec.Columns, mapping.Column{Name: column.Name, From: column.Name, Type: column.Type})
	}
	expr := c.expr
	if expr == "" {
		expr = "id"
	}
	cfg := backfill.Config{
		Projection: "facts", Spec: spec, Rows: "SELECT " + expr + " AS id, campaign, version FROM fact WHERE campaign = ?",
		Table: chschema.Table{Name: "facts", Generation: 1, Columns: columns, Identity: []string{"id"}, OrderBy: []string{"id"}, Version: "version", Campaign: "campaign"},
	}
	rules, err := contract.Compile(contract.Spec{
		Identity: []string{"id"}, Version: "version", Campaign: "campaign", OrderBy: []string{"id"}, Columns: columns, Rows: cfg.Rows,
		Fields: []contract.Field{{Column: "id", Source: "id", Class: c.class, Scale: c.scale, Precision: 3}, {Column: "version", Source: "version", Class: contract.Integer}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var shards []*testenv.MariaDBDatabase
	for i := range 2 {
		shard := testenv.SharedMariaDB(t)
		shard.Exec(t, "CREATE TABLE fact (id "+c.source+", campaign "+c.campaignSource+" NOT NULL, version BIGINT UNSIGNED NOT NULL, KEY (campaign, id))")
		shards = append(shards, shard)
		cfg.Shards = append(cfg.Shards, mysql.Shard{Name: fmt.Sprintf("s%d", i), DSN: credentials.Secret{Value: shard.DSN()}})
	}
	want := map[string]uint64{}
	for n, value := range slices.Sorted(maps.Keys(c.records)) {
		shards[n%2].Exec(t, fmt.Sprintf("INSERT INTO fact VALUES (%s, %s, %d)", value, c.campaign, n+1))
		want[canonical(c.records[value])] = uint64(n + 1)
	}
	rows, err := backfill.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rows.Close() })
	if err := rows.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &Source{Contract: rules, Rows: rows}, want
}

func canonical(text string) string { return fmt.Sprintf("V%d:%s;", len(text), text) }

// TestSourceFindsExactly: the records that are asked for are found, whatever
// their notation in the source, and none that a collation, a float or a blank
// takes for them. A record that is not found passes for one that the source does
// not have, and its rows may be removed.
func TestSourceFindsExactly(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	forty := "1" + strings.Repeat("0", 40)
	texts := map[string]string{
		"'a'": "a", "'A'": "A", "'a '": "a ", "' a'": " a", "'á'": "á", "'10'": "10", "'1e1'": "1e1", "'010'": "010", "''": "", "'ß'": "ß", "'ss'": "ss", `'it''s'`: "it's",
	}
	for _, c := range []identityCase{
		{
			name: "text", source: "VARCHAR(20) COLLATE utf8mb4_general_ci", target: "String", class: contract.String, records: texts,
			absent: []string{"Á", "A ", "a  ", "1", "SS", "10.0"},
		},
		{
			name: "text of another character set", source: "CHAR(8) CHARACTER SET latin1", target: "String", class: contract.String,
			records: map[string]string{"'x'": "x", "'X'": "X", "'é'": "é", "'e'": "e"}, absent: []string{"É", "x ", "🏃"},
		},
		{
			name: "bytes", source: "VARBINARY(20)", target: "String", class: contract.String,
			records: map[string]string{"'a'": "a", "'A'": "A", "'a '": "a ", "'a\\0'": "a\x00"}, absent: []string{"a  ", "a\x00\x00"},
		},
		{
			name: "bytes filled up", source: "BINARY(4)", target: "FixedString(4)", class: contract.String,
			records: map[string]string{"'ab'": "ab", "'AB'": "AB", "'abcd'": "abcd"}, absent: []string{"a", "abc"},
		},
		{
			name: "names", source: "ENUM('run', 'jump')", target: "Enum8('run' = 1, 'jump' = 2)", class: contract.Enum,
			records: map[string]string{"'run'": "run"}, absent: []string{"jump", "1"},
		},
		{
			name: "decimal of a finer scale", source: "DECIMAL(10,2)", target: "Decimal(18, 3)", class: contract.Decimal, scale: 3,
			records: map[string]string{"2.31": "2310", "2.3": "2300", "-0.05": "-50", "0": "0", "10": "10000"}, absent: []string{"2311", "231", "50", "-2310"},
		},
		{
			name: "decimal of many digits", source: "DECIMAL(65,0)", target: "Decimal(76, 0)", class: contract.Decimal,
			records: map[string]string{forty + "1": forty + "1", forty + "2": forty + "2"}, absent: []string{forty + "3", forty},
		},
		{
			name: "integer as a decimal", source: "BIGINT", target: "Decimal(38, 3)", class: contract.Decimal, scale: 3,
			records: map[string]string{"9007199254740993": "9007199254740993000", "9007199254740992": "9007199254740992000", "-2": "-2000"}, absent: []string{"9007199254740991000", "-2500", "-1999"},
		},
		{
			name: "decimal as text", source: "DECIMAL(10,2)", expr: "CAST(id AS CHAR)", target: "Decimal(18, 3)", class: contract.Decimal, scale: 3,
			records: map[string]string{"2.31": "2310", "2.3": "2300", "0": "0"}, absent: []string{"2311", "231"},
		},
		{
			name: "integer", source: "BIGINT UNSIGNED", target: "UInt64", class: contract.Integer,
			records: map[string]string{"18446744073709551615": "18446744073709551615", "18446744073709551614": "18446744073709551614", "0": "0"}, absent: []string{"18446744073709551613"},
		},
		{
			name: "integer as text", source: "BIGINT", expr: "LPAD(id, 20, '0')", target: "UInt64", class: contract.Integer,
			records: map[string]string{"9007199254740993": "9007199254740993", "9007199254740992": "9007199254740992"}, absent: []string{"9007199254740991"},
		},
		{
			name: "integer as a decimal of the source", source: "DECIMAL(20,0)", target: "UInt64", class: contract.Integer,
			records: map[string]string{"18446744073709551615": "18446744073709551615", "7": "7"}, absent: []string{"18446744073709551614", "70"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			source, want := newLookup(t, c)
			if err := source.Check(); err != nil {
				t.Fatal(err)
			}
			ids := slices.Sorted(maps.Keys(want))
			for _, text := range c.absent {
				ids = append(ids, canonical(text))
			}
			ask := func(ids ...string) {
				t.Helper()
				found, err := source.read(t.Context(), "7", ids)
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range ids {
					switch got := found[id]; {
					case (got != nil) != (want[id] > 0):
						t.Errorf("%q: found %t, want %t", id, got != nil, want[id] > 0)
					case got != nil && got.refused == nil && got.version != want[id]:
						t.Errorf("%q: found version %d, which is another record's; want %d", id, got.version, want[id])
					}
				}
			}
			ask(ids...)
			for _, id := range ids {
				ask(id)
			}
		})
	}
}

// TestSourceTellsCampaignsApart: a record of a campaign that the collation takes
// for the one asked for is not of that one. Reconcile says so, by the bytes.
func TestSourceTellsCampaignsApart(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	for _, target := range []string{"String", "LowCardinality(String)", "FixedString(3)", "Enum8('abc' = 1, 'ABC' = 2)"} {
		t.Run(target, func(t *testing.T) {
			source, want := newLookup(t, identityCase{
				source: "BIGINT", target: "UInt64", class: contract.Integer, records: map[string]string{"1": "1", "2": "2"},
				campaign: "'ABC'", campaignSource: "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", campaignTarget: target,
			})
			for campaign, n := range map[string]int{"ABC": 2, "abc": 0, "ABC ": 0} {
				found, err := source.read(t.Context(), campaign, slices.Collect(maps.Keys(want)))
				if err != nil || len(found) != n {
					t.Errorf("campaign %q: %d records, %v; want %d", campaign, len(found), err, n)
				}
			}
		})
	}
}

// TestSourceHasARecordTwice: two notations of one number are one record.
func TestSourceHasARecordTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	source, _ := newLookup(t, identityCase{
		source: "VARCHAR(20)", target: "Decimal(18, 3)", class: contract.Decimal, scale: 3, records: map[string]string{"'2.31'": "2310", "'2.310'": "2310"},
	})
	found, err := source.read(t.Context(), "7", []string{canonical("2310")})
	if c := found[canonical("2310")]; err != nil || c == nil || !c.repeated {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestSourceRefusesWhatItCannotFind: identities of which single records cannot
// be asked for exactly.
func TestSourceRefusesWhatItCannotFind(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	for _, c := range []struct {
		identityCase
		want string
	}{
		{identityCase{name: "instant", source: "DATETIME(3)", target: "DateTime64(3, 'UTC')", class: contract.Instant}, "column id is of class instant"},
		{identityCase{name: "bool", source: "TINYINT", target: "Bool", class: contract.Bool}, "column id is of class bool"},
		{identityCase{name: "bits", source: "BIT(40)", target: "UInt64", class: contract.Integer}, "column id is BIT on shard s0"},
		{identityCase{name: "a time for a text", source: "DATETIME", target: "String", class: contract.String}, "column id is DATETIME on shard s0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source, _ := newLookup(t, c.identityCase)
			if err := source.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
