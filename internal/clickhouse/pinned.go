package clickhouse

import "strings"

// fixed are the settings of every insert that make it what the consumer relies
// on: one synchronous block, answered when it is written, with its rows as they
// are.
//
// async_insert is on by default since 26.3; an asynchronous insert would be
// answered before the rows are checked, or merged with those of other clients.
// optimize_on_insert would collapse rows with equal keys inside the block, and
// with them the trace of two events that claim the same version.
// timeout_overflow_mode = break would let an insert that takes longer than
// max_execution_time be answered as a success, with none of its rows stored.
var fixed = map[string]string{
	"async_insert":          "0",
	"optimize_on_insert":    "0",
	"timeout_overflow_mode": "throw",
}

// whole are settings of every question that make an answer complete or an
// error. Where a profile says break or any, a server that has reached one of
// the profile's limits ends the query with what it has so far, which may be
// nothing, and calls it a success: a comparison would find no difference.
//
// The others take rows away or add some without a word: a limit or a filter of
// the profile, the extremes, which the driver hands out as rows, a join that
// keeps one row of several. With use_query_cache a server refuses most questions.
// aggregate_functions_null_for_empty would be built into the views.
var whole = map[string]string{
	"timeout_overflow_mode":  "throw",
	"read_overflow_mode":     "throw",
	"result_overflow_mode":   "throw",
	"group_by_overflow_mode": "throw",
	"sort_overflow_mode":     "throw",
	"distinct_overflow_mode": "throw",
	"set_overflow_mode":      "throw",
	"join_overflow_mode":     "throw",
	"transfer_overflow_mode": "throw",

	"limit":                              "0",
	"offset":                             "0",
	"additional_result_filter":           "",
	"additional_table_filters":           "{}",
	"extremes":                           "0",
	"join_default_strictness":            "ALL",
	"use_query_cache":                    "0",
	"aggregate_functions_null_for_empty": "0",
}

// dedupToken names the setting that lets the server recognise a repeated block.
const dedupToken = "insert_deduplication_token"

// Pinned reports whether a setting has one value whatever the user's profile
// says, so that nobody may configure another, and why.
func Pinned(setting string) (why string, ok bool) {
	switch setting {
	case "async_insert":
		return "an insert must be acknowledged only when it is stored", true
	case "wait_for_async_insert":
		return "inserts are synchronous", true
	case "optimize_on_insert":
		return "collapsing a block would hide same-version conflicts", true
	case dedupToken, "insert_deduplicate":
		return "each batch carries its own token", true
	}
	if _, ok := whole[setting]; !ok {
		return "", false
	}
	if strings.HasSuffix(setting, "_overflow_mode") {
		return "an insert or an answer that is cut short must not look like a whole one", true
	}
	return "a comparison must be answered with the table's own rows, and all of them", true
}
