package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/time/rate"

	"github.com/chprojector/projector/internal/fitness"
)

// place is where a record lies in its topic.
type place struct {
	partition int32
	offset    int64
}

func (p place) String() string { return fmt.Sprintf("%d/%d", p.partition, p.offset) }

// load is what a schedule produces: events, and poison messages among them.
type load struct {
	w       *world
	g       *fitness.Generator
	poisons map[int]fitness.Poison // by the event before which it is produced

	mu     sync.Mutex
	events map[place]int // index of the event
	parked map[place]fitness.Poison
	err    error
}

func newLoad(w *world, p *plan) *load {
	l := &load{
		w: w, g: events(w.t, p.events, p.seed), poisons: map[int]fitness.Poison{},
		events: map[place]int{}, parked: map[place]fitness.Poison{},
	}
	random := rand.New(rand.NewPCG(p.seed, 0xBAD))
	all := fitness.Poisons()
	for _, i := range random.Perm(len(all))[:p.poison] {
		l.poisons[random.IntN(l.g.Len())] = all[i]
	}
	return l
}

// produce sends everything, a fifth at once and the rest over a while.
func (l *load) produce(ctx context.Context, over time.Duration) error {
	backlog := l.g.Len() / 5
	pace := rate.NewLimiter(rate.Limit(float64(l.g.Len()-backlog)/over.Seconds()), 50)
	for i := range l.g.Len() {
		if i >= backlog {
			if err := pace.Wait(ctx); err != nil {
				return err
			}
		}
		if poison, ok := l.poisons[i]; ok {
			l.send(ctx, &kgo.Record{Key: []byte(poison.Name), Value: poison.Value}, func(at place) { l.parked[at] = poison })
		}
		l.send(ctx, &kgo.Record{Key: l.g.AppendKey(nil, i), Value: l.g.AppendValue(nil, i)}, func(at place) { l.events[at] = i })
	}
	if err := l.w.client.Flush(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *load) send(ctx context.Context, r *kgo.Record, landed func(place)) {
	r.Topic = l.w.topic
	l.w.client.Produce(ctx, r, func(r *kgo.Record, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil {
			l.err = errors.Join(l.err, err)
			return
		}
		landed(place{r.Partition, r.Offset})
	})
}

// model is what the view must show.
func (l *load) model() *fitness.Model { return model(l.w.t, l.g) }

// ends are the offsets behind the last record of each partition.
func (l *load) ends() map[int32]int64 {
	ends := map[int32]int64{}
	for at := range l.events {
		ends[at.partition] = max(ends[at.partition], at.offset+1)
	}
	for at := range l.parked {
		ends[at.partition] = max(ends[at.partition], at.offset+1)
	}
	return ends
}

// inOrder are places, sorted.
func inOrder[V any](places map[place]V) []place {
	all := make([]place, 0, len(places))
	for at := range places {
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b place) int {
		if a.partition != b.partition {
			return int(a.partition - b.partition)
		}
		return int(a.offset - b.offset)
	})
	return all
}
