package clickhouse

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/ClickHouse/ch-go"
	chproto "github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"

	"github.com/chprojector/projector/projector"
)

// TestClassOfEveryCode holds the built-in table against the names of the codes,
// so that a digit in the wrong place is noticed: each name tells its class.
func TestClassOfEveryCode(t *testing.T) {
	want := map[projector.Class][]string{
		projector.Transient: {
			"TOO_MANY_PARTS", "UNEXPECTED_END_OF_FILE", "ATTEMPT_TO_READ_AFTER_EOF", "CANNOT_READ_FROM_ISTREAM", "CANNOT_WRITE_TO_OSTREAM",
			"CANNOT_READ_FROM_FILE_DESCRIPTOR", "CANNOT_WRITE_TO_FILE_DESCRIPTOR", "CANNOT_OPEN_FILE", "CANNOT_CLOSE_FILE",
			"CANNOT_SEEK_THROUGH_FILE", "CANNOT_TRUNCATE_FILE", "CANNOT_READ_FROM_SOCKET", "CANNOT_WRITE_TO_SOCKET", "SOCKET_TIMEOUT",
			"NETWORK_ERROR", "UNEXPECTED_PACKET_FROM_SERVER", "TIMEOUT_EXCEEDED", "TOO_SLOW", "CANNOT_ALLOCATE_MEMORY",
			"MEMORY_LIMIT_EXCEEDED", "DNS_ERROR", "QUOTA_EXCEEDED", "TOO_MANY_SIMULTANEOUS_QUERIES", "NO_FREE_CONNECTION",
			"CANNOT_FSYNC", "NOT_ENOUGH_SPACE", "CANNOT_IO_SUBMIT", "CANNOT_IO_GETEVENTS", "AIO_READ_ERROR", "AIO_WRITE_ERROR",
			"CANNOT_WRITE_TO_FILE", "QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING", "NO_ZOOKEEPER", "TABLE_IS_READ_ONLY",
			"UNEXPECTED_ZOOKEEPER_ERROR", "NO_ACTIVE_REPLICAS", "TOO_MANY_RETRIES_TO_FETCH_PARTS", "NO_AVAILABLE_REPLICA",
			"ALL_CONNECTION_TRIES_FAILED", "TOO_FEW_LIVE_REPLICAS", "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE",
			"REPLICA_IS_NOT_IN_QUORUM", "SHARD_HAS_NO_CONNECTIONS", "UNKNOWN_STATUS_OF_INSERT", "ALL_REPLICAS_ARE_STALE", "ABORTED",
			"QUERY_WAS_CANCELLED", "THREAD_WAS_CANCELED", "QUERY_WAS_CANCELLED_BY_CLIENT", "RECEIVED_ERROR_TOO_MANY_REQUESTS",
			"S3_ERROR", "AZURE_BLOB_STORAGE_ERROR", "AWS_ERROR", "GOOGLE_CLOUD_ERROR", "DISTRIBUTED_CACHE_ERROR",
			"CANNOT_USE_DISTRIBUTED_CACHE", "SESSION_IS_LOCKED", "PART_IS_TEMPORARILY_LOCKED", "REPLICA_STATUS_CHANGED",
			"DEADLOCK_AVOIDED", "EXTERNAL_SERVER_IS_NOT_RESPONDING", "SYSTEM_ERROR", "CANNOT_SCHEDULE_TASK",
			"NO_REMOTE_SHARD_AVAILABLE", "NOT_A_LEADER", "RAFT_ERROR", "DATABASE_REPLICATION_FAILED",
			"DISTRIBUTED_TOO_MANY_PENDING_BYTES", "UNKNOWN_STATUS_OF_TRANSACTION", "TOO_MANY_MUTATIONS", "FAULT_INJECTED",
			"ASYNC_LOAD_WAIT_FAILED", "TABLE_IS_BEING_RESTARTED", "SERVER_OVERLOADED", "USER_SESSION_LIMIT_EXCEEDED",
			"TCP_CONNECTION_LIMIT_REACHED", "RESOURCE_LIMIT_EXCEEDED", "MEMORY_RESERVATION_KILLED", "MEMORY_RESERVATION_FAILED",
			"KEEPER_EXCEPTION", "TOO_MANY_UNAVAILABLE_SHARDS", "DISTRIBUTED_CACHE_REGISTRY_SHUTDOWN",
		},
		projector.Rejected: {
			"VIOLATED_CONSTRAINT", "CANNOT_PARSE_TEXT", "CANNOT_PARSE_ESCAPE_SEQUENCE", "CANNOT_PARSE_QUOTED_STRING",
			"CANNOT_PARSE_INPUT_ASSERTION_FAILED", "CANNOT_PARSE_DATE", "CANNOT_PARSE_DATETIME", "CANNOT_PARSE_NUMBER",
			"CANNOT_READ_ARRAY_FROM_TEXT", "CANNOT_PARSE_UUID", "CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING", "CANNOT_PARSE_BOOL",
			"CANNOT_READ_MAP_FROM_TEXT", "CANNOT_PARSE_IPV4", "CANNOT_PARSE_IPV6", "ARGUMENT_OUT_OF_BOUND",
			"VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "DECIMAL_OVERFLOW", "SIZE_OF_FIXED_STRING_DOESNT_MATCH", "INCORRECT_DATA",
			"TOO_LARGE_ARRAY_SIZE", "ZERO_ARRAY_OR_TUPLE_INDEX", "ILLEGAL_DIVISION", "SIZES_OF_ARRAYS_DONT_MATCH",
			"INVALID_PARTITION_VALUE", "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO",
			"UNKNOWN_ELEMENT_OF_ENUM", "UNICODE_ERROR", "CANNOT_CONVERT_TYPE", "TOO_LARGE_STRING_SIZE",
		},
		projector.Refresh: {
			"NO_SUCH_COLUMN_IN_TABLE", "INCORRECT_NUMBER_OF_COLUMNS", "THERE_IS_NO_COLUMN", "SIZES_OF_COLUMNS_DOESNT_MATCH",
			"NOT_FOUND_COLUMN_IN_BLOCK", "SIZES_OF_COLUMNS_IN_TUPLE_DOESNT_MATCH", "NUMBER_OF_COLUMNS_DOESNT_MATCH",
			"CANNOT_READ_ALL_DATA", "ILLEGAL_COLUMN", "UNKNOWN_IDENTIFIER", "UNKNOWN_TYPE", "TYPE_MISMATCH",
			"INCOMPATIBLE_COLUMNS", "INCOMPATIBLE_SCHEMA",
		},
		projector.Fatal: {
			"UNKNOWN_TABLE", "UNKNOWN_DATABASE", "TABLE_IS_DROPPED", "UNKNOWN_USER", "WRONG_PASSWORD", "REQUIRED_PASSWORD",
			"IP_ADDRESS_NOT_ALLOWED", "AUTHENTICATION_FAILED", "USER_EXPIRED", "REQUIRED_SECOND_FACTOR", "DATABASE_ACCESS_DENIED",
			"ACCESS_DENIED", "QUERY_NOT_ALLOWED", "SESSION_REFUSED", "READONLY", "TABLE_IS_PERMANENTLY_READ_ONLY", "UNKNOWN_SETTING",
			"SETTING_CONSTRAINT_VIOLATION", "INVALID_SETTING_VALUE", "READONLY_SETTING", "UNSUPPORTED_METHOD",
			"NUMBER_OF_ARGUMENTS_DOESNT_MATCH", "ILLEGAL_TYPE_OF_ARGUMENT", "UNKNOWN_FUNCTION", "NOT_IMPLEMENTED", "SYNTAX_ERROR",
			"SUPPORT_IS_DISABLED", "NO_COMMON_TYPE", "QUERY_IS_PROHIBITED", "UNKNOWN_COMPRESSION_METHOD",
			"CLIENT_HAS_CONNECTED_TO_WRONG_PORT",
		},
	}
	class := map[string]projector.Class{}
	for c, names := range want {
		for _, name := range names {
			class[name] = c
		}
	}
	names := codeNames(t)
	for code, name := range names {
		if got := Classes(nil).class(code, "any message"); got != class[name] {
			t.Errorf("%d %s is %s, want %s", code, name, got, class[name])
		}
		delete(class, name)
	}
	for name := range class {
		t.Errorf("%s is no error of the server", name)
	}
}

