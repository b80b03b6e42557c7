package backfill_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/chprojector/projector/internal/backfill"
	"github.com/chprojector/projector/internal/credentials"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/internal/testenv"
)

// TestTypesAreExact: what MariaDB has is what ClickHouse shows, to the last
// digit, for values that a float or a time.Time would have changed.
func TestTypesAreExact(t *testing.T) {
	w := newWorld(t, "campaign UInt64", "id UInt64", "small Int8", "big Int64", "dec Decimal(38, 10)", "wide Decimal(65, 30)", "zero Decimal(10, 2)",
		"at DateTime64(6, 'UTC')", "stamp DateTime64(6, 'UTC')", "berlin DateTime64(3, 'Europe/Berlin') zone Europe/Berlin", "second DateTime",
		"day Date32", "clock String", "text String", "fixed LowCardinality(String)", "choice Enum8('a' = 1, 'b' = 2)", "doc String",
		"list Array(Nullable(UInt64))", "bits UInt64", "flag Bool", "raw String", "nothing Nullable(Decimal(9, 3))", "dbl Float64", "flt Float32")
	w.everywhere(`CREATE TABLE results (campaign BIGINT UNSIGNED NOT NULL, id BIGINT UNSIGNED NOT NULL PRIMARY KEY, small TINYINT, big BIGINT,
		dec_ DECIMAL(38,10), wide DECIMAL(65,30), zero DECIMAL(10,2) UNSIGNED ZEROFILL, at_ DATETIME(6), stamp TIMESTAMP(6) NULL, berlin DATETIME(3), second_ DATETIME,
		day_ DATE, clock TIME, text_ TEXT, fixed CHAR(10), choice ENUM('a','b'), doc JSON, list JSON, bits BIT(64), flag TINYINT(1), raw_ VARBINARY(20),
		nothing DECIMAL(9,3), dbl DOUBLE, flt FLOAT, version BIGINT UNSIGNED NOT NULL, KEY (campaign))`,
		"CREATE TABLE deletions (campaign BIGINT UNSIGNED, id BIGINT UNSIGNED, version BIGINT UNSIGNED)")
	w.cfg.Rows = "SELECT campaign, id, small, big, dec_ AS `dec`, wide, zero, at_ AS at, stamp, berlin, second_ AS `second`, day_ AS day, clock, text_ AS text, fixed, choice, doc, list, bits, flag, raw_ AS raw, nothing, dbl, flt, version, 0 AS is_deleted FROM results WHERE campaign = ?"
	w.shards[0].Exec(t,
		"SET SESSION time_zone = '+00:00'",
		`INSERT INTO results VALUES (18446744073709551615, 18446744073709551615, -128, -9223372036854775808,
			-9999999999999999999999999999.0000000001, 0.000000000000000000000000000001, 2.31, '2026-10-25 02:30:00.123456', '2026-10-25 01:30:00.654321', '2026-07-01 12:00:00.250', '2038-01-19 03:14:08',
			'1900-01-01', '-838:59:59', 'é é 🏃 "q" \\ \n tab\t NULL', 'pad', 'b', '{"b": 1.10, "a": [18446744073709551615]}', '[null, 18446744073709551615]', b'1111111111111111111111111111111111111111111111111111111111111111', 1, 'ascii',
			NULL, 0.1, 0.1, 18446744073709551614)`)
	if got, err := w.copy("backfill:x", one("18446744073709551615")); err != nil || got.Refused != 0 {
		t.Fatalf("%+v: %v", got, err)
	}
	for column, want := range map[string]string{
		"campaign": "18446744073709551615", "id": "18446744073709551615", "version": "18446744073709551614",
		"small": "-128", "big": "-9223372036854775808",
		"dec": "-9999999999999999999999999999.0000000001", "wide": "0.000000000000000000000000000001", "zero": "2.31",
		"at": "2026-10-25 02:30:00.123456", "stamp": "2026-10-25 01:30:00.654321",
		"toTimeZone(berlin, 'UTC')": "2026-07-01 10:00:00.250", "toTimeZone(second, 'UTC')": "2038-01-19 03:14:08",
		"day": "1900-01-01", "clock": "-838:59:59",
		"fixed": "pad", "choice": "b", "doc": `{"b": 1.10, "a": [18446744073709551615]}`, "list": "[NULL,18446744073709551615]",
		"bits": "18446744073709551615", "flag": "true", "raw": "ascii", "nothing": `\N`, "dbl": "0.1", "flt": "0.1",
		"lower(hex(text))": hex.EncodeToString([]byte("é é 🏃 \"q\" \\ \n tab\t NULL")),
	} {
		w.want("SELECT "+column+" FROM results_g1 FORMAT TSVRaw", want)
	}
}

