// Package replay brings dead letters back: it reads a dead-letter topic, maps
// each letter's record anew and inserts what has become a row, with the
// engine's own lane, so that it is divided, retried and committed like any
// other batch, and what fails again is parked again.
//
// docs/decisions/replay.md says why it resumes as it does.
package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

// DefaultMaxReplays is how often a letter is tried before it is left alone: what
// has failed three times needs a person, not a fourth time.
const DefaultMaxReplays = 3

// ErrBusy is a replay of the same letters that another process does now.
var ErrBusy = errors.New("another replay of these letters is running")

// Target is what is replayed where: one projection's letters in one topic.
type Target struct {
	Projection string
	Topic      string // of the letters
	Source     string // the topic that the letters' records came from
	Group      string // the projection's own; that of its replays begins with it
	Plan       *mapping.Plan
	Key        []string // the table's order key
	Version    string   // the version column
	Digest     string   // of the mapping and the table: another one asks for letters that were refused under the one before

	// Strays has letters that name no projection, or one that is not Configured,
	// count as the target's.
	Strays     bool
	Configured []string // the names of all projections
}

// Options are what a person asks for.
type Options struct {
	Selection  deadletter.Selection
	Max        int // letters at most; 0 = all
	Rate       int // rows a second at most; 0 = as fast as it goes
	MaxReplays int // letters that were replayed so often are left; 0 = DefaultMaxReplays
}

// Inserter inserts into the target's table and compares with what it holds.
type Inserter interface {
	projector.Inserter
	Superseded(ctx context.Context, rows *mapping.Rows, from, to int, key []string, version string) ([]bool, error)
}

// Deps is what a Job needs from outside.
type Deps struct {
	Kafka       []kgo.Opt
	Admin       *kafka.Admin
	Letters     *deadletter.Reader
	Parker      projector.DeadLetters
	NewInserter func() (Inserter, error)
	Engine      projector.Config // how lanes work; a replay adapts it
	Log         zerolog.Logger
	Clock       func() time.Time // time.Now if nil
}

// Job replays the letters of one target. New makes one; it connects to nothing.
type Job struct {
	target   Target
	options  Options
	deps     Deps
	identity string
}

// New makes a job.
func New(target Target, options Options, deps Deps) *Job {
	if options.MaxReplays == 0 {
		options.MaxReplays = DefaultMaxReplays
	}
	if deps.Clock == nil {
		deps.Clock = time.Now
	}
	return &Job{target: target, options: options, deps: deps, identity: identity(&target, &options)}
}

// Group is the consumer group of all replays of the target, and so the lock
// that lets one of them run at a time.
func (j *Job) Group() string { return j.target.Group + ".replay." + j.target.Topic }

// Result is what became of the letters of a plan.
type Result struct {
	Stored  int                // rows acknowledged
	Failed  []deadletter.Group // letters that failed again and were parked again
	Ignored int                // letters whose record the configuration ignores by now
	Expired int                // letters that left their topic after the plan was made
}

// FailedLetters is the number of letters in Failed.
func (r *Result) FailedLetters() (n int) {
	for i := range r.Failed {
		n += r.Failed[i].Count
	}
	return n
}

// busy returns an error if a member holds the group.
func (j *Job) busy(ctx context.Context) error {
	members, err := j.deps.Admin.Members(ctx, j.Group())
	if err != nil || len(members) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s; wait for it, or stop it", ErrBusy, strings.Join(members, ", "))
}

// AwaitTurn waits until no other replay holds the group. One that was killed
// holds it until its session times out, after ten seconds at most. The error wraps ErrBusy.
func (j *Job) AwaitTurn(ctx context.Context) error {
	patience := time.NewTimer(sessionTimeout(j.deps.Engine) + 2*time.Second)
	defer patience.Stop()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for told := false; ; {
		err := j.busy(ctx)
		if !errors.Is(err, ErrBusy) {
			return err
		}
		if !told {
			told = true
			j.deps.Log.Warn().Err(err).Msg("waiting in case it was killed")
		}
		select {
		case <-tick.C:
		case <-patience.C:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sessionTimeout is how long a replay that was killed holds the group. A long
// one would make the second attempt at 2 a.m. wait for nothing.
func sessionTimeout(c projector.Config) time.Duration { return min(c.SessionTimeout, 10*time.Second) }

// MaxReplays is how often a letter is tried.
func (j *Job) MaxReplays() int { return j.options.MaxReplays }
