package outbox

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/internal/testenv"
)

// A broker refuses a batch as a whole; sent alone, only the event that is the
// reason is refused.
func TestRefusedBatchIsTriedOneByOne(t *testing.T) {
	for _, refusal := range []*kerr.Error{kerr.MessageTooLarge, kerr.InvalidRecord, kerr.PolicyViolation} {
		t.Run(refusal.Message, func(t *testing.T) {
			cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(1, "results"))
			cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				request := r.(*kmsg.ProduceRequest)
				topic := request.Topics[0]
				if !bytes.Contains(topic.Partitions[0].Records, []byte("poison")) {
					return nil, nil, false
				}
				response := request.ResponseKind().(*kmsg.ProduceResponse)
				answer, partition := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
				answer.Topic, answer.TopicID = topic.Topic, topic.TopicID
				partition.ErrorCode = refusal.Code
				answer.Partitions = append(answer.Partitions, partition)
				response.Topics = append(response.Topics, answer)
				return response, nil, true
			})
			p, err := NewProducer(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ProducerBatchCompression(kgo.NoCompression()))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var records []*kgo.Record
			for _, value := range []string{"a", "poison", "b"} {
				records = append(records, &kgo.Record{Topic: "results", Value: []byte(value)})
			}
			for i, o := range p.Publish(ctx, records) {
				if i == 1 && !errors.Is(o.Err, refusal) || i != 1 && o.Err != nil {
					t.Errorf("record %d: %v", i, o.Err)
				}
			}
		})
	}
}

// franz-go names no broker that was reached and let the client go.
func TestPingNamesTheBrokers(t *testing.T) {
	brokers := testenv.NewFakeKafka(t, kfake.EnableSASL()).ListenAddrs()
	p, err := NewProducer(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), brokers[0]) {
		t.Errorf("ping without a password: %v, want an error that names %s", err, brokers[0])
	}
}
