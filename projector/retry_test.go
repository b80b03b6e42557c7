//go:build synctests

package projector

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRefresh(t *testing.T) {
	stale := &InsertError{Class: Refresh, Code: 16, Message: "No such column unit"}
	for name, c := range map[string]struct {
		answers []error // to inserts, in order; the rest succeeds
		refresh []error
		want    string
		calls   int
	}{
		"the schema fits after all": {answers: []error{stale}, calls: 1},
		"it does not":               {answers: []error{stale, stale}, calls: 1, want: "the table still does not fit after its schema was read again: refresh error 16: No such column unit"},
		"reading it fails for a while": {
			answers: []error{stale, stale}, refresh: []error{&InsertError{Class: Transient, Message: "connection refused"}}, calls: 2,
		},
		"it fits no more": {
			answers: []error{stale}, refresh: []error{&InsertError{Class: Fatal, Message: "column unit was dropped"}}, calls: 1,
			want: "fatal error: column unit was dropped",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				w.produce(10, plainEvent, 0)
				answers, refresh, calls := slices.Clone(c.answers), slices.Clone(c.refresh), 0
				next := func(from *[]error) error {
					if len(*from) == 0 {
						return nil
					}
					err := (*from)[0]
					*from = (*from)[1:]
					return err
				}
				m := w.newMember(testPlan(t), insertFunc(func(_ context.Context, b Batch) error {
					if err := next(&answers); err != nil {
						return err
					}
					w.store.insert(b)
					return nil
				}), func(_ *Config, _ *Projection, d *Deps) {
					d.Refresh = func(_ context.Context, projection string) error {
						if projection != "results" {
							t.Errorf("asked to refresh %q", projection)
						}
						calls++
						return next(&refresh)
					}
				}).live(t.Context())
				defer m.kill()
				var err error
				if c.want == "" {
					if err := w.awaitCommits(t.Context()); err != nil {
						t.Fatal(err)
					}
					err = m.end()
				} else {
					<-m.ended
					err = m.err
				}
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if calls != c.calls {
					t.Errorf("the schema was read %d times, want %d", calls, c.calls)
				}
			})
		})
	}
}

func TestUnknownErrorBecomesFatal(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(10, plainEvent, 0)
		start := time.Now()
		m := w.newMember(testPlan(t), insertFunc(func(context.Context, Batch) error {
			return &InsertError{Class: Unknown, Code: 4711, Message: "something new"}
		}), nil).live(t.Context())
		defer m.kill()
		<-m.ended
		took, limit := time.Since(start), testConfig().UnknownLimit
		if took < limit || took > limit+time.Minute {
			t.Errorf("stopped after %v, want after %v", took, limit)
		}
		if m.err == nil || !strings.Contains(m.err.Error(), "an error of no known class for 15m") || !strings.Contains(m.err.Error(), "something new") {
			t.Errorf("got %v", m.err)
		}
		if n := total(t, m.registry, "projector_insert_retries_total", "class", "unknown"); n < 100 {
			t.Errorf("only %v retries", n)
		}
	})
}