// What a column cannot hold exactly is refused and named, not changed.
func TestInexactValuesAreRefused(t *testing.T) {
	w := newWorld(t, "campaign UInt64", "id UInt64", "small UInt8", "at DateTime", "raw String", "must String")
	w.everywhere("CREATE TABLE results (campaign BIGINT, id BIGINT PRIMARY KEY, small INT, at DATETIME(6), raw VARBINARY(9), must VARCHAR(9), version BIGINT)", plainDeletions)
	w.shards[0].Exec(t, "SET sql_mode = ''",
		"INSERT INTO results VALUES (1, 1, 256, '2026-01-01', 'a', 'a', 1), (1, 2, 1, '2026-01-01 00:00:00.5', 'a', 'a', 1), (1, 3, 1, '2026-01-01', x'ff', 'a', 1), (1, 4, 1, '2026-01-01', 'a', NULL, 1), (1, 5, 1, '0000-00-00', 'a', 'a', 1), (1, -6, 1, '2026-01-01', 'a', 'a', 1), (1, 7, 255, '2026-01-01', 'a', 'a', 1)")
	got, err := w.copy("backfill:x", one("1"))
	if err != nil || got.Written != 1 {
		t.Fatalf("%+v: %v", got, err)
	}
	want := []string{"-6 range id -6", "1 range small 256", "2 precision at", "3 encoding raw", "4 null must null", "5 time at"}
	for i, line := range summary(got.Refusals) {
		if !strings.HasPrefix(line, want[i]) {
			t.Errorf("%q, want %q", line, want[i])
		}
	}
}

// Identities that are texts are read in the order of their bytes, whatever the
// collation thinks is equal, and each goes on at the right one.
func TestTextIdentities(t *testing.T) {
	w := newWorld(t, "campaign String", "id String")
	w.shards[0].Exec(t, "CREATE TABLE results (campaign VARCHAR(9), id VARCHAR(20) COLLATE utf8mb4_general_ci, version BIGINT)", plainDeletionsOf("VARCHAR(9)", "VARCHAR(20)"))
	w.shards[1].Exec(t, "CREATE TABLE results (campaign VARCHAR(9), id VARCHAR(20) CHARACTER SET latin1, version BIGINT)", plainDeletionsOf("VARCHAR(9)", "VARCHAR(20)"))
	w.shards[0].Exec(t, "INSERT INTO results VALUES ('c 1', 'a', 1), ('c 1', 'A', 1), ('c 1', 'ä', 1), ('c 1', 'b', 1), ('c 1', 'a ', 1), ('c 1', '🏃', 1), ('c 1', '10', 1), ('c 1', '9', 1)")
	w.shards[1].Exec(t, "INSERT INTO results VALUES ('c 1', 'ä', 2), ('c 1', 'Ä', 1), ('c 1', 'z', 1)")
	got, err := w.copy("backfill:x", backfill.Options{Campaigns: []string{"c 1"}, ChunkRows: 1})
	if err != nil || got.Written != 9 || got.Repeated != 2 || got.Stored != 9 {
		t.Errorf("%+v: %v", got, err)
	}
	w.want("SELECT groupArray(id) FROM (SELECT id FROM results_current ORDER BY id)", "['10','9','A','a','a ','b','z','Ä','🏃']")
}

