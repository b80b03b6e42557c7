package outbox

import (
	"fmt"
	"sync"
	"time"
)

// unreadyAfter is how long trouble may last before a relay is called not ready.
const unreadyAfter = time.Minute

// health is what the probes ask. It is told by the relay's loop.
type health struct {
	mu      sync.Mutex
	limit   time.Duration // of one turn of the loop
	turned  time.Time
	waits   string    // before the first turn that went well: for what
	since   time.Time // of trouble; zero = none
	text    string
	stopped bool
}

func (h *health) start(limit time.Duration) {
	h.limit, h.turned, h.waits = limit, time.Now(), "starting"
}

func (h *health) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *health) turn()             { h.change(func() { h.turned = time.Now() }) }
func (h *health) waiting(err error) { h.change(func() { h.waits = err.Error() }) }
func (h *health) well()             { h.change(func() { h.waits, h.since, h.text = "", time.Time{}, "" }) }
func (h *health) stop()             { h.change(func() { h.stopped = true }) }

func (h *health) trouble(err error) {
	h.change(func() {
		if h.since.IsZero() {
			h.since = time.Now()
		}
		h.text = err.Error()
		if h.waits != "" {
			h.waits = h.text
		}
	})
}

// stuckAfter is longer than any turn of the loop can last: each of its steps
// has a deadline.
func (r *Relay) stuckAfter() time.Duration { return 2 * (r.config.Lease + 2*statementTimeout) }

// Ready says why this shard's events do not get on now.
func (r *Relay) Ready() (reasons []string) {
	r.health.change(func() {
		h := &r.health
		switch {
		case h.waits != "":
			reasons = []string{fmt.Sprintf("shard %s: %s", r.shard, h.waits)}
		case !h.since.IsZero() && time.Since(h.since) > unreadyAfter:
			reasons = []string{fmt.Sprintf("shard %s: nothing published for %s: %s", r.shard, time.Since(h.since).Round(time.Second), h.text)}
		}
	})
	return reasons
}

// Live says why only a restart can help.
func (r *Relay) Live() (reasons []string) {
	r.health.change(func() {
		if h := &r.health; !h.stopped && time.Since(h.turned) > h.limit {
			reasons = []string{fmt.Sprintf("shard %s: the loop has hung for %s", r.shard, time.Since(h.turned).Round(time.Second))}
		}
	})
	return reasons
}
