package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/ClickHouse/ch-go"
	driver "github.com/ClickHouse/clickhouse-go/v2/lib/proto"

	"github.com/chprojector/projector/projector"
)

// Fence is the constraint that keeps a writer of an older generation out.
const Fence = "generation_fence"

// maxMessage bounds the server's message in an error, in bytes. A violated
// constraint quotes the row, which may be of any size.
const maxMessage = 2 << 10

// Classes moves error codes to other classes than the ones built in.
type Classes map[int]projector.Class

// ParseClasses reads Classes from configuration: {"241": "split"}. All
// mistakes are reported at once.
func ParseClasses(from map[string]string) (Classes, error) {
	names := map[string]projector.Class{}
	for c := projector.Unknown; c <= projector.Fatal; c++ {
		names[c.String()] = c
	}
	classes := Classes{}
	var errs []error
	for _, code := range slices.Sorted(maps.Keys(from)) {
		n, err := strconv.Atoi(code)
		if err != nil || n <= 0 {
			errs = append(errs, fmt.Errorf("error code %q: use the number that ClickHouse prints, such as 241", code))
			continue
		}
		class, ok := names[from[code]]
		if !ok {
			errs = append(errs, fmt.Errorf("class %q of error code %d: use one of %s", from[code], n,
				strings.Join(slices.Sorted(maps.Keys(names)), ", ")))
			continue
		}
		classes[n] = class
	}
	return classes, errors.Join(errs...)
}

// login are the codes of a user who is not let in.
var login = []int{192, 193, 194, 195, 516} // UNKNOWN_USER, WRONG_PASSWORD, REQUIRED_PASSWORD, AUTHENTICATION_FAILED, …

// AfterLogin is c for a process that was let in before. When it is not any more, its password is most likely being
// rotated, and server and file will soon agree again: the error is unknown, which is retried for a bounded time, and
// not fatal, as a password is that never fitted.
func (c Classes) AfterLogin() Classes {
	classes := Classes{}
	for _, code := range login {
		classes[code] = projector.Unknown
	}
	maps.Copy(classes, c)
	return classes
}

// insertError gives an error of an insert its class. Errors that name no code
// come from the network or from the protocol.
func (c Classes) insertError(err error) *projector.InsertError {
	if e, ok := errors.AsType[*projector.InsertError](err); ok {
		return e
	}
	code, message, ok := exception(err)
	if !ok {
		return &projector.InsertError{Class: networkClass(err), Err: err}
	}
	return &projector.InsertError{Class: c.class(code, message), Code: code, Message: cut(message, maxMessage), View: failedView(message), Err: err}
}

// Code returns the number of the server's own error in err, 0 if there is none.
func Code(err error) int {
	code, _, _ := exception(err)
	return code
}

// exception is the server's own error, whichever client received it.
func exception(err error) (code int, message string, ok bool) {
	if e, ok := errors.AsType[*ch.Exception](err); ok {
		return int(e.Code), strings.TrimPrefix(e.Message, e.Name+": "), true
	}
	if e, ok := errors.AsType[*driver.Exception](err); ok {
		return int(e.Code), strings.TrimPrefix(e.Message, e.Name+": "), true
	}
	return 0, "", false
}

// pushingToView ends the message of an error in a materialized view. It is
// looked for at the end only, and no quote may follow: a constraint's message
// quotes the row, which may contain any text.
var pushingToView = regexp.MustCompile(`: while pushing to view ([^\s']+?)(?: \([0-9a-f-]+\))?\.?$`)

// targetOfView is what the server says when a view's own table is missing.
var targetOfView = regexp.MustCompile(`^Target table \S+ of view '?([^\s']+)'? doesn't exist`)

// failedView is the materialized view that a message blames, "" if none.
func failedView(message string) string {
	for _, form := range []*regexp.Regexp{pushingToView, targetOfView} {
		if m := form.FindStringSubmatch(message); m != nil {
			return m[1]
		}
	}
	return ""
}

