package main

import (
	"context"
	"errors"

	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/reconcile"
)

// lag is how far a consumer group is.
type lag struct {
	admin  *kafka.Admin
	group  string
	topics []string
}

// Mark implements [reconcile.Progress]. A topic that does not exist has no
// events that could be under way.
func (l lag) Mark(ctx context.Context) (reconcile.Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if err := l.admin.Ping(ctx); err != nil {
		return nil, err
	}
	offsets, err := l.admin.Offsets(ctx, l.topics...)
	if errors.Is(err, kafka.ErrUnknownTopic) {
		return reconcile.Mark{}, nil
	}
	if err != nil {
		return nil, err
	}
	mark := reconcile.Mark{}
	for _, o := range offsets {
		mark[reconcile.Partition{Topic: o.Topic, ID: o.Partition}] = o.End
	}
	return mark, nil
}

// Behind implements [reconcile.Progress].
func (l lag) Behind(ctx context.Context, mark reconcile.Mark) (behind int64, err error) {
	if len(mark) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	lags, err := l.admin.Lag(ctx, l.group, l.topics...)
	if err != nil {
		return 0, err
	}
	for _, p := range lags {
		end, next := mark[reconcile.Partition{Topic: p.Topic, ID: p.Partition}], max(p.Committed, p.Start)
		if next >= end {
			continue
		}
		// What is left may be marks of transactions, which no consumer ever passes.
		more, err := l.admin.Records().Yields(ctx, p.Topic, p.Partition, next, end)
		if err != nil {
			return 0, err
		}
		if more {
			behind += end - next
		}
	}
	return behind, nil
}
