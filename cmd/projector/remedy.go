package main

import (
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/chprojector/projector/internal/clickhouse"
	"github.com/chprojector/projector/projector"
)

// remedied adds what an operator can do about an error that ends the process.
// The servers' own messages say what happened, seldom what to do.
func remedied(err error) error {
	if isCured(err) {
		return err
	}
	refused, ok := errors.AsType[*projector.InsertError](err)
	if !ok || refused.Class != projector.Fatal {
		return err
	}
	if refused.View != "" { // whatever the code, which is then about the view
		return curedError{fmt.Errorf("%w; repair or drop the materialized view %s: the rows themselves are good, and are inserted again", err, refused.View)}
	}
	if remedy, ok := remedies[refused.Code]; ok {
		return curedError{fmt.Errorf("%w; %s", err, remedy)}
	}
	return err
}

// admitted adds what to do when ClickHouse or a shard does not let the user in
// or do something, or a shard has its table locked. Other codes say something else in a command than in an insert.
func admitted(err error) error {
	if isCured(err) {
		return err
	}
	switch remedy := remedies[clickhouse.Code(err)]; remedy {
	case credentials, rights:
		return curedError{fmt.Errorf("%w; %s", err, remedy)}
	}
	if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && shardRemedies[refused.Number] != "" {
		return curedError{fmt.Errorf("%w; %s", err, shardRemedies[refused.Number])}
	}
	return err
}

// curedError has its remedy. A question adds it for whoever shows the error, and
// every command adds it at its end, where it may be there already.
type curedError struct{ error }

func (e curedError) Unwrap() error { return e.error }

func isCured(err error) bool {
	_, ok := errors.AsType[curedError](err)
	return ok
}

// remedies are by ClickHouse's error code.
var remedies = map[int]string{
	60:  "the table is gone: `projector schema apply` creates it anew, then restore or backfill its rows",
	81:  "the database is gone: `projector schema apply` creates it anew, then restore or backfill its rows",
	218: "the table is gone: `projector schema apply` creates it anew, then restore or backfill its rows",
	164: "the user may only read: correct its profile, or clickhouse.username",
	192: credentials, 193: credentials, 194: credentials, 195: credentials, 516: credentials,
	291: rights, 497: rights,
	115: "correct clickhouse.settings",
	452: "the profile of clickhouse.username must admit async_insert=0, optimize_on_insert=0, max_partitions_per_insert_block=500 (or what clickhouse.settings says) and clickhouse.settings",
	469: "a newer generation has taken over: stop this deployment, or raise projections[…].generation",
	472: "correct clickhouse.settings",
}

// shardRemedies are by MySQL's error number. The relay has its own.
var shardRemedies = map[uint16]string{
	1044: shardAddress, 1045: shardAddress, 1049: shardAddress, 1698: shardAddress,
	1130: "let the user of the shard's dsn connect from this machine",
	1142: shardRights, 1143: shardRights,
	1205: shardLocked,
}

const (
	shardAddress = "correct the shard's dsn or dsn_file in source.shards"
	shardLocked  = "an ALTER TABLE, LOCK TABLES or transaction holds a table of the query, as SHOW PROCESSLIST there tells: try again when it has ended"
	shardRights  = "the user of the shard's dsn needs SELECT on what the queries of source.projections read"
)

const (
	credentials = "correct clickhouse.username and clickhouse.password_file"
	rights      = "grant what `projector schema print --grants` lists"
)