// TestClassByMessage: messages of ClickHouse 26.7.
func TestClassByMessage(t *testing.T) {
	const (
		partitions = "Too many partitions for single INSERT block (more than 100). The limit is controlled by 'max_partitions_per_insert_block' setting."
		merges     = "Too many parts (300 with average size of 324.00 B) in table 'r.t (2bf87b01-70ea-4754-a789-8ad97b4dc999)'. Merges are processing significantly slower than inserts"
		fence      = "Constraint `generation_fence` for table r.t (a07b4a34-c040-41ed-9629-f75ed214bcd7) is violated at row 1. Expression: (_generation >= 2). Column values: _generation = 1."
		quoted     = "Constraint `short` for table r.t (a07b4a34-c040-41ed-9629-f75ed214bcd7) is violated at row 1. Expression: (length(s) < 5). Column values: s = '%s'."
		view       = ": while pushing to view r.mv (2bf87b01-70ea-4754-a789-8ad97b4dc999)."
	)
	for _, c := range []struct {
		name    string
		code    int
		message string
		want    projector.Class
	}{
		{"merge pressure", 252, merges, projector.Transient},
		{"merge pressure behind a view", 252, merges + view, projector.Transient},
		{"partitions of a block", 252, partitions, projector.Split},
		{"partitions of a block behind a view", 252, partitions + view, projector.Split},
		{"memory of the server", 241, "(total) memory limit exceeded: would use 1.00 GiB", projector.Transient},
		{"memory of one query", 241, "Query memory limit exceeded: would use 3.17 MiB (attempt to allocate chunk of 1.00 MiB), maximum: 2.86 MiB.", projector.Split},
		{"fence", 469, fence, projector.Fatal},
		{"other constraint", 469, fmt.Sprintf(quoted, "x"), projector.Rejected},
		{"row that quotes the fence", 469, fmt.Sprintf(quoted, "Constraint `generation_fence` for table"), projector.Rejected},
		{"row that quotes a view", 469, fmt.Sprintf(quoted, "x"+view), projector.Rejected},
		{"constraint behind a view", 469, strings.TrimSuffix(fmt.Sprintf(quoted, "x"), ".") + view, projector.Fatal},
		{"value behind a view", 395, "Value passed to 'throwIf' function is non-zero: while executing 'FUNCTION throwIf(equals(a, 7))': while pushing to view r.mv.", projector.Fatal},
		{"column behind a view", 16, "No such column b in table r.target" + view, projector.Fatal},
		{"network behind a view", 210, "Connection refused" + view, projector.Transient},
		{"unknown code behind a view", 12345, "new" + view, projector.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Classes(nil).class(c.code, c.message); got != c.want {
				t.Errorf("class %s, want %s", got, c.want)
			}
		})
	}
}

