package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/contact"
)

// ErrUnknownTopic is a topic that does not exist, or that this client may not
// see: brokers do not tell the two apart.
var ErrUnknownTopic = errors.New("unknown topic")

// ErrConfigHidden is a value of a topic's configuration that the broker does not
// tell: this client has no right to it, or the broker does not know it.
var ErrConfigHidden = errors.New("the broker does not tell it")

// Admin asks about topics and groups. Nothing is connected before the first
// question, and every question ends with its context.
type Admin struct {
	client *kgo.Client
	adm    *kadm.Client
}

// NewAdmin makes an admin on a client of its own; Close it. The options are
// those of Config.Options.
func NewAdmin(opts ...kgo.Opt) (*Admin, error) {
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("kafka admin: %w", err)
	}
	return AdminOf(client), nil
}

// AdminOf asks over a client that somebody else owns and closes.
func AdminOf(client *kgo.Client) *Admin {
	return &Admin{client: client, adm: kadm.NewClient(client)}
}

// Close closes the admin's connections.
func (a *Admin) Close() { a.client.Close() }

// Ping asks a broker, any broker, for an answer.
func (a *Admin) Ping(ctx context.Context) error { return Ping(ctx, a.client) }

// Ping asks a broker, any broker, for an answer. Its error names the brokers
// that were configured, which franz-go's own does not of one that was reached
// and refused the client, and what to do.
func Ping(ctx context.Context, client *kgo.Client) error {
	err := client.Ping(ctx)
	network, _ := errors.AsType[*net.OpError](err)
	_, closed := errors.AsType[*kgo.ErrFirstReadEOF](err) // which does not show what it wraps
	switch {
	case err == nil:
		return nil
	case contact.Is(err) && !closed, errors.Is(err, context.Canceled):
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState):
		err = &contact.Error{Err: err, Remedy: "correct kafka.sasl"}
	case network != nil && network.Op == "remote error": // an alert of TLS, which comes after the handshake
		err = &contact.Error{Err: err, Remedy: "does the broker accept the certificate in kafka.tls.cert_file and key_file?"}
	default:
		err = &contact.Error{Err: err, Remedy: "does kafka.brokers name a listener of Kafka, and do kafka.tls and kafka.sasl fit it?"}
	}
	return fmt.Errorf("ping kafka at %v: %w", client.OptValue(kgo.SeedBrokers), err)
}

// Topic is how one topic is laid out.
type Topic struct {
	Name       string
	Partitions int
	Replicas   int // of the partition that has the fewest
}

// Topics describes topics, in the order asked for. A topic that does not exist
// is an error that wraps ErrUnknownTopic.
func (a *Admin) Topics(ctx context.Context, names ...string) ([]Topic, error) {
	if len(names) == 0 {
		return nil, nil
	}
	// Asking for the rights as well makes kadm ask a broker instead of its cache,
	// which does not know a topic for seconds after it was created.
	details, err := a.adm.ListTopicsWithInternal(kadm.WithAuthorizedOps(ctx), names...)
	if err != nil {
		return nil, fmt.Errorf("describe topics %v: %w", names, err)
	}
	topics := make([]Topic, len(names))
	for i, name := range names {
		d, ok := details[name]
		switch {
		case !ok, errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			return nil, fmt.Errorf("describe topic %s: %w", name, ErrUnknownTopic)
		case d.Err != nil:
			return nil, fmt.Errorf("describe topic %s: %w", name, d.Err)
		}
		topics[i] = Topic{Name: name, Partitions: len(d.Partitions), Replicas: d.Partitions.NumReplicas()}
	}
	return topics, nil
}

// CreateTopic creates a topic; partitions and replicas of -1 are the cluster's
// defaults. That it exists already, whatever its layout, is no error.
func (a *Admin) CreateTopic(ctx context.Context, name string, partitions, replicas int, configs map[string]string) error {
	values := make(map[string]*string, len(configs))
	for k, v := range configs {
		values[k] = &v
	}
	r, err := a.adm.CreateTopic(ctx, int32(partitions), int16(replicas), values, name)
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	if err != nil {
		if r.ErrMessage != "" {
			err = fmt.Errorf("%w: %s", err, r.ErrMessage)
		}
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

// MaxMessageBytes is the largest record batch, after compression, that a topic
// accepts (max.message.bytes). It needs the right to describe the topic's
// configuration; without it the error wraps ErrConfigHidden.
func (a *Admin) MaxMessageBytes(ctx context.Context, topic string) (int, error) {
	value, err := a.config(ctx, topic, "max.message.bytes")
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0, fmt.Errorf("read max.message.bytes of topic %s: %w", topic, err)
	}
	return n, nil
}

// Compacted reports whether the broker may remove records from the middle of a
// topic (cleanup.policy). It needs the same right.
func (a *Admin) Compacted(ctx context.Context, topic string) (bool, error) {
	policy, err := a.config(ctx, topic, "cleanup.policy")
	return strings.Contains(policy, "compact"), err
}

// config is one value of a topic's configuration.
func (a *Admin) config(ctx context.Context, topic, key string) (string, error) {
	value, err := a.describe(ctx, topic, key)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		err = ErrUnknownTopic
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		err = fmt.Errorf("%w: %w", ErrConfigHidden, err)
	}
	if err != nil {
		return "", fmt.Errorf("describe %s of topic %s: %w", key, topic, err)
	}
	return value, nil
}

