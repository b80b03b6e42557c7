package projector

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// newBackoff returns pauses that grow from RetryMin to RetryMax with full jitter.
func newBackoff(cfg *Config) *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: cfg.RetryMin, MaxInterval: cfg.RetryMax, Multiplier: 2, RandomizationFactor: 1,
	}
}

// sleep waits for d or until ctx is done, and reports which it was.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// persist repeats try until it succeeds, until its error is one that repeating does not cure, or until ctx is done,
// whose cause it then returns. Whoever calls it decides what an error of class Rejected or Split means.
func (l *lane) persist(ctx context.Context, trouble *streak, try func() error) error {
	pause := newBackoff(l.cfg)
	refreshed := false
	var unknownSince time.Time
	for {
		l.health.sender.beat(l.deps.Clock())
		err := try()
		if err == nil {
			trouble.over()
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		class := classify(err)
		if class == Refresh {
			if refreshed {
				return fmt.Errorf("the table still does not fit after its schema was read again: %w", err)
			}
			l.metrics.retries[Refresh].Inc()
			l.log.Warn().Err(err).Msg("the table looks changed: reading its schema again")
			if err = l.deps.Refresh(ctx, l.projection.Name); err == nil {
				refreshed = true
				continue
			}
			class = classify(err)
		}
		switch class {
		case Transient:
			unknownSince = time.Time{}
		case Unknown:
			now := l.deps.Clock()
			if unknownSince.IsZero() {
				unknownSince = now
			} else if lasted := now.Sub(unknownSince); lasted >= l.cfg.UnknownLimit {
				return fmt.Errorf("an error of no known class for %v: %w", lasted.Round(time.Second), err)
			}
		default:
			return err
		}
		l.metrics.retries[class].Inc()
		trouble.fail(err)
		l.health.sender.beat(l.deps.Clock())
		if !sleep(ctx, pause.NextBackOff()) {
			return context.Cause(ctx)
		}
	}
}