// FuzzClass: a message quotes rows, and so may contain anything. Whatever it is, no panic, a class that exists, and no
// row is blamed for what a view did.
func FuzzClass(f *testing.F) {
	for code, message := range map[int]string{
		252: "Too many partitions for single INSERT block (more than 100)", 469: "Constraint `generation_fence` for table r.t",
		395: "Value passed to 'throwIf' function is non-zero: while pushing to view r.mv (2bf87b01-70ea-4754-a789-8ad97b4dc999).",
		60:  "Target table r.target of view r.mv doesn't exist", 241: "Query memory limit exceeded", -1: ": while pushing to view \xff", 12345: "",
	} {
		f.Add(code, message)
	}
	f.Fuzz(func(t *testing.T, code int, message string) {
		class := Classes(nil).class(code, message)
		if class > projector.Fatal {
			t.Errorf("class %s", class)
		}
		if view := failedView(message); view != "" && (class == projector.Rejected || class == projector.Refresh || strings.ContainsAny(view, " \n")) {
			t.Errorf("%q fails in view %q and is %s", message, view, class)
		}
	})
}

func TestFailedView(t *testing.T) {
	for message, want := range map[string]string{
		"Bad: while pushing to view r.mv (2bf87b01-70ea-4754-a789-8ad97b4dc999).":        "r.mv",
		"Bad: while pushing to view r.mv (2bf87b01-70ea-4754-a789-8ad97b4dc999)":         "r.mv",
		"Bad: while pushing to view r.mv.":                                               "r.mv",
		"Bad: while pushing to view r.b: while pushing to view r.a (2bf87b01-70ea-4754)": "r.a",
		"Target table r.target of view r.mv doesn't exist":                               "r.mv",
		"Column values: s = 'x: while pushing to view r.mv'.":                            "",
		"Table r.t does not exist":                                                       "",
	} {
		if got := failedView(message); got != want {
			t.Errorf("%q: view %q, want %q", message, got, want)
		}
	}
}

