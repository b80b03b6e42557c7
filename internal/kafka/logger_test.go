package kafka

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestLoggerLevels(t *testing.T) {
	for _, c := range []struct {
		log  zerolog.Level
		want kgo.LogLevel
	}{
		{zerolog.TraceLevel, kgo.LogLevelDebug},
		{zerolog.DebugLevel, kgo.LogLevelInfo},
		{zerolog.InfoLevel, kgo.LogLevelWarn},
		{zerolog.WarnLevel, kgo.LogLevelWarn},
		{zerolog.ErrorLevel, kgo.LogLevelError},
		{zerolog.Disabled, kgo.LogLevelNone},
	} {
		t.Run(c.log.String(), func(t *testing.T) {
			var out bytes.Buffer
			l := newLogger(zerolog.New(&out).Level(c.log))
			if got := l.Level(); got != c.want {
				t.Errorf("Level() = %v, want %v", got, c.want)
			}
			// Whatever franz-go would write at a level it was told not to stays out.
			for level := l.Level() + 1; level <= kgo.LogLevelDebug; level++ {
				l.Log(level, "too much")
			}
			if out.Len() > 0 {
				t.Errorf("written above the level: %s", out.String())
			}
			if c.want != kgo.LogLevelNone {
				l.Log(l.Level(), "enough")
				if !strings.Contains(out.String(), "kafka: enough") {
					t.Errorf("not written at the level: %q", out.String())
				}
			}
		})
	}
}

func TestLoggerKeepsOneLineOfAStreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newLogger(zerolog.New(&out))
		down := func() {
			l.Log(kgo.LogLevelWarn, "unable to open connection to broker", "addr", "b1:9092", "err", errors.New("refused"))
		}
		for range 10 {
			down()
		}
		l.Log(kgo.LogLevelWarn, "something else")
		time.Sleep(quiet) //nolint:forbidigo // the bubble's clock is fake
		down()
		want := `{"level":"warn","addr":"b1:9092","error":"refused","message":"kafka: unable to open connection to broker"}
{"level":"warn","message":"kafka: something else"}
{"level":"warn","addr":"b1:9092","error":"refused","left_out":9,"message":"kafka: unable to open connection to broker"}
`
		if out.String() != want {
			t.Errorf("got:\n%swant:\n%s", out.String(), want)
		}
	})
}

func TestLoggerForgetsTexts(t *testing.T) {
	l := newLogger(zerolog.Nop().Level(zerolog.WarnLevel))
	for i := range 1000 {
		l.Log(kgo.LogLevelWarn, strings.Repeat("x", i))
	}
	if len(l.seen) > 100 {
		t.Errorf("%d texts are kept", len(l.seen))
	}
}
