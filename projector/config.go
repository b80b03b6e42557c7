package projector

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/mapping"
)

// Projection is what one table is filled from. A Projection is immutable while an Engine runs.
type Projection struct {
	Name   string   // label of metrics and logs, unique in an Engine
	Topics []string // the topics consumed, all with the same Plan
	Group  string   // the consumer group, one for each projection and generation
	Plan   *mapping.Plan
	Lanes  int   // how many lanes consume it in this process; each is a group member of its own
	Start  Start // where the group begins

	// Origin is the lineage that every row carries in _origin; empty means "stream".
	Origin string

	// Append makes a row of a record, or none. Nil means Plan.Append on the record's value, with the record's own
	// place and Origin as lineage. Another one is for records that are no events but carry them: dead letters. Like
	// Plan.Append it returns mapping.ErrIgnored for a record that is passed over and a *mapping.Error for one that is
	// refused; any other error ends the lane with nothing of the open cut committed. It must give the same row for
	// the same record, and is called from the lane's goroutines.
	Append func(rows *mapping.Rows, r *kgo.Record) error
	// Until, by topic and partition, bounds the projection: no record at or beyond these offsets is read, and Run
	// returns nil once everything below them is committed. A bounded projection has one lane that owns all of its
	// partitions; it ends with ErrShared when another member of Group takes one of them. It must name every partition.
	Until map[string]map[int32]int64
	// From, by topic and partition, is where a bounded projection begins, whatever its group has committed before. It
	// commits these offsets before it reads anything, as the member that owns the partitions.
	From map[string]map[int32]int64
	// OnCommit may add to a commit before it is sent, such as metadata. Nil adds nothing.
	OnCommit func(*kmsg.OffsetCommitRequest) error
}

// below returns the offset before which records of the partition are read.
func (p *Projection) below(topic string, partition int32) int64 {
	if p.Until == nil {
		return math.MaxInt64
	}
	return p.Until[topic][partition]
}

// appendEvent is the Append of a projection whose records are events.
func (p *Projection) appendEvent(rows *mapping.Rows, r *kgo.Record) error {
	return p.Plan.Append(rows, r.Value, mapping.Lineage{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Origin: p.Origin})
}

// Start says where a group begins that has committed nothing for a topic yet. It has no say in any other case: a
// partition added to the topic later, or one whose committed offset has expired, is read from its oldest record.
type Start uint8

const (
	// StartEarliest begins with the oldest record still kept. It is the default: a group that begins at the end
	// loses what was produced while it was being set up.
	StartEarliest Start = iota
	// StartLatest begins with the next record produced. The engine commits the topic's ends before it reads, so that
	// the beginning does not move with a crash.
	StartLatest
)

// Config is how lanes work; it is the same for every projection of an Engine. DefaultConfig has the defaults.
type Config struct {
	Batch Limits

	InsertTimeout time.Duration // of one attempt to insert; an attempt without an answer by then is repeated
	CommitTimeout time.Duration // of one offset commit
	DrainTimeout  time.Duration // for sealed cuts to be acknowledged once Run's context is done
	LeaveTimeout  time.Duration // for leaving the group at the end

	// RevokeBudget is how long a revoke waits for cuts that hold rows of the revoked partitions. Past it their
	// offsets are given up and the next owner reads those records again. The rebalance waits for it, so that
	// RevokeBudget + CommitTimeout must stay below RebalanceTimeout.
	RevokeBudget time.Duration

	SessionTimeout    time.Duration // a member silent for so long is expelled from its group
	RebalanceTimeout  time.Duration // a member that has not rejoined a rebalance by then is expelled
	HeartbeatInterval time.Duration // at most a third of SessionTimeout

	// RetryMin and RetryMax bound the growing pause between attempts. The pause itself is uniformly random between
	// zero and twice the current bound (full jitter), so that lanes do not return to a struggling server in step.
	RetryMin, RetryMax time.Duration

	// UnknownLimit is how long an error of class Unknown may go on before it is fatal. A fault nobody has classified
	// must neither stop the consumer at once nor be retried in silence for ever.
	UnknownLimit time.Duration

	// NotReadyAfter is how long inserts or Kafka may fail before Engine.Ready reports it: a short fault is the
	// business of the retries, not of a load balancer or a deployment.
	NotReadyAfter time.Duration
	// StuckAfter is how long a loop may show no sign of life before Engine.Live reports it. It must exceed every
	// single wait of a healthy loop: InsertTimeout, RevokeBudget + CommitTimeout, and twice RetryMax.
	StuckAfter time.Duration

	// StopRatio stops the engine when more than this share of a cut's records (of at least 100) were refused: that is
	// a wrong deployment, not bad data, and parking a topic letter by letter helps nobody. 0 means never.
	StopRatio float64
	// StopRun stops the engine after so many refused records in a row, and when ClickHouse itself refuses so many
	// rows of one cut. 0 means never.
	StopRun int

	// FetchBytes is how much one lane asks of all brokers at once, in bytes as they lie in memory: decompressed. What
	// is fetched and not yet mapped takes up to four times as much: one answer being mapped, one buffered, each with
	// franz-go's records beside the bytes.
	FetchBytes int
}

// Limits are when a cut is sealed: at whichever comes first.
type Limits struct {
	Rows  int           // records in a cut
	Bytes int           // data held by a cut's rows and letters; a cut may exceed it by one portion of a poll
	Delay time.Duration // since the first record of a cut
}