func TestConfiguredClasses(t *testing.T) {
	classes, err := ParseClasses(map[string]string{"241": "split", "12345": "fatal", "469": "rejected", "60": "transient", "6": "unknown"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		code    int
		message string
		want    projector.Class
	}{
		{"moved", 241, "", projector.Split},
		{"named", 12345, "", projector.Fatal},
		{"from fatal", 60, "", projector.Transient},
		{"to unknown", 6, "", projector.Unknown},
		{"not named", 159, "", projector.Transient},
		{"the fence stays", 469, "Constraint `generation_fence` for table r.t is violated", projector.Fatal},
		{"a view's fault stays one", 469, "Constraint `a` for table r.t is violated: while pushing to view r.mv", projector.Fatal},
	} {
		if got := classes.class(c.code, c.message); got != c.want {
			t.Errorf("%s: class %s, want %s", c.name, got, c.want)
		}
	}
	_, err = ParseClasses(map[string]string{"many": "fatal", "241": "splitted", "-1": "fatal"})
	for _, want := range []string{
		`error code "many": use the number`, `error code "-1": use the number`,
		`class "splitted" of error code 241: use one of fatal, refresh, rejected, split, transient, unknown`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseClasses: %v, want %q", err, want)
		}
	}
}

func TestInsertErrorOfBothDrivers(t *testing.T) {
	for name, err := range map[string]error{
		"ch-go":         fmt.Errorf("handle packet: %w", &ch.Exception{Code: chproto.ErrTooManySimultaneousQueries, Name: "DB::Exception", Message: "DB::Exception: Too many. (X)"}),
		"clickhouse-go": fmt.Errorf("exec: %w", &proto.Exception{Code: 202, Name: "DB::Exception", Message: "Too many. (X)"}),
	} {
		got := Classes(nil).insertError(err)
		if got.Class != projector.Transient || got.Code != 202 || got.Message != "Too many. (X)" || !errors.Is(got, err) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestInsertErrorBoundsTheMessage(t *testing.T) {
	got := Classes(nil).insertError(&ch.Exception{Code: 469, Name: "DB::Exception", Message: strings.Repeat("é", 1<<20)})
	if len(got.Message) > maxMessage+len("…") || !utf8.ValidString(got.Message) {
		t.Errorf("message of %d bytes, valid %v", len(got.Message), utf8.ValidString(got.Message))
	}
}

func TestNetworkClass(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want projector.Class
	}{
		{"deadline", context.DeadlineExceeded, projector.Transient},
		{"refused", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, projector.Transient},
		{"name not found", &net.DNSError{Name: "ch-1", IsNotFound: true}, projector.Transient},
		{"cut", io.ErrUnexpectedEOF, projector.Transient},
		{"reset", syscall.ECONNRESET, projector.Transient},
		{"closed", net.ErrClosed, projector.Transient},
		{"certificate", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, projector.Unknown},
		{"refused by the server's TLS", &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}, projector.Unknown},
		{"no TLS there", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, projector.Unknown},
		{"no ClickHouse there", errors.New("bad server packet type 72"), projector.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := networkClass(fmt.Errorf("wrapped: %w", c.err)); got != c.want {
				t.Errorf("class %s, want %s", got, c.want)
			}
		})
	}
}