// class decides what an error of the server asks for. Messages are those of
// ClickHouse 26.7; the tests provoke them on a real server.
func (c Classes) class(code int, message string) projector.Class {
	// Rows that the fence keeps out would otherwise be taken for bad data, and
	// a writer that must stop would park a whole topic.
	if code == 469 && strings.HasPrefix(message, "Constraint `"+Fence+"` ") {
		return projector.Fatal
	}
	class, ok := c[code]
	if !ok {
		class = builtin(code, message)
	}
	// A view that fails is not the rows' fault, whatever the code says: they
	// are good for the table. Reading the table's schema again does not help
	// either. A person must repair the view or drop it.
	if (class == projector.Rejected || class == projector.Refresh) && failedView(message) != "" {
		return projector.Fatal
	}
	return class
}

func builtin(code int, message string) projector.Class {
	switch code {
	case 241: // MEMORY_LIMIT_EXCEEDED
		// What the server has for all passes; what one query may have is too
		// little for this block at any time.
		if strings.HasPrefix(message, "Query memory limit exceeded") {
			return projector.Split
		}
		return projector.Transient
	case 252: // TOO_MANY_PARTS
		// One code, two meanings: merges that lag (waiting helps) and a block
		// with too many partitions (the same block fails for ever).
		if strings.HasPrefix(message, "Too many partitions for single INSERT block") {
			return projector.Split
		}
		return projector.Transient

	case 3, 32, // UNEXPECTED_END_OF_FILE, ATTEMPT_TO_READ_AFTER_EOF: the connection was cut
		23, 24, 74, 75, 76, 77, 87, 88, // files of the server's disk
		95, 96, 209, 210, // sockets, SOCKET_TIMEOUT, NETWORK_ERROR
		102,      // UNEXPECTED_PACKET_FROM_SERVER, between servers
		159, 160, // TIMEOUT_EXCEEDED, TOO_SLOW
		173, 777, 778, // CANNOT_ALLOCATE_MEMORY, MEMORY_RESERVATION_*
		198,           // DNS_ERROR
		201,           // QUOTA_EXCEEDED: renewed with each interval
		202, 203, 745, // TOO_MANY_SIMULTANEOUS_QUERIES, NO_FREE_CONNECTION, SERVER_OVERLOADED
		700, 749, 776, // USER_SESSION_LIMIT_EXCEEDED, TCP_CONNECTION_LIMIT_REACHED, RESOURCE_LIMIT_EXCEEDED
		204, 243, 272, 273, 274, 275, 294, // CANNOT_FSYNC, NOT_ENOUGH_SPACE, disk input and output
		216,                               // QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING
		225, 242, 244, 254, 255, 265, 279, // Keeper and replicas: NO_ZOOKEEPER, TABLE_IS_READ_ONLY, …
		285, 286, 289, 297, 319, 369, // TOO_FEW_LIVE_REPLICAS, quorums, UNKNOWN_STATUS_OF_INSERT
		236, 394, 677, 735, // ABORTED, QUERY_WAS_CANCELLED: by an administrator or a shutdown
		364, 499, 500, 693, 737, 900, 901, // object storage and its caches
		373, 384, 416, 473, // SESSION_IS_LOCKED, PART_IS_TEMPORARILY_LOCKED, REPLICA_STATUS_CHANGED, DEADLOCK_AVOIDED
		410, 425, 439, // EXTERNAL_SERVER_IS_NOT_RESPONDING, SYSTEM_ERROR, CANNOT_SCHEDULE_TASK
		519, 529, 568, 571, 574, 659, // NO_REMOTE_SHARD_AVAILABLE, NOT_A_LEADER, RAFT_ERROR, …
		692,      // TOO_MANY_MUTATIONS
		710, 722, // FAULT_INJECTED, ASYNC_LOAD_WAIT_FAILED: the server is starting
		733,           // TABLE_IS_BEING_RESTARTED
		999, 904, 903: // KEEPER_EXCEPTION, TOO_MANY_UNAVAILABLE_SHARDS, DISTRIBUTED_CACHE_REGISTRY_SHUTDOWN
		return projector.Transient

	case 469, // VIOLATED_CONSTRAINT
		// The columns arrive typed and in range, so that these come from an
		// expression over the row: a constraint, a default, a materialized
		// column, a partition key.
		6, 25, 26, 27, 38, 41, 72, 130, 376, 441, 467, 563, 675, 676, // CANNOT_PARSE_*
		69, 321, 407, // ARGUMENT_OUT_OF_BOUND, VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE, DECIMAL_OVERFLOW
		70, 131, // CANNOT_CONVERT_TYPE by accurateCast, TOO_LARGE_STRING_SIZE by repeat: types are compared before
		19,                 // SIZE_OF_FIXED_STRING_DOESNT_MATCH
		117,                // INCORRECT_DATA
		128, 135, 153, 190, // TOO_LARGE_ARRAY_SIZE, ZERO_ARRAY_OR_TUPLE_INDEX, ILLEGAL_DIVISION, SIZES_OF_ARRAYS_DONT_MATCH
		248,      // INVALID_PARTITION_VALUE
		349,      // CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
		395,      // FUNCTION_THROW_IF_VALUE_IS_NON_ZERO
		691, 760: // UNKNOWN_ELEMENT_OF_ENUM, UNICODE_ERROR
		return projector.Rejected

	case 16, // NO_SUCH_COLUMN_IN_TABLE
		7, 8, 9, 10, 13, 20, // columns that are missing, or too many
		33,               // CANNOT_READ_ALL_DATA: the block was read with other types
		44,               // ILLEGAL_COLUMN: has become MATERIALIZED or an ALIAS
		47,               // UNKNOWN_IDENTIFIER
		50, 53, 122, 772: // UNKNOWN_TYPE, TYPE_MISMATCH, INCOMPATIBLE_COLUMNS, INCOMPATIBLE_SCHEMA
		return projector.Refresh

	case 60, 81, 218, // UNKNOWN_TABLE, UNKNOWN_DATABASE, TABLE_IS_DROPPED
		192, 193, 194, 195, 516, 720, 767, // UNKNOWN_USER, WRONG_PASSWORD, …, AUTHENTICATION_FAILED, USER_EXPIRED
		291, 497, 620, 763, // DATABASE_ACCESS_DENIED, ACCESS_DENIED, QUERY_NOT_ALLOWED, SESSION_REFUSED
		164, 774, // READONLY: the user's profile; TABLE_IS_PERMANENTLY_READ_ONLY
		115, 452, 471, 472, // UNKNOWN_SETTING, SETTING_CONSTRAINT_VIOLATION, INVALID_SETTING_VALUE, READONLY_SETTING
		1, 42, 43, 46, 48, 62, 344, 386, 392, // what the server or its version does not do
		89,  // UNKNOWN_COMPRESSION_METHOD
		217: // CLIENT_HAS_CONNECTED_TO_WRONG_PORT
		return projector.Fatal
	}
	return projector.Unknown
}

// networkClass is the class of an error that the server did not send. Whatever
// cuts a connection is transient; what cannot be explained by it (bytes that
// are no answer, a certificate that is not trusted) is unknown.
func networkClass(err error) projector.Class {
	var network net.Error
	op, _ := errors.AsType[*net.OpError](err)
	switch {
	case op != nil && (op.Op == "remote error" || op.Op == "local error"):
		return projector.Unknown // a TLS alert, which is a net.Error as well
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, net.ErrClosed), errors.Is(err, ch.ErrClosed),
		errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.As(err, &network):
		return projector.Transient
	}
	return projector.Unknown
}

// cut shortens s to at most n bytes without splitting a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
