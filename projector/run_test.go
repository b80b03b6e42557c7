package projector

import (
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

func TestOutcome(t *testing.T) {
	rejoin, fatal, gone := &rejoinError{errors.New("topic replaced")}, errors.New("no such table"), errors.New("context canceled")
	for name, c := range map[string]struct {
		poll, send, gaveUp error
		want               string // "" = nil, "again" = starts over
	}{
		"drained":                              {},
		"a record that cannot be dealt with":   {poll: fatal, want: "no such table"},
		"a new client is needed":               {poll: rejoin, want: "again"},
		"an insert failed for good":            {send: fatal, want: "no such table"},
		"both: what failed for good counts":    {poll: rejoin, send: fatal, want: "no such table"},
		"failed for good, then stopped hard":   {send: fatal, gaveUp: gone, want: "no such table"},
		"stopped hard":                         {send: gone, gaveUp: gone, want: "5 records are not acknowledged and will be read again (t/1 offsets 10 to 14): stopped at once"},
		"the drain timeout passed":             {send: errDrainTimeout, gaveUp: errDrainTimeout, want: "the drain timeout passed"},
		"settled as the drain timeout passed":  {gaveUp: errDrainTimeout},
		"a new client, and ClickHouse is down": {poll: rejoin, send: errDrainTimeout, gaveUp: errDrainTimeout, want: "again"},
		"a new client, and stopped hard":       {poll: rejoin, send: gone, gaveUp: gone, want: "stopped at once"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lane{ledger: newLedger(nil, nil), log: zerolog.Nop()}
			l.ledger.take(&cut{records: 5, slots: []slot{{topic: "t", partition: 1, first: 10, next: 15}}})
			err := l.outcome(c.poll, c.send, c.gaveUp)
			_, again := errors.AsType[*rejoinError](err)
			switch {
			case c.want == "" && err != nil, c.want == "again" != again:
				t.Errorf("got %v, want %q", err, c.want)
			case c.want != "" && c.want != "again" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