// Types of which the driver shows a text and the server knows an order of its
// own: none is left out, wherever reading was cut off.
func TestOtherIdentities(t *testing.T) {
	for _, c := range []struct{ source, target, values string }{
		{"UUID", "UUID", "SELECT CONCAT(LPAD(HEX(seq * 2654435761 % 4294967296), 8, '0'), '-', LPAD(HEX(seq * 977 % 65536), 4, '0'), '-1', LPAD(HEX(seq * 31), 3, '0'), '-8000-000000000000')"},
		{"CHAR(36)", "UUID", "SELECT CONCAT(LPAD(HEX(seq), 8, '0'), '-0000-0000-0000-000000000000')"},
		{"DATETIME(3)", "DateTime64(3, 'UTC')", "SELECT '2026-01-01' + INTERVAL seq * 1700 MICROSECOND"},
		{"DECIMAL(20, 2)", "Decimal(20, 2)", "SELECT (CAST(seq AS SIGNED) - 20) * 13.37"},
		{"INET6", "IPv6", "SELECT INET6_NTOA(UNHEX(MD5(seq)))"},
		{"BIGINT", "Int64", "SELECT (CAST(seq AS SIGNED) - 20) * 3"},
		{"ENUM('b','a','c')", "String", "SELECT ELT(seq, 'a', 'b', 'c') FROM seq_1_to_3 WHERE 1 UNION SELECT 'a'"},
	} {
		t.Run(c.source, func(t *testing.T) {
			w := newWorld(t, "campaign UInt64", "id "+c.target)
			w.everywhere("CREATE TABLE results (campaign BIGINT, id "+c.source+", version BIGINT)", "CREATE TABLE deletions (campaign BIGINT, id "+c.source+", version BIGINT)")
			values := c.values
			if !strings.Contains(values, "FROM") {
				values += " FROM seq_1_to_40"
			}
			w.shards[0].Exec(t, "INSERT INTO results SELECT 1, v.*, 1 FROM ("+values+") v")
			var points []backfill.Checkpoint
			whole, err := w.copy("backfill:x", backfill.Options{Campaigns: []string{"1"}, ChunkRows: 1, Save: func(_ context.Context, at backfill.Checkpoint) error {
				points = append(points, at)
				return nil
			}})
			if err != nil || whole.Written < 3 || whole.Written != whole.Rows {
				t.Fatalf("%+v: %v", whole, err)
			}
			for _, i := range []int{0, len(points) / 2, len(points) - 2} {
				if got, err := w.copy("backfill:y", backfill.Options{Campaigns: []string{"1"}, From: points[i]}); err != nil || got.Rows != whole.Rows || got.Written != whole.Written {
					t.Errorf("from %+v: %+v: %v", points[i], got, err)
				}
			}
			w.want("SELECT uniqExact(id) FROM results_g1", fmt.Sprint(whole.Written))
		})
	}
}

func plainDeletionsOf(campaign, id string) string {
	return "CREATE TABLE deletions (campaign " + campaign + ", id " + id + ", version BIGINT)"
}

// TestBadSourcesAreRefused: every one of these is found before a row is
// written, and named.
func TestBadSourcesAreRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		wrong func(*backfill.Config)
		want  string
	}{
		{
			"a mapped field is missing", func(c *backfill.Config) {
				c.Rows = "SELECT campaign, id, value, version, 0 AS is_deleted FROM results WHERE campaign = ?"
			},
			"source.projections.results.rows: shard s0: the result has no column note, from which column note is filled; select it AS `note`",
		},
		{
			"its case differs", func(c *backfill.Config) {
				c.Rows = "SELECT campaign, id, value, version, note AS Note, 0 AS is_deleted FROM results WHERE campaign = ?"
			},
			"(it has Note; case matters)",
		},
		{
			"the version is missing", func(c *backfill.Config) {
				c.Rows = "SELECT campaign, id, value, note, 0 AS is_deleted FROM results WHERE campaign = ?"
			},
			"no column version",
		},
		{
			"the version is a text", func(c *backfill.Config) {
				c.Rows = "SELECT campaign, id, value, note, 0 AS is_deleted, CAST(version AS CHAR) AS version FROM results WHERE campaign = ?"
			},
			"the version version is VARCHAR; it must be an integer",
		},
		{
			"the identity is missing", func(c *backfill.Config) {
				c.Rows = "SELECT campaign, value, note, version, 0 AS is_deleted FROM results WHERE campaign = ?"
			},
			"the result has no column id",
		},
		{
			"a float for a decimal", func(c *backfill.Config) {
				c.Rows = "SELECT campaign, id, value + 0e0 AS value, note, version, 0 AS is_deleted FROM results WHERE campaign = ?"
			},
			"column value is Decimal(20, 4) and value is a DOUBLE, whose digits are not exact; select CAST(… AS DECIMAL(p, s)) AS `value`",
		},
		{
			"deletions without the order key", func(c *backfill.Config) { c.Deletions = "SELECT id, version FROM deletions WHERE campaign = ?" },
			"source.projections.results.deletions: shard s0: the result has no column campaign, from which column campaign is filled",
		},
		{
			"deletions without the version", func(c *backfill.Config) { c.Deletions = "SELECT campaign, id FROM deletions WHERE campaign = ?" },
			"no column version",
		},
		{"deletions without a column for them", func(c *backfill.Config) { c.Spec.Deleted = "" }, "no column that marks a deletion"},
		{"no question mark", func(c *backfill.Config) { c.Rows = "SELECT *, 0 AS is_deleted FROM results -- ?" }, "has no question mark"},
		{"no such table", func(c *backfill.Config) { c.Rows = "SELECT * FROM nowhere WHERE campaign = ?" }, "nowhere' doesn't exist"},
		{"no SQL", func(c *backfill.Config) { c.Rows = "SELCT ?" }, "error in your SQL syntax"},
		{"no shards", func(c *backfill.Config) { c.Shards = nil }, "source.shards: no shard is configured"},
		{"a shard that is down", func(c *backfill.Config) {
			c.Shards[1] = mysql.Shard{Name: "s1", DSN: credentials.Secret{Value: "u:p@tcp(127.0.0.1:1)/d"}}
		}, "connect to shard s1: "},
		{"a wrong password", func(c *backfill.Config) {
			c.Shards[1].DSN.Value = strings.Replace(c.Shards[1].DSN.Value, "root@", "nobody:hunter2@", 1)
		}, "shard s1: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := plainWorld(t)
			c.wrong(&w.cfg)
			_, err := w.open()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v\nwant one with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Error("it tells the password")
			}
		})
	}
}

