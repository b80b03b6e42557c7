package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/contact"
)

// Exit codes. Users script against them.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2   // usage or configuration
	exitNo     = 3   // ran to the end and the answer is no
	exitMoving = 4   // inconclusive: the source kept moving
	exitForced = 130 // by a second signal
)

// usageError is a mistake on the command line.
type usageError struct {
	err     error
	command string // whose help tells more, "" = none
}

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// askClickHouse adds who was asked, which the driver does not say once it is connected.
func askClickHouse(cfg *config.Config, err error) error {
	if contact.Is(err) {
		return err
	}
	return fmt.Errorf("ask ClickHouse at %s: %w", strings.Join(cfg.ClickHouse.Addresses, ", "), err)
}

// answerNo is the answer of a command that ran to its end: drift, a dead
// letter. What it found is on stdout; the sentence is for stderr.
type answerNo struct{ sentence string }

func (n answerNo) Error() string { return n.sentence }

// inconclusive is the answer of a command that could not come to one.
type inconclusive struct{ sentence string }

func (i inconclusive) Error() string { return i.sentence }

func exitCode(err error) int {
	_, usage := errors.AsType[usageError](err)
	_, problems := errors.AsType[config.Problems](err)
	_, no := errors.AsType[answerNo](err)
	_, moving := errors.AsType[inconclusive](err)
	switch {
	case err == nil:
		return exitDone
	case usage, problems:
		return exitUsage
	case no:
		return exitNo
	case moving:
		return exitMoving
	}
	return exitFailed
}

// report tells a person what went wrong, in as few lines as that takes.
func report(w io.Writer, err error) {
	if _, logged := errors.AsType[loggedError](err); err == nil || logged {
		return
	}
	if problems, ok := errors.AsType[config.Problems](err); ok {
		fmt.Fprintf(w, "projector: the configuration has %s:\n", count(len(problems), "problem"))
		for _, p := range problems {
			fmt.Fprintf(w, "  %s\n", p)
		}
		return
	}
	fmt.Fprintf(w, "projector: %v\n", err)
	if usage, ok := errors.AsType[usageError](err); ok && usage.command != "" {
		fmt.Fprintf(w, "Run \"%s --help\" for more.\n", usage.command)
	}
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