// LaneBytes is what one lane takes of memory at most, whatever the size of the records and however long ClickHouse
// takes nothing: its cuts, a copy of the rows that are being sent, spare capacity and garbage come to six times
// Batch.Bytes, and what is fetched and not yet mapped to eight times FetchBytes. TestStall holds a process to it.
func (c *Config) LaneBytes() int { return 6*c.Batch.Bytes + 8*c.FetchBytes }

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Batch:             Limits{Rows: 100_000, Bytes: 32 << 20, Delay: time.Second},
		InsertTimeout:     20 * time.Second,
		CommitTimeout:     5 * time.Second,
		DrainTimeout:      25 * time.Second,
		LeaveTimeout:      3 * time.Second,
		RevokeBudget:      30 * time.Second,
		SessionTimeout:    45 * time.Second,
		RebalanceTimeout:  60 * time.Second,
		HeartbeatInterval: time.Second, // a rebalance is learnt from a heartbeat, and a cooperative one takes two
		RetryMin:          100 * time.Millisecond,
		RetryMax:          10 * time.Second,
		UnknownLimit:      15 * time.Minute,
		NotReadyAfter:     time.Minute,
		StuckAfter:        3 * time.Minute,
		StopRatio:         0.5,
		StopRun:           1000,
		FetchBytes:        2 << 20,
	}
}

// check returns every contradiction in c, each with its remedy.
func (c *Config) check() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"batch.delay", c.Batch.Delay},
		{"insert timeout", c.InsertTimeout},
		{"commit timeout", c.CommitTimeout},
		{"drain timeout", c.DrainTimeout},
		{"leave timeout", c.LeaveTimeout},
		{"revoke budget", c.RevokeBudget},
		{"session timeout", c.SessionTimeout},
		{"rebalance timeout", c.RebalanceTimeout},
		{"heartbeat interval", c.HeartbeatInterval},
		{"retry minimum", c.RetryMin},
		{"unknown-error limit", c.UnknownLimit},
		{"not-ready-after", c.NotReadyAfter},
		{"stuck-after", c.StuckAfter},
	} {
		refuse(d.value <= 0, "%s is %v: it must be positive", d.name, d.value)
	}
	refuse(c.Batch.Rows < 1, "batch.rows is %d: a cut needs at least one row", c.Batch.Rows)
	refuse(c.Batch.Bytes < 1, "batch.bytes is %d: a cut needs at least one byte", c.Batch.Bytes)
	refuse(c.FetchBytes < minFetch, "fetch bytes are %d: at least 64 KiB are needed", c.FetchBytes)
	refuse(c.FetchBytes > 1<<30, "fetch bytes are %d: at most 1 GiB can be asked for", c.FetchBytes)
	refuse(c.RetryMax < c.RetryMin, "retry maximum %v is below the retry minimum %v", c.RetryMax, c.RetryMin)
	refuse(!(c.StopRatio >= 0 && c.StopRatio <= 1), "stop_ratio is %v: it is a share between 0 and 1, 0 switches it off", c.StopRatio)
	refuse(c.StopRun < 0, "stop_run is %d: it counts records, 0 switches it off", c.StopRun)
	refuse(c.HeartbeatInterval*3 > c.SessionTimeout,
		"heartbeat interval %v is more than a third of the session timeout %v: one late heartbeat would expel the lane", c.HeartbeatInterval, c.SessionTimeout)
	refuse(c.InsertTimeout >= c.RebalanceTimeout,
		"insert timeout %v is not below the rebalance timeout %v: an insert could outlive its partitions", c.InsertTimeout, c.RebalanceTimeout)
	refuse(c.RevokeBudget+c.CommitTimeout >= c.RebalanceTimeout,
		"revoke budget %v and commit timeout %v together are not below the rebalance timeout %v: a slow insert would expel the lane",
		c.RevokeBudget, c.CommitTimeout, c.RebalanceTimeout)
	refuse(c.StuckAfter <= max(c.InsertTimeout, c.RevokeBudget+c.CommitTimeout, 2*c.RetryMax),
		"stuck-after %v is not above the longest healthy wait (insert timeout %v; revoke budget and commit timeout %v; twice the retry maximum %v)",
		c.StuckAfter, c.InsertTimeout, c.RevokeBudget+c.CommitTimeout, 2*c.RetryMax)
	return errors.Join(errs...)
}

// check returns everything that is missing in p.
func (p *Projection) check() error {
	var errs []error
	refuse := func(bad bool, what string) {
		if bad {
			errs = append(errs, fmt.Errorf("projection %q: %s", p.Name, what))
		}
	}
	refuse(p.Name == "", "a name is needed")
	refuse(len(p.Topics) == 0, "at least one topic is needed")
	refuse(p.Group == "", "a consumer group is needed")
	refuse(p.Plan == nil, "a plan is needed")
	refuse(p.Lanes < 1, "at least one lane is needed")
	refuse(p.Until != nil && p.Lanes != 1, "a bounded projection has one lane")
	refuse(p.From != nil && p.Until == nil, "a projection that begins at given offsets is bounded")
	refuse(p.From != nil && p.Start == StartLatest, "it begins at given offsets or at the end of its topics, not both: leave out From or StartLatest")
	return errors.Join(errs...)
}
