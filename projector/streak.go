package projector

import (
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// streakReminder is how long the same trouble stays silent in the log between two lines.
const streakReminder = 5 * time.Minute

// streak turns repeated trouble of one kind into a few log lines: one when it begins, one now and then while it goes
// on, and one when it is over. It belongs to one goroutine; only since may be asked by others.
type streak struct {
	what  string // completes "cannot …"
	log   *zerolog.Logger
	clock func() time.Time

	began    atomic.Int64 // Unix nanoseconds, 0 while there is no trouble
	failures int
	latest   time.Time
	logged   time.Time
}

// fail notes one more failure.
func (s *streak) fail(err error) {
	now := s.clock()
	s.failures++
	s.latest = now
	switch began := s.began.Load(); {
	case began == 0:
		s.began.Store(now.UnixNano())
		s.log.Warn().Err(err).Msgf("cannot %s: trying again until it works", s.what)
		s.logged = now
	case now.Sub(s.logged) >= streakReminder:
		s.log.Warn().Err(err).Int("attempts", s.failures).Dur("for_ms", now.Sub(time.Unix(0, began))).Msgf("still cannot %s", s.what)
		s.logged = now
	}
}

// over ends the trouble, if there was any.
func (s *streak) over() {
	began := s.began.Load()
	if began == 0 {
		return
	}
	s.log.Info().Int("attempts", s.failures).Dur("for_ms", s.clock().Sub(time.Unix(0, began))).Msgf("can %s again", s.what)
	s.failures = 0
	s.began.Store(0)
}

// quiet ends the trouble if the last failure was longer ago than for: some trouble has no success of its own.
func (s *streak) quiet(now time.Time, since time.Duration) {
	if s.began.Load() != 0 && now.Sub(s.latest) >= since {
		s.over()
	}
}

// since returns when the trouble began, or the zero time.
func (s *streak) since() time.Time {
	if began := s.began.Load(); began != 0 {
		return time.Unix(0, began)
	}
	return time.Time{}
}
