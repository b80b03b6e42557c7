package projector

import (
	"context"
	"errors"
	"fmt"
)

// Class is what an error of an insert asks for. The adapter that talks to the database decides it; the engine acts on
// it.
type Class uint8

const (
	// Unknown is an error nobody has classified: the same rows again, with backoff, and fatal once it has lasted for
	// Config.UnknownLimit. It is the class of every error that is no *InsertError.
	Unknown Class = iota
	// Transient is trouble that passes: the network, overload, a replica that lags. The same rows with the same token
	// again, for ever. It never makes a dead letter.
	Transient
	// Rejected is a value or a constraint: at least one of the rows can never be inserted. The rows are divided until
	// the single bad ones are found.
	Rejected
	// Split is a block that is too large in some respect, although each row is good: the rows are divided.
	Split
	// Refresh is a table that looks different from what the plan expects: the schema is read again, once, and the
	// insert repeated.
	Refresh
	// Fatal is a mistake that a person must correct: no table, no access, a fence. The engine stops with nothing
	// parked and nothing committed.
	Fatal
)

var classNames = [...]string{"unknown", "transient", "rejected", "split", "refresh", "fatal"}

// String returns the name used in logs and as a metric label.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// InsertError is what an Inserter returns for an error it understands.
type InsertError struct {
	Class   Class
	Code    int    // the server's error code, 0 if it sent none
	Message string // the server's message
	View    string // the materialized view on the table that failed, "" if the table itself refused
	Err     error  // what the driver returned, may be nil
}

// Error returns the class, the code, the view and the message.
func (e *InsertError) Error() string {
	msg := e.Message
	if msg == "" && e.Err != nil {
		msg = e.Err.Error()
	}
	what := e.Class.String() + " error"
	if e.Code != 0 {
		what += fmt.Sprintf(" %d", e.Code)
	}
	if e.View != "" {
		what += " in the view " + e.View
	}
	return what + ": " + msg
}

// Unwrap returns what the driver returned.
func (e *InsertError) Unwrap() error { return e.Err }

// classify returns what err asks for. A deadline is an attempt without an answer, which is the commonest transient
// fault there is, whether or not the adapter wrapped it.
func classify(err error) Class {
	if ie, ok := errors.AsType[*InsertError](err); ok {
		return ie.Class
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Transient
	}
	return Unknown
}

// ErrRecordGone is returned by a Records when the record no longer exists, because retention removed it.
var ErrRecordGone = errors.New("the record is no longer in the topic")

// ErrShared ends a bounded projection whose group has another member: two would each do a part of one's work.
var ErrShared = errors.New("another member has joined the group")

// Causes for which a lane's work ends before it is done.
var (
	errDrainTimeout = errors.New("the drain timeout passed")
	errHardStop     = errors.New("stopped at once")
)

// rejoinError is trouble in Kafka that franz-go does not get over by itself: only a new client reads the affected
// partitions again. The lane drains and starts over.
type rejoinError struct{ err error }

func (e *rejoinError) Error() string { return e.err.Error() }
func (e *rejoinError) Unwrap() error { return e.err }
