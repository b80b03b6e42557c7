package outbox

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chprojector/projector/internal/testenv"
)

func TestDDL(t *testing.T) {
	db, s := outboxOn(t, false)
	execute(t, db, DDL("outbox")) // may be repeated
	if err := s.ProbeRights(t.Context(), true); err != nil {
		t.Error(err)
	}
	if s.index != "`due`" {
		t.Errorf("claims go by %s", s.index)
	}
	// A session anywhere in the world inserts an event that is due now.
	for _, zone := range []string{"+08:00", "-11:00"} {
		execute(t, db, "SET STATEMENT time_zone = '"+zone+"' FOR "+insert("zone"+zone, 1, "{}"))
	}
	if got := ask(t, db, "SELECT COUNT(*) FROM outbox WHERE due_at BETWEEN NOW(6) - INTERVAL 1 MINUTE AND NOW(6) AND created_at BETWEEN NOW(6) - INTERVAL 1 MINUTE AND NOW(6)"); got != "2" {
		t.Errorf("%s of 2 events are due now", got)
	}
	// The bytes of a payload arrive as they were written.
	const payload = `{"b": 2.310, "a": "ä🏃 ''\\\\n"}`
	execute(t, db, "TRUNCATE TABLE outbox", insert("text", 1, payload))
	c, err := s.claim(t.Context(), 1, testAttempts, testLease, 1)
	if err != nil {
		t.Fatal(err)
	}
	err = s.payloads(t.Context(), c.events, func(_ *event, got []byte) error {
		if want := `{"b": 2.310, "a": "ä🏃 '\\n"}`; string(got) != want {
			t.Errorf("the payload is %s, want %s", got, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

const (
	testLease    = time.Minute
	testAttempts = 10
)

// remedy is the statement that an error offers.
var remedy = regexp.MustCompile(`((?:ALTER TABLE|CREATE INDEX|CREATE UNIQUE INDEX) .*)$`)

// Whatever is wrong with the table is refused with the way out, and where that
// is a statement, it helps.
func TestProbeRefuses(t *testing.T) {
	for _, c := range []struct{ name, change, want string }{
		{"no index", "ALTER TABLE outbox DROP INDEX due", "no index on (state, due_at, id)"},
		{"the index of the usual article", "ALTER TABLE outbox DROP INDEX due, ADD INDEX status (state)", "no index on (state, due_at, id)"},
		{"columns of the index in another order", "ALTER TABLE outbox DROP INDEX due, ADD INDEX due2 (due_at, state, id)", "no index on (state, due_at, id)"},
		{"no unique version", "ALTER TABLE outbox DROP INDEX version, ADD INDEX version2 (aggregate_type, aggregate_id, version)", "no unique index"},
		{"engine", "ALTER TABLE outbox ENGINE=MyISAM", "neither transactions nor row locks"},
		{"local times", "ALTER TABLE outbox MODIFY due_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)", "local time of the application's session"},
		{"whole seconds", "ALTER TABLE outbox MODIFY due_at DATETIME NOT NULL", "want datetime(6)"},
		{"no column", "ALTER TABLE outbox DROP COLUMN sent_offset", "no column sent_offset"},
		{"signed ids", "ALTER TABLE outbox MODIFY claim_token BIGINT NOT NULL DEFAULT 0", "want bigint unsigned"},
		{"payload as JSON numbers", "ALTER TABLE outbox MODIFY payload INT NOT NULL", "outbox.payload is int"},
		{"a state less", "ALTER TABLE outbox MODIFY state ENUM('due', 'claimed', 'sent') NOT NULL", "knows no 'parked'"},
		{"events of nobody", "ALTER TABLE outbox MODIFY aggregate_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL", "outbox.aggregate_id may be NULL"},
		{"due at no time", "ALTER TABLE outbox MODIFY due_at DATETIME(6) NULL", "outbox.due_at may be NULL"},
		{"ids regardless of case", "ALTER TABLE outbox MODIFY aggregate_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL", "outbox.aggregate_id is compared by ascii_general_ci"},
		{"types regardless of case", "ALTER TABLE outbox MODIFY aggregate_type VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL", "outbox.aggregate_type is compared by utf8mb4_unicode_ci"},
	} {
		t.Run(c.name, func(t *testing.T) {
			db, s := outboxOn(t, false)
			execute(t, db, c.change)
			err := s.Probe(t.Context())
			if _, ok := errors.AsType[*DesignError](err); !ok {
				t.Fatalf("error %v, want a DesignError", err)
			}
			contains(t, err.Error(), "shard s0", c.want)
			if m := remedy.FindStringSubmatch(err.Error()); m != nil {
				execute(t, db, m[1])
				if err := s.Probe(t.Context()); err != nil {
					t.Errorf("after %s: %v", m[1], err)
				}
			} else if !strings.Contains(err.Error(), "projector outbox ddl") {
				t.Errorf("no way out in: %v", err)
			}
		})
	}
}

// What tells aggregates apart byte by byte is taken.
func TestProbeTakesOtherIds(t *testing.T) {
	for _, kind := range []string{"BIGINT UNSIGNED NOT NULL", "CHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"} {
		db, s := outboxOn(t, false)
		execute(t, db, "ALTER TABLE outbox MODIFY aggregate_id "+kind)
		if err := s.Probe(t.Context()); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// An index that exists under another name, or without the primary key that
// InnoDB appends, serves as well.
func TestProbeTakesAnEquivalentIndex(t *testing.T) {
	db, s := outboxOn(t, false)
	execute(t, db, "ALTER TABLE outbox DROP INDEX due, ADD INDEX `how odd` (state, due_at)")
	if err := s.Probe(t.Context()); err != nil || s.index != "`how odd`" {
		t.Errorf("index %s, %v", s.index, err)
	}
	fill(t, db, 3)
	if c, err := s.claim(t.Context(), 2, testAttempts, testLease, 1); err != nil || len(c.events) != 2 {
		t.Errorf("claimed %d, %v", len(c.events), err)
	}
}

// A table that is not there yet is no error of design: it is waited for.
func TestProbeWaitsForTheTable(t *testing.T) {
	db, _ := outboxOn(t, false)
	err := NewStore("s0", db, "elsewhere", "test", false).Probe(t.Context())
	if _, final := errors.AsType[*DesignError](err); final || err == nil {
		t.Errorf("error %v", err)
	}
	contains(t, err.Error(), "there is no table elsewhere; create it: projector outbox ddl")
}

// The claim is planned by its index also while the table is empty, and with
// whatever the statistics say.
func TestPlanDoesNotDependOnStatistics(t *testing.T) {
	for _, strict := range []bool{false, true} {
		db, s := outboxOn(t, strict)
		for _, change := range []string{"DO 0", "INSERT INTO outbox (event_id, aggregate_type, aggregate_id, version, payload) SELECT seq, 'r', seq, 1, '' FROM seq_1_to_5000", "UPDATE outbox SET state = 'sent' WHERE id > 10"} {
			execute(t, db, change, "ANALYZE TABLE outbox")
			if err := s.Probe(t.Context()); err != nil {
				t.Errorf("strict order %t, after %.30s: %v", strict, change, err)
			}
		}
	}
}

func TestCheckVersion(t *testing.T) {
	for version, want := range map[string]string{
		"10.11.19-MariaDB-0+deb12u1": "",
		"10.6.0-MariaDB":             "",
		"5.5.5-10.6.4-MariaDB-log":   "",
		"11.4.2-MariaDB":             "",
		"10.5.29-MariaDB":            "MariaDB 10.5.29 has no SKIP LOCKED",
		"5.5.5-10.3.39-MariaDB":      "MariaDB 10.3.39 has no SKIP LOCKED",
		"8.0.1-dmr":                  "",
		"8.4.3":                      "",
		"9.1.0-commercial":           "",
		"8.0.0-dmr":                  "MySQL 8.0.0 has no SKIP LOCKED",
		"5.7.44-log":                 "MySQL 5.7.44 has no SKIP LOCKED",
		"PostgreSQL 17":              "neither MySQL's nor MariaDB's",
		"":                           "neither MySQL's nor MariaDB's",
	} {
		err := checkVersion(version)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", version, err, want)
		}
	}
}

// The rights that `outbox ddl --grants` lists suffice, and fewer are refused
// with a word about them.
func TestGrants(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	server := testenv.SharedMariaDB(t)
	db := open(t, server.DSN(), 2)
	execute(t, db, DDL("outbox"))
	fill(t, db, 3)
	const user = "relay_of_test"
	execute(t, db, "CREATE USER "+user+"@'%' IDENTIFIED BY 'geheim'")
	t.Cleanup(func() { execute(t, db, "DROP USER "+user+"@'%'") })
	as := open(t, strings.Replace(server.DSN(), "root@", user+":geheim@", 1), 2)
	s := NewStore("s0", as, "outbox", "test", false)

	err := s.Probe(t.Context())
	if _, final := errors.AsType[*DesignError](err); !final {
		t.Fatalf("without any right: %v", err)
	}
	contains(t, err.Error(), "correct the shard's dsn")
	execute(t, db, "GRANT SELECT ON outbox TO "+user+"@'%'")
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = s.ProbeRights(t.Context(), false)
	if _, final := errors.AsType[*DesignError](err); !final {
		t.Fatalf("with SELECT alone: %v", err)
	}
	contains(t, err.Error(), "projector outbox ddl --grants")

	for _, heartbeat := range []bool{false, true} {
		execute(t, db, Grants("outbox", user, heartbeat)...)
		if err := s.ProbeRights(t.Context(), heartbeat); err != nil {
			t.Fatalf("with what is granted (heartbeat %t): %v", heartbeat, err)
		}
	}
	if err := s.heartbeat(t.Context(), 1_000_000_000); err != nil {
		t.Error(err)
	}
	if _, err := s.claim(t.Context(), 10, testAttempts, 1000, 1); err != nil {
		t.Error(err)
	}
	if _, _, err := s.reap(t.Context(), 1, func(int) time.Duration { return 0 }); err != nil {
		t.Error(err)
	}
	if err := s.Replay(t.Context(), Filter{State: Parked}, 10, 0, func([]uint64) {}); err != nil {
		t.Error(err)
	}
	execute(t, db, "UPDATE outbox SET state = 'sent', due_at = NOW(6) - INTERVAL 1 DAY")
	if n, err := s.purge(t.Context(), 1, 10); err != nil || n != 4 {
		t.Errorf("%d purged, %v", n, err)
	}
	if _, err := as.Exec("DROP TABLE outbox"); err == nil {
		t.Error("the relay's user may drop the table")
	}
}
