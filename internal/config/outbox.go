package config

import (
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/chprojector/projector/internal/outbox"
)

// Outbox is the transactional outbox of the source's shards, for `relay`. It is
// optional.
type Outbox struct {
	Table          string            `koanf:"table"`
	Topics         map[string]string `koanf:"topics"` // by aggregate type
	Batch          int               `koanf:"batch"`
	Lease          Duration          `koanf:"lease"`
	PublishTimeout Duration          `koanf:"publish_timeout"`
	Attempts       int               `koanf:"attempts"`
	Backoff        Backoff           `koanf:"backoff"`
	Poll           Duration          `koanf:"poll"`
	Retention      Duration          `koanf:"retention"`
	PurgeBatch     int               `koanf:"purge_batch"`
	StrictOrder    bool              `koanf:"strict_order"`
	Heartbeat      Heartbeat         `koanf:"heartbeat"`
}

// Backoff bounds the pauses between attempts.
type Backoff struct {
	Min Duration `koanf:"min"`
	Max Duration `koanf:"max"`
}

// Heartbeat names the projection that shows how old the newest event is that
// went the whole way.
type Heartbeat struct {
	Projection string   `koanf:"projection"` // "" = none
	Interval   Duration `koanf:"interval"`
}

var defaultOutbox = Outbox{
	Table:          "outbox",
	Batch:          500,
	Lease:          Duration(30 * time.Second),
	PublishTimeout: Duration(10 * time.Second),
	Attempts:       10,
	Backoff:        Backoff{Min: Duration(time.Second), Max: Duration(5 * time.Minute)},
	Poll:           Duration(200 * time.Millisecond),
	Retention:      Duration(7 * 24 * time.Hour),
	PurgeBatch:     500,
	Heartbeat:      Heartbeat{Interval: Duration(10 * time.Second)},
}

// HeartbeatColumns are what the heartbeat's projection must have.
const (
	HeartbeatShard = "shard" // String
	HeartbeatAt    = "at"    // DateTime64(6, 'UTC'): when the shard wrote it
)

var (
	tablePart     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	aggregateType = regexp.MustCompile(`^[!-~]{1,64}$`)
)

func checkOutbox(c *Config, r *report) {
	o := c.Outbox
	r.matches("outbox.table", o.Table, tablePart, "letters, digits and '_', such as outbox")
	for _, name := range slices.Sorted(maps.Keys(o.Topics)) {
		path := "outbox.topics." + name
		if !aggregateType.MatchString(name) {
			r.add(path, "%q is no aggregate type; use up to 64 characters of ASCII without spaces", cut(name))
		}
		r.matches(path, o.Topics[name], topicPart, "letters, digits, '.', '_' and '-'")
	}
	between(r, "outbox.batch", o.Batch, 1, 10_000)
	between(r, "outbox.lease", o.Lease, Duration(time.Second), Duration(time.Hour))
	between(r, "outbox.publish_timeout", o.PublishTimeout, Duration(100*time.Millisecond), Duration(30*time.Minute))
	if o.PublishTimeout > o.Lease/2 {
		r.addFirst([]string{"outbox.publish_timeout", "outbox.lease"}, "%s is more than half of outbox.lease (%s): an event that is published late must still be marked before its lease ends, or it is published twice; shorten it or lengthen the lease", o.PublishTimeout, o.Lease)
	}
	between(r, "outbox.attempts", o.Attempts, 1, 1000)
	between(r, "outbox.backoff.min", o.Backoff.Min, Duration(10*time.Millisecond), Duration(time.Hour))
	between(r, "outbox.backoff.max", o.Backoff.Max, Duration(10*time.Millisecond), Duration(24*time.Hour))
	if o.Backoff.Max < o.Backoff.Min {
		r.addFirst([]string{"outbox.backoff.max", "outbox.backoff.min"}, "%s is less than outbox.backoff.min (%s)", o.Backoff.Max, o.Backoff.Min)
	}
	between(r, "outbox.poll", o.Poll, Duration(10*time.Millisecond), Duration(time.Minute))
	between(r, "outbox.retention", o.Retention, Duration(time.Minute), Duration(10*365*24*time.Hour))
	between(r, "outbox.purge_batch", o.PurgeBatch, 1, 10_000)
	checkHeartbeat(c, r)
}

func checkHeartbeat(c *Config, r *report) {
	const path = "outbox.heartbeat"
	h := c.Outbox.Heartbeat
	between(r, path+".interval", h.Interval, Duration(time.Second), Duration(time.Hour))
	if h.Interval.Of()%time.Second != 0 && r.sound(path+".interval") {
		r.add(path+".interval", "%s is not a whole number of seconds", h.Interval)
	}
	if h.Projection == "" || !r.readable("projections") {
		return
	}
	p := c.HeartbeatProjection()
	if p == nil {
		r.add(path+".projection", "there is no projection %q; use a name under projections", cut(h.Projection))
		return
	}
	for _, name := range []string{HeartbeatShard, HeartbeatAt} {
		if !slices.ContainsFunc(p.Columns, func(c Column) bool { return c.Name == name }) {
			r.add(path+".projection", "projection %s has no column %s; docs/outbox.md shows the projection of a heartbeat", p.Name, name)
		}
	}
}

// HeartbeatProjection is the projection of heartbeats, nil if there is none.
func (c *Config) HeartbeatProjection() *Projection {
	i := slices.IndexFunc(c.Projections, func(p Projection) bool { return p.Name == c.Outbox.Heartbeat.Projection })
	if i < 0 {
		return nil
	}
	return &c.Projections[i]
}

// CheckRelay reports what only `relay` and `outbox list|replay` need: shards,
// and the files with their addresses. A relay needs topics too, and time to
// stop in, and serves http.address. ClickHouse's password is not looked at: a relay has no use for it.
func (c *Config) CheckRelay(topics bool) error {
	r := &report{places: c.places}
	if len(c.Source.Shards) == 0 {
		r.add("source.shards", "missing; name the servers that have an outbox")
	}
	c.checkShards(r)
	if topics {
		c.checkServer(r)
	}
	if topics && len(c.Outbox.Topics) == 0 {
		r.add("outbox.topics", "missing; name the topic of each aggregate type, such as {fitness_result: fitness-results}")
	}
	if topics && c.Outbox.PublishTimeout >= c.DrainTimeout {
		r.addFirst([]string{"outbox.publish_timeout", "drain_timeout"}, "%s is not shorter than drain_timeout (%s), so a claim under way at SIGTERM could not be given back; shorten it, or lengthen drain_timeout", c.Outbox.PublishTimeout, c.DrainTimeout)
	}
	return r.err()
}

// Relay is how relays work.
func (c *Config) Relay() outbox.Config {
	o := c.Outbox
	relay := outbox.Config{
		Table:          o.Table,
		Topics:         o.Topics,
		Batch:          o.Batch,
		Lease:          o.Lease.Of(),
		PublishTimeout: o.PublishTimeout.Of(),
		Attempts:       o.Attempts,
		BackoffMin:     o.Backoff.Min.Of(),
		BackoffMax:     o.Backoff.Max.Of(),
		Poll:           o.Poll.Of(),
		Retention:      o.Retention.Of(),
		PurgeBatch:     o.PurgeBatch,
		StrictOrder:    o.StrictOrder,
	}
	if p := c.HeartbeatProjection(); p != nil {
		relay.Heartbeat = outbox.Heartbeat{Interval: o.Heartbeat.Interval.Of(), Topic: p.Topics[0]}
	}
	return relay
}
