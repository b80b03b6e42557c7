//go:build synctests

package projector

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestTopicAppears(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		if err := w.cluster.DeleteTopic(testTopic); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		m := w.newMember(testPlan(t), w.good(), logTo(&log)).live(t.Context())
		defer m.kill()
		pass(3 * time.Minute)
		if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "topic results: UNKNOWN_TOPIC_OR_PARTITION") {
			t.Errorf("ready without its topic: %v", err)
		}
		if err := m.Live(); err != nil {
			t.Error(err)
		}
		if err := w.cluster.CreateTopic(testTopic, 1, nil); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		w.produce(10, plainEvent, 0)
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if err := m.Ready(); err != nil {
			t.Error(err)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "see the topics and their leaders in Kafka"); n != 2 {
			t.Errorf("%d lines about one streak of trouble, want one at its beginning and one at its end:\n%s", n, &log)
		}
	})
}

func TestTopicReplaced(t *testing.T) {
	for name, start := range map[string]Start{"earliest": StartEarliest, "latest": StartLatest} {
		t.Run(name, func(t *testing.T) { topicReplaced(t, start) })
	}
}

// topicReplaced: all records of the new topic are read, wherever the group began in the old one.
func topicReplaced(t *testing.T, begins Start) {
	bubble(t, 1, func(t *testing.T, w *world) {
		var log bytes.Buffer
		m := w.newMember(testPlan(t), w.good(), func(c *Config, p *Projection, d *Deps) {
			p.Start = begins
			logTo(&log)(c, p, d)
		}).live(t.Context())
		defer m.kill()
		pass(10 * time.Second)
		w.produce(50, plainEvent, 0)
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.cluster.DeleteTopic(testTopic), w.cluster.CreateTopic(testTopic, 1, nil)); err != nil {
			t.Fatal(err)
		}
		inserted := total(t, m.registry, "projector_rows_total")
		w.end[0] = 0
		w.producer.PurgeTopicsFromClient(testTopic)
		w.produce(20, plainEvent, 0)
		pass(5 * time.Minute)
		if n := total(t, m.registry, "projector_rows_total") - inserted; n != 20 {
			t.Errorf("%v rows of the new topic, want 20", n)
		}
		if n := total(t, m.registry, "projector_lane_restarts_total"); n == 0 {
			t.Error("the lane did not start over")
		}
		if n := total(t, m.registry, "projector_offset_resets_total", "kind", "recreated"); n == 0 || !strings.Contains(log.String(), `"read_before":50`) {
			t.Errorf("%v resets counted, the log says\n%s", n, &log)
		}
		if err := errors.Join(m.Ready(), m.end()); err != nil {
			t.Error(err)
		}
	})
}

func TestExpiredRecordsAreCounted(t *testing.T) {
	for name, whileRunning := range map[string]bool{"between two lives": false, "while the database hangs": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				w.produce(100, plainEvent, 0)
				var log bytes.Buffer
				v := &valve{next: w.good(), open: make(chan struct{})}
				change := func(c *Config, p *Projection, d *Deps) {
					logTo(&log)(c, p, d)
					c.Batch.Rows, c.FetchBytes = 10, minFetch
				}
				m := w.newMember(testPlan(t), v, change).live(t.Context())
				if !whileRunning {
					close(v.open)
					if err := w.awaitCommits(t.Context()); err != nil {
						t.Fatal(err)
					}
					if err := m.end(); err != nil {
						t.Fatal(err)
					}
				} else {
					pass(10 * time.Second)
				}
				w.produce(5000, plainEvent, 0)
				if err := w.cluster.DeleteRecords(testTopic, 0, 4000); err != nil {
					t.Fatal(err)
				}
				if whileRunning {
					close(v.open)
				} else {
					m = w.newMember(testPlan(t), w.good(), change).live(t.Context())
				}
				defer m.kill()
				if err := w.store.await(t.Context(), func() bool { return w.store.has(0, w.end[0]-1) }); err != nil {
					t.Fatal(err)
				}
				if err := m.end(); err != nil {
					t.Error(err)
				}
				inserted, _, _ := w.store.counts()
				gone := total(t, m.registry, "projector_expired_records_total")
				if gone == 0 || int(gone)+inserted != int(w.end[0]) {
					t.Errorf("inserted %d, counted %v as expired, produced %d", inserted, gone, w.end[0])
				}
				if n := strings.Count(log.String(), "retention removed records"); n != 1 {
					t.Errorf("logged %d times:\n%s", n, &log)
				}
			})
		})
	}
}

func TestOffsetBeyondTheEnd(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(30, plainEvent, 0)
		commitAs(t, w.producer, 0, 5000) // as after a topic was replaced by a shorter one
		var log bytes.Buffer
		m := w.newMember(testPlan(t), w.good(), logTo(&log)).live(t.Context())
		defer m.kill()
		if err := w.store.await(t.Context(), w.acknowledgedAll); err != nil {
			t.Fatal(err)
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
		if n := total(t, m.registry, "projector_offset_resets_total", "kind", "went_back"); n != 1 {
			t.Errorf("%v resets counted:\n%s", n, &log)
		}
		if got := w.committed(); !maps.Equal(got, w.end) {
			t.Errorf("committed %v, want %v", got, w.end)
		}
	})
}

func TestKafkaUnreachable(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.produce(10, plainEvent, 0)
		way := &link{net: w.net}
		way.sever()
		m := w.newMember(testPlan(t), w.good(), func(_ *Config, _ *Projection, d *Deps) {
			d.Kafka = append(d.Kafka, kgo.Dialer(way.DialContext))
		}).live(t.Context())
		defer m.kill()
		pass(5 * time.Minute)
		if err := m.Ready(); err == nil {
			t.Error("ready without Kafka")
		}
		if err := m.Live(); err != nil {
			t.Errorf("Kafka is down, the process is not: %v", err)
		}
		way.heal()
		if err := w.awaitCommits(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if err := m.Ready(); err != nil {
			t.Error(err)
		}
		way.sever()
		pass(2 * time.Minute)
		start := time.Now()
		err := m.end()
		if took := time.Since(start); took > 2*testConfig().LeaveTimeout {
			t.Errorf("leaving without a broker took %v", took)
		}
		if err != nil {
			t.Error(err)
		}
	})
}
