package outbox

import "time"

// HeartbeatType is the aggregate type of heartbeats.
const HeartbeatType = "projector.heartbeat"

// Config is how a relay works. The zero value of no field but StrictOrder and
// Heartbeat is useful; internal/config has the defaults.
type Config struct {
	Table  string            // in the shard's database
	Topics map[string]string // topic by aggregate type

	Batch          int           // events in one claim
	Lease          time.Duration // how long a claim holds, by the shard's clock
	PublishTimeout time.Duration // from the claim to the last acknowledgement; well below Lease
	Attempts       int           // after so many an event that the broker refuses is parked
	BackoffMin     time.Duration // before the second attempt, at most
	BackoffMax     time.Duration // before any further one, at most
	Poll           time.Duration // pause after a claim that left nothing behind
	Retention      time.Duration // how long sent and superseded events stay
	PurgeBatch     int           // rows that one DELETE removes
	StrictOrder    bool          // no event before every older version of its aggregate was sent

	Heartbeat Heartbeat
}

// Heartbeat is an event that the relay itself writes into each shard's outbox,
// so that somebody at the other end can tell how old what he sees is.
type Heartbeat struct {
	Interval time.Duration // whole seconds; 0 = none
	Topic    string
}

// topic is where events of a type go.
func (c *Config) topic(aggregateType string) (string, bool) {
	if aggregateType == HeartbeatType && c.Heartbeat.Interval > 0 {
		return c.Heartbeat.Topic, true
	}
	topic, ok := c.Topics[aggregateType]
	return topic, ok
}
