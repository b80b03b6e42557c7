package projector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	topicsInterval = 15 * time.Second // between two looks at topics that exist
	topicsRetry    = 5 * time.Second  // after a look that failed
	topicsTimeout  = 5 * time.Second  // of one question
)

// watchTopics looks now and then whether the lane's topics exist and may be read, and where its partitions end.
// franz-go waits in silence for a topic that does not exist, for one that was deleted, and for a leader that does not
// answer: a lane that reads nothing must not look like one that has nothing to read. It has a goroutine of its own,
// because one leader that is silent would hold up the records of all the others, and so that it looks even while the
// poll loop waits for ClickHouse.
func (l *lane) watchTopics(ctx context.Context) {
	for {
		pause := topicsInterval
		if !l.topicsSeen(ctx) {
			pause = topicsRetry
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// topicsSeen looks once, tells the lane's health, and reports whether all was well.
func (l *lane) topicsSeen(ctx context.Context) bool {
	missing, err := l.missingTopics(ctx)
	if err == nil && missing == "" {
		err = l.lags.look(ctx, l.client)
	}
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		l.metrics.fetchErrors.WithLabelValues(l.projection.Name, "metadata").Inc()
		l.health.topics.fail(err)
		return false
	case missing != "":
		l.metrics.fetchErrors.WithLabelValues(l.projection.Name, "topic").Inc()
		l.health.topics.fail(errors.New(missing))
		l.health.missing.Store(&missing)
		return false
	}
	l.health.missing.Store(nil)
	l.health.topics.over()
	return true
}

// missingTopics asks Kafka for the topics and returns those that cannot be read, with the reason.
func (l *lane) missingTopics(ctx context.Context) (missing string, err error) {
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
	l.fetches.brokers.Store(int64(len(resp.Brokers)))
	var bad []string
	for _, topic := range resp.Topics {
		if err := kerr.ErrorForCode(topic.ErrorCode); err != nil && topic.Topic != nil {
			bad = append(bad, fmt.Sprintf("topic %s: %s", *topic.Topic, err))
		}
	}
	return strings.Join(bad, "; "), nil
}
