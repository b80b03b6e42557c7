package deadletter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/chprojector/projector/internal/kafka"
)

// headerRoom is what the headers of a letter may add to its record.
const headerRoom = 64 << 10

// Prepare makes sure that the dead-letter topics of source topics exist, so
// that a missing right is noticed at the start and not with the first letter.
func (p *Parker) Prepare(ctx context.Context, topics ...string) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	select {
	case <-p.turn:
		defer func() { p.turn <- struct{}{} }()
	case <-ctx.Done():
		return classified(fmt.Errorf("wait for letters: %w", ctx.Err()))
	}
	for _, topic := range topics {
		if err := p.ensure(ctx, topic, topic+p.config.Suffix); err != nil {
			return classified(err)
		}
	}
	return nil
}

// ensure creates the topic target for the letters of source, unless it exists.
//
// It gets as many partitions and replicas as its source: a partition's letters
// stay together, and are as safe as the records were. It keeps them until
// somebody deletes them (retention.ms = -1): a letter that retention removes is
// an event lost in silence. It accepts what its source accepts and the headers
// beside it. Brokers that create topics by themselves on first use are not
// relied on: those would have the broker's defaults, one week among them.
func (p *Parker) ensure(ctx context.Context, source, target string) error {
	if p.known[target] {
		return nil
	}
	switch _, err := p.admin.Topics(ctx, target); {
	case err == nil:
		p.known[target] = true
		return nil
	case !errors.Is(err, kafka.ErrUnknownTopic):
		return fmt.Errorf("dead-letter topic: %w", err)
	}
	partitions, replicas := -1, -1 // the cluster's defaults, for a source that is gone
	configs := map[string]string{"retention.ms": "-1", "cleanup.policy": "delete"}
	if topics, err := p.admin.Topics(ctx, source); err == nil {
		partitions, replicas = topics[0].Partitions, topics[0].Replicas
		// Not every client may read a topic's configuration; without it the
		// broker's default holds and large letters become pointers.
		if n, err := p.admin.MaxMessageBytes(ctx, source); err == nil {
			configs["max.message.bytes"] = strconv.Itoa(n + headerRoom)
		}
	}
	if err := p.admin.CreateTopic(ctx, target, partitions, replicas, configs); err != nil {
		return fmt.Errorf("dead-letter topic %s is missing: %w; create it: %s", target, err, command(target, partitions, replicas, configs))
	}
	p.known[target] = true
	return nil
}

// command is what an operator with the right to do so runs.
func command(topic string, partitions, replicas int, configs map[string]string) string {
	c := []string{"kafka-topics.sh --bootstrap-server HOST:PORT --create --topic", topic}
	if partitions > 0 {
		c = append(c, fmt.Sprintf("--partitions %d --replication-factor %d", partitions, replicas))
	}
	for _, key := range slices.Sorted(maps.Keys(configs)) {
		c = append(c, "--config "+key+"="+configs[key])
	}
	return strings.Join(c, " ")
}
