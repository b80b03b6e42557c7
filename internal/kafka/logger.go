package kafka

import (
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// quiet is how long a message that was just logged stays silent.
const quiet = 30 * time.Second

// logger gives franz-go's messages to zerolog, one level lower where franz-go
// is more talkative than an operator's log should be: its information (each
// metadata update, each heartbeat's outcome) becomes debug, its debug trace.
//
// A broker that is down makes franz-go repeat the same warning several times a
// second. Of a streak one line each half minute is kept, with the number of
// those left out; messages are constant texts, so the text is the key.
type logger struct {
	log zerolog.Logger

	mu   sync.Mutex
	seen map[string]*streak
}

type streak struct {
	last time.Time
	left int // messages left out since
}

func newLogger(log zerolog.Logger) *logger {
	return &logger{log: log, seen: map[string]*streak{}}
}

// Level tells franz-go what need not even be put together.
func (l *logger) Level() kgo.LogLevel {
	switch level := l.log.GetLevel(); {
	case level <= zerolog.TraceLevel:
		return kgo.LogLevelDebug
	case level <= zerolog.DebugLevel:
		return kgo.LogLevelInfo
	case level <= zerolog.WarnLevel:
		return kgo.LogLevelWarn
	case level <= zerolog.FatalLevel:
		return kgo.LogLevelError
	}
	return kgo.LogLevelNone
}

// Log writes one message with its key and value pairs.
func (l *logger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to, ok := levels[level]
	if !ok {
		return
	}
	if strings.HasPrefix(msg, outOfSession) {
		to = zerolog.DebugLevel
	}
	left := 0
	if to >= zerolog.WarnLevel {
		if left, ok = l.due(msg); !ok {
			return
		}
	}
	e := l.log.WithLevel(to)
	for i := 0; i+1 < len(keyvals); i += 2 {
		key, _ := keyvals[i].(string)
		switch v := keyvals[i+1].(type) {
		case error:
			if key == "err" {
				key = zerolog.ErrorFieldName
			}
			e = e.AnErr(key, v)
		case string:
			e = e.Str(key, v)
		default:
			e = e.Interface(key, v)
		}
	}
	if left > 0 {
		e = e.Int("left_out", left)
	}
	e.Msg("kafka: " + msg)
}

// outOfSession is what franz-go warns of when an offset is committed while partitions are being assigned, as it is at
// the start of a replay. The commit is good, and whoever commits is told its outcome.
const outOfSession = "received an OffsetCommitResponse after our group session has ended"

var levels = map[kgo.LogLevel]zerolog.Level{
	kgo.LogLevelError: zerolog.ErrorLevel,
	kgo.LogLevelWarn:  zerolog.WarnLevel,
	kgo.LogLevelInfo:  zerolog.DebugLevel,
	kgo.LogLevelDebug: zerolog.TraceLevel,
}

// due reports whether msg should be written now, and how many were left out.
func (l *logger) due(msg string) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s := l.seen[msg]
	if s == nil {
		// A few messages carry numbers in their text; they must not collect here.
		if len(l.seen) >= 100 {
			clear(l.seen)
		}
		s = &streak{}
		l.seen[msg] = s
	} else if now.Sub(s.last) < quiet {
		s.left++
		return 0, false
	}
	left, s.left, s.last = s.left, 0, now
	return left, true
}