func (a *Admin) describe(ctx context.Context, topic, key string) (string, error) {
	configs, err := a.adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return "", err
	}
	r, err := configs.On(topic, nil)
	if err = cmp.Or(err, r.Err); err != nil {
		return "", err
	}
	for _, c := range r.Configs {
		if c.Key == key {
			return c.MaybeValue(), nil
		}
	}
	return "", ErrConfigHidden
}

// PartitionLag is how far a group is behind in one partition. Offsets count
// records, apart from the gaps that compaction and transactions leave.
type PartitionLag struct {
	Topic     string
	Partition int32
	Start     int64 // oldest offset that still exists
	End       int64 // offset of the next record to be produced
	Committed int64 // next offset the group will read; -1 when it never committed
}

// Lag is the number of offsets the group has still to read; without a commit
// everything that exists (groups here start at the earliest offset).
func (l PartitionLag) Lag() int64 {
	return max(0, l.End-max(l.Committed, l.Start))
}

// Expired is the number of offsets that retention removed before the group
// read them. They are lost to the stream and must come from a backfill.
func (l PartitionLag) Expired() int64 {
	if l.Committed < 0 {
		return 0
	}
	return max(0, l.Start-l.Committed)
}

// Ahead reports a commit beyond the end: the topic was created anew, or the
// commit belongs to another cluster.
func (l PartitionLag) Ahead() bool { return l.Committed > l.End }

// Lag compares what a group has committed with what the topics hold, by topic
// and partition. The group need not exist.
func (a *Admin) Lag(ctx context.Context, group string, topics ...string) ([]PartitionLag, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	// The commits are read before the ends, so that a lag is never shown as
	// negative by what was produced and committed in between.
	commits, err := a.commits(ctx, group)
	if err != nil {
		return nil, err
	}
	offsets, err := a.Offsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	lags := make([]PartitionLag, 0, len(offsets))
	for _, o := range offsets {
		l := PartitionLag{Topic: o.Topic, Partition: o.Partition, Start: o.Start, End: o.End, Committed: -1}
		if c, ok := commits.Lookup(o.Topic, o.Partition); ok {
			if c.Err != nil {
				return nil, fmt.Errorf("fetch offsets of group %s for %s/%d: %w", group, o.Topic, o.Partition, c.Err)
			}
			l.Committed = c.At
		}
		lags = append(lags, l)
	}
	return lags, nil
}

// commits reads what a group has committed.
func (a *Admin) commits(ctx context.Context, group string) (commits kadm.OffsetResponses, err error) {
	err = coordinated(ctx, func() (err error) {
		commits, err = a.adm.FetchOffsets(ctx, group)
		return err
	})
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("fetch offsets of group %s: %w", group, err)
	}
	return commits, nil
}

// coordinated repeats a question about a group that has no coordinator, for half
// a minute at most: a cluster that has never had a group creates the topic for
// commits when it is first asked for them, and has none for about a second.
func coordinated(ctx context.Context, ask func() error) error {
	patience := time.NewTimer(fetchTimeout)
	defer patience.Stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if !errors.Is(err, kerr.CoordinatorNotAvailable) && !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			return err
		}
		select {
		case <-tick.C:
		case <-patience.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// PartitionOffsets is the range of offsets that a partition holds.
type PartitionOffsets struct {
	Topic     string
	Partition int32
	Start     int64 // oldest offset that still exists
	End       int64 // offset of the next record to be produced
}

// Offsets lists the offset range of every partition, by topic and partition. A
// topic that does not exist is an error that wraps ErrUnknownTopic.
func (a *Admin) Offsets(ctx context.Context, topics ...string) ([]PartitionOffsets, error) {
	starts, err := a.adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("list start offsets of %v: %w", topics, err)
	}
	ends, err := a.adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("list end offsets of %v: %w", topics, err)
	}
	var all []PartitionOffsets
	for topic, partitions := range starts {
		for partition, start := range partitions {
			end, ok := ends.Lookup(topic, partition)
			switch err := cmp.Or(start.Err, end.Err); {
			case errors.Is(err, kerr.UnknownTopicOrPartition), !ok:
				return nil, fmt.Errorf("list offsets of topic %s: %w", topic, ErrUnknownTopic)
			case err != nil:
				return nil, fmt.Errorf("list offsets of %s/%d: %w", topic, partition, err)
			}
			all = append(all, PartitionOffsets{Topic: topic, Partition: partition, Start: start.Offset, End: end.Offset})
		}
	}
	slices.SortFunc(all, func(a, b PartitionOffsets) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return all, nil
}
