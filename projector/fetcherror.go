package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaQuiet is how long Kafka must have reported nothing for its trouble to be over.
const kafkaQuiet = 30 * time.Second

// The kinds of projector_offset_resets_total.
const (
	resetReported = "reported"  // franz-go says so
	resetBack     = "went_back" // the log was cut or replaced
	resetExpired  = "expired"   // retention was faster
	resetRecreate = "recreated" // the topic was deleted and made again
)

// fetchError reacts to an error that kgo reports beside or instead of records. kgo gets over most by itself; the rest
// it reports once and then leaves the partition alone, so that the lane must start over. Bracket.
func (l *lane) fetchError(topic string, partition int32, err error) error {
	kind := "other"
	var fatal error
	switch {
	case isType[*kgo.ErrGroupSession](err):
		kind = "group" // the callback lost has dealt with it, and by now the lane may have joined again
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return nil // the poll's own deadline, or the end
	case errors.Is(err, kgo.ErrClientClosed): // not by the lane, which polls no more once it closes its client
		kind, fatal = "closed", err
	case isType[*kgo.ErrDataLoss](err):
		l.metrics.resets.WithLabelValues(l.projection.Name, topic, resetReported).Inc()
		l.log.Error().Err(err).Str("topic", topic).Int32("partition", partition).
			Msg("Kafka has lost records of this partition: reading again from where it has them; backfill what is missing")
		kind = "data_loss"
	case isType[*kgo.ErrDecompressTooLarge](err):
		kind = "too_large"
		fatal = err
	case isType[*kerr.Error](err):
		kind = "broker"
		if errors.Is(err, kerr.UnknownTopicID) { // the topic was deleted and made again: kgo never adopts the new one
			kind, fatal = "recreated", err
			l.metrics.resets.WithLabelValues(l.projection.Name, topic, resetRecreate).Inc()
			l.log.Error().Err(err).Str("topic", topic).Int32("partition", partition).Int64("read_before", l.positions.next(topic, partition)).
				Msg("the topic was deleted and created again: the new one is read from its start; what the old one held from this offset on is lost: backfill it")
		} else if !kerr.IsRetriable(err) {
			fatal = err
		}
	}
	l.troubled = true
	l.metrics.fetchErrors.WithLabelValues(l.projection.Name, kind).Inc()
	if topic != "" {
		err = fmt.Errorf("read %s/%d: %w", topic, partition, err)
	}
	l.health.kafka.fail(err)
	if kind == "recreated" && l.projection.Until != nil {
		return fmt.Errorf("the topic was deleted and created again, and what was to be read is gone with the one before: %w", err)
	}
	if fatal != nil {
		return &rejoinError{err}
	}
	return nil
}

// checkContinuity compares where a read begins with where the last one ended, or with the committed offset after an
// assignment. Gaps are normal in a compacted or transactional log; records that retention removed unread are a loss,
// and a step back means that the log is not the one that was read before. Neither may pass in silence. Bracket.
func (l *lane) checkContinuity(pos *position, fetched *kgo.FetchPartition) {
	first := fetched.Records[0].Offset
	if pos.next < 0 || first == pos.next {
		return
	}
	switch start := fetched.LogStartOffset; {
	case first < pos.next:
		l.metrics.resets.WithLabelValues(l.projection.Name, pos.topic, resetBack).Inc()
		l.at(pos, first).Error().Msg("the partition begins again at a lower offset: its log was truncated, or the topic replaced; every record is read again")
	case start > pos.next:
		l.reportExpired(pos, start, first)
	}
}

// reportExpired counts what retention has removed up to start, where the log begins now, of what was still to be read.
// Bracket.
func (l *lane) reportExpired(pos *position, start, found int64) {
	gone := min(start, pos.until) - max(0, pos.next)
	l.metrics.resets.WithLabelValues(l.projection.Name, pos.topic, resetExpired).Inc()
	l.metrics.lostRecords.WithLabelValues(l.projection.Name, pos.topic).Add(float64(gone))
	l.at(pos, found).Error().Int64("offsets", gone).Msg("retention removed records before they were read: backfill them")
}

// at is where a read begins that should have begun elsewhere.
func (l *lane) at(pos *position, found int64) *zerolog.Logger {
	return new(l.log.With().Str("topic", pos.topic).Int32("partition", pos.partition).Int64("expected", pos.next).Int64("found", found).Logger())
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
