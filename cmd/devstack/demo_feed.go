package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// feed produces to the demo's topic and reads what has come of it.
type feed struct {
	kafka      *kgo.Client
	admin      *kadm.Client
	clickhouse string // URL
}

func (d *demo) connect() error {
	client, err := kgo.NewClient(kgo.SeedBrokers(d.stack.Kafka.Brokers...), kgo.DefaultProduceTopic(demoTopic))
	if err != nil {
		return err
	}
	d.feed = &feed{kafka: client, admin: kadm.NewClient(client), clickhouse: d.stack.ClickHouse.HTTP}
	return nil
}

func (f *feed) close() { f.kafka.Close() }

// produced sends one message and waits until the broker has it.
func (f *feed) produced(ctx context.Context, key, value []byte) error {
	return f.kafka.ProduceSync(ctx, &kgo.Record{Key: key, Value: value}).FirstErr()
}

// patience is how long the projector may make no progress before the demo gives up.
const patience = 30 * time.Second

// settled waits until the group has committed all that is in the topic: every message is then a row or a dead letter.
// It returns how long that took since from.
func (d *demo) settled(ctx context.Context, from time.Time) (time.Duration, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	behind, since := int64(-1), time.Now()
	for {
		lag, err := d.lag(ctx)
		if err != nil {
			return 0, err
		}
		if lag == 0 {
			return time.Since(from), nil
		}
		if lag != behind {
			behind, since = lag, time.Now()
		}
		if time.Since(since) > patience {
			return 0, fmt.Errorf("%d messages are not committed and nothing has moved for %v", lag, patience)
		}
		if err := d.projector.running.Running(); err != nil {
			return 0, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// lag returns how many messages the group has not committed.
func (f *feed) lag(ctx context.Context) (int64, error) {
	ends, err := f.admin.ListEndOffsets(ctx, demoTopic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the ends of %s: %w", demoTopic, err)
	}
	committed, err := f.admin.FetchOffsets(ctx, demoGroup)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return 0, fmt.Errorf("ask for the offsets of %s: %w", demoGroup, err)
	}
	lag := int64(0)
	ends.Each(func(end kadm.ListedOffset) {
		at, _ := committed.Lookup(end.Topic, end.Partition) // 0 before the first commit
		lag += end.Offset - max(at.At, 0)
	})
	return lag, nil
}

// ask runs a query and returns its result as text.
func (f *feed) ask(ctx context.Context, query string) (string, error) {
	body, err := f.query(ctx, query)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	return strings.TrimRight(string(text), "\n"), err
}

func (f *feed) query(ctx context.Context, query string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.clickhouse, strings.NewReader(query))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("query ClickHouse: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		why, _ := io.ReadAll(io.LimitReader(response.Body, 2<<10))
		return nil, fmt.Errorf("query ClickHouse: %s: %s", response.Status, why)
	}
	return response.Body, nil
}

// rows streams a result whose values hold no tabs or line breaks.
func (f *feed) rows(ctx context.Context, query string) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		body, err := f.query(ctx, query)
		if err != nil {
			yield(nil, err)
			return
		}
		defer body.Close()
		lines := bufio.NewScanner(body)
		for lines.Scan() {
			cells := strings.Split(lines.Text(), "\t")
			row := make([]any, len(cells))
			for i, cell := range cells {
				row[i] = cell
			}
			if !yield(row, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(nil, err)
		}
	}
}
