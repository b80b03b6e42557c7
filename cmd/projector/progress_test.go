package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/chprojector/projector/internal/backfill"
)

// TestProgressWhileAServerIsSilent holds that whoever watches a backfill without
// a terminal reads a line every ten seconds, all the more while nothing moves.
func TestProgressWhileAServerIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := newProgress(t.Context(), io.Discard, zerolog.New(&log), nil, []string{"7", "8"})
		p.report(backfill.Progress{Campaign: "7", Counts: backfill.Counts{Rows: 100}})
		time.Sleep(2*progressLine + time.Second) //nolint:forbidigo // the bubble's clock is fake
		p.close()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], `"rows":100`) || !strings.Contains(lines[0], `"message":"reading"`) || !strings.Contains(lines[1], "nothing new since the last line") {
			t.Errorf("logged\n%s", &log)
		}
	})
}
