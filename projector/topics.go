package projector

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	topicsInterval = 15 * time.Second // between two looks at topics that exist
	topicsTimeout  = 5 * time.Second  // of one look
)

// topicCheck looks now and then whether the lane's topics exist and may be read, and where its partitions end. franz-go
// waits in silence for a topic that does not exist, for one that was deleted, and for a leader that does not answer: a
// lane that reads nothing must not look like one that has nothing to read. The poll loop owns it, and asks even while
// it waits for ClickHouse.
type topicCheck struct{ next time.Time }

// refresh looks if it is time to, and tells the lane's health.
func (t *topicCheck) refresh(ctx context.Context, l *lane) {
	now := l.deps.Clock()
	if now.Before(t.next) {
		return
	}
	missing, err := t.look(ctx, l)
	if err == nil && missing == "" {
		err = l.lags.look(ctx, l.client)
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		l.metrics.fetchErrors.WithLabelValues(l.projection.Name, "metadata").Inc()
		l.health.kafka.fail(err)
	case missing == "":
		l.health.missing.Store(nil)
		t.next = now.Add(topicsInterval)
		return
	default:
		l.metrics.fetchErrors.WithLabelValues(l.projection.Name, "topic").Inc()
		l.health.kafka.fail(fmt.Errorf("%s", missing))
		l.health.missing.Store(&missing)
	}
	t.next = l.deps.Clock().Add(maxPollWait) // not from before a look that took its whole time: the next one would follow at once
}

// look asks Kafka for the topics.
func (t *topicCheck) look(ctx context.Context, l *lane) (missing string, err error) {
	ctx, cancel := context.WithTimeout(ctx, topicsTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for _, topic := range l.projection.Topics {
		asked := kmsg.NewMetadataRequestTopic()
		asked.Topic = new(topic)
		req.Topics = append(req.Topics, asked)
	}
	resp, err := req.RequestWith(ctx, l.client)
	if err != nil {
		return "", fmt.Errorf("ask Kafka for topics %s: %w", strings.Join(l.projection.Topics, ", "), err)
	}
	l.fetches.brokers = len(resp.Brokers)
	var bad []string
	for _, topic := range resp.Topics {
		if err := kerr.ErrorForCode(topic.ErrorCode); err != nil && topic.Topic != nil {
			bad = append(bad, fmt.Sprintf("topic %s: %s", *topic.Topic, err))
		}
	}
	return strings.Join(bad, "; "), nil
}