func TestUnknownCampaign(t *testing.T) {
	w := plainWorld(t)
	w.everywhere("CREATE TABLE campaigns (id BIGINT)")
	w.cfg.Campaigns = "SELECT id FROM campaigns"
	w.shards[0].Exec(t, "INSERT INTO results VALUES (1, 1, 1, '', 1)")
	w.shards[1].Exec(t, "INSERT INTO deletions VALUES (2, 1, 1)", "INSERT INTO campaigns VALUES (3)")
	source, err := w.open()
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Check(t.Context(), []string{"1", "2", "3"}); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"4":  "unknown campaign 4: no shard of s0, s1 has a row, a deletion or the campaign itself",
		"1x": `campaign "1x": column campaign is UInt64; write it as a plain number`, "01": "plain number", "-1": "plain number",
	} {
		if err := source.Check(t.Context(), []string{"1", name}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A connection that is cut in the middle of a result is replaced, and reading
// goes on behind the last row.
func TestLostConnectionIsReplaced(t *testing.T) {
	w := plainWorld(t)
	for i, s := range w.shards {
		s.Exec(t, strings.NewReplacer("$i", string(rune('0'+i))).Replace("INSERT INTO results SELECT 1, seq * 2 + $i, 1, REPEAT('x', 40), 2 FROM seq_1_to_60000"))
	}
	source, err := w.open()
	if err != nil {
		t.Fatal(err)
	}
	kills := 0
	got, err := backfill.Copy(t.Context(), source, backfill.Options{Campaigns: []string{"1"}, ChunkRows: 20_000, Progress: func(backfill.Progress) {
		if kills++; kills == 5 || kills == 20 {
			killReaders(t, w.shards[0])
		}
	}}, w.writer("backfill:x"))
	if err != nil || got.Rows != 120_000 || got.Written != 120_000 || got.Repeated != 0 {
		t.Errorf("%+v: %v", got, err)
	}
	w.want("SELECT uniqExact(id), count() FROM results_current", "120000\t120000")
}

// The server ends a connection that asks for nothing for longer than wait_timeout: so it may be with one shard when the
// rows of another have all been read.
func TestConnectionLostBetweenRowsAndDeletions(t *testing.T) {
	w := plainWorld(t)
	w.everywhere("INSERT INTO deletions SELECT 1, seq, 2 FROM seq_1_to_10")
	w.shards[0].Exec(t, "INSERT INTO results VALUES (1, 11, 1, '', 1)")
	killed := false
	got, err := w.copy("backfill:x", backfill.Options{Campaigns: []string{"1"}, Progress: func(p backfill.Progress) {
		if p.Counts.Rows == 1 && !killed {
			killed = true
			killReaders(t, w.shards[0])
		}
	}})
	if err != nil || !killed || got.Rows != 1 || got.Deletions != 20 {
		t.Errorf("killed %t: %+v: %v", killed, got, err)
	}
}

// killReaders ends every connection of the server's users but its own.
func killReaders(t *testing.T, s *testenv.MariaDBDatabase) {
	t.Helper()
	s.Exec(t, "BEGIN NOT ATOMIC FOR p IN (SELECT id FROM information_schema.processlist WHERE id != CONNECTION_ID() AND db IS NOT NULL AND user = 'root') DO EXECUTE IMMEDIATE CONCAT('KILL CONNECTION ', p.id); END FOR; END")
}
