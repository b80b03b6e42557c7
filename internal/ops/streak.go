package ops

import (
	"time"

	"github.com/rs/zerolog"
)

// repeatAfter is how long a streak stays silent between its lines.
const repeatAfter = 30 * time.Second

// Streak logs trouble that repeats itself: a line when it begins or when its
// text changes, a line each half minute with the count while it lasts, and one
// line when it is over. One goroutine uses it.
type Streak struct {
	log   zerolog.Logger
	what  string
	text  string
	first time.Time
	last  time.Time
	count int
}

// NewStreak makes the streak of one undertaking, such as "reach ClickHouse".
func NewStreak(log zerolog.Logger, what string) *Streak {
	return &Streak{log: log, what: what}
}

// Fail notes one more failure.
func (s *Streak) Fail(err error) {
	now := time.Now()
	if s.count == 0 {
		s.first = now
	}
	s.count++
	if text := err.Error(); text != s.text {
		s.text = text
	} else if now.Sub(s.last) < repeatAfter {
		return
	}
	s.last = now
	s.log.Warn().Err(err).Int("attempts", s.count).Dur("for_ms", now.Sub(s.first)).Msg(s.what + ": trying again")
}

// Succeed ends the streak.
func (s *Streak) Succeed() {
	if s.count > 0 {
		s.log.Info().Int("attempts", s.count).Dur("for_ms", time.Since(s.first)).Msg(s.what + ": done")
	}
	*s = Streak{log: s.log, what: s.what}
}
