package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/testenv"
)

func newAdmin(t *testing.T, opts ...kfake.Opt) (*kafka.Admin, *kgo.Client) {
	t.Helper()
	cluster := testenv.NewFakeKafka(t, opts...)
	admin, err := kafka.NewAdmin(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return admin, client
}

func produce(t *testing.T, client *kgo.Client, topic string, partition int32, n int) {
	t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "%s/%d#%d", topic, partition, i)}
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// A cluster that has never had a group has no coordinator when it is first
// asked for one.
func TestLagBeforeTheFirstGroup(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(1, "results"))
	admin, err := kafka.NewAdmin(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	const refusals = 10 // more than franz-go tries by itself
	asked := 0
	refuse := func(request kmsg.Request) (kmsg.Response, error, bool) {
		if asked++; asked > refusals {
			return nil, nil, false
		}
		cluster.KeepControl()
		response := request.ResponseKind().(*kmsg.FindCoordinatorResponse)
		for _, key := range request.(*kmsg.FindCoordinatorRequest).CoordinatorKeys {
			c := kmsg.NewFindCoordinatorResponseCoordinator()
			c.Key, c.ErrorCode = key, kerr.CoordinatorNotAvailable.Code
			response.Coordinators = append(response.Coordinators, c)
		}
		return response, nil, true
	}
	cluster.ControlKey(int16(kmsg.FindCoordinator), refuse)
	if members, err := admin.Members(t.Context(), "another"); err != nil || len(members) != 0 || asked <= refusals {
		t.Errorf("asked %d times: %v, %v", asked, members, err)
	}
	asked = 0
	cluster.ControlKey(int16(kmsg.FindCoordinator), refuse)
	lags, err := admin.Lag(t.Context(), "g", "results")
	if err != nil || len(lags) != 1 || lags[0].Committed != -1 || asked <= refusals {
		t.Errorf("asked %d times: %v, %v", asked, lags, err)
	}
}

func TestLag(t *testing.T) {
	admin, client := newAdmin(t, kfake.SeedTopics(3, "results"), kfake.SeedTopics(1, "other"))
	for p, n := range []int{10, 5, 7} {
		produce(t, client, "results", int32(p), n)
	}
	adm := kadm.NewClient(client)
	commit := kadm.Offsets{}
	commit.AddOffset("results", 0, 4, -1)
	commit.AddOffset("results", 1, 1, -1)
	if err := adm.CommitAllOffsets(t.Context(), "g", commit); err != nil {
		t.Fatal(err)
	}
	expired := kadm.Offsets{}
	expired.AddOffset("results", 1, 3, -1)
	expired.AddOffset("results", 2, 2, -1)
	if _, err := adm.DeleteRecords(t.Context(), expired); err != nil {
		t.Fatal(err)
	}

	got, err := admin.Lag(t.Context(), "g", "results", "other")
	if err != nil {
		t.Fatal(err)
	}
	want := []kafka.PartitionLag{
		{Topic: "other", Partition: 0, Start: 0, End: 0, Committed: -1},
		{Topic: "results", Partition: 0, Start: 0, End: 10, Committed: 4},
		{Topic: "results", Partition: 1, Start: 3, End: 5, Committed: 1},
		{Topic: "results", Partition: 2, Start: 2, End: 7, Committed: -1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	for i, w := range []struct{ lag, expired int64 }{{0, 0}, {6, 0}, {2, 2}, {5, 0}} {
		if got[i].Lag() != w.lag || got[i].Expired() != w.expired || got[i].Ahead() {
			t.Errorf("%+v: lag %d, expired %d, ahead %v, want %d, %d, false", got[i], got[i].Lag(), got[i].Expired(), got[i].Ahead(), w.lag, w.expired)
		}
	}
}

func TestLagOfAnotherCluster(t *testing.T) {
	l := kafka.PartitionLag{Start: 0, End: 10, Committed: 11}
	if l.Lag() != 0 || !l.Ahead() {
		t.Errorf("lag %d, ahead %v, want 0, true", l.Lag(), l.Ahead())
	}
}

func TestUnknownTopic(t *testing.T) {
	admin, _ := newAdmin(t, kfake.SeedTopics(1, "results"))
	ctx := t.Context()
	_, topics := admin.Topics(ctx, "results", "missing")
	_, offsets := admin.Offsets(ctx, "results", "missing")
	_, lag := admin.Lag(ctx, "g", "missing")
	_, size := admin.MaxMessageBytes(ctx, "missing")
	for name, err := range map[string]error{"Topics": topics, "Offsets": offsets, "Lag": lag, "MaxMessageBytes": size} {
		if !errors.Is(err, kafka.ErrUnknownTopic) {
			t.Errorf("%s: %v, want ErrUnknownTopic", name, err)
		}
	}
}

func TestCreateTopic(t *testing.T) {
	admin, _ := newAdmin(t)
	for range 2 { // the second finds it there
		if err := admin.CreateTopic(t.Context(), "results", 6, -1, map[string]string{"max.message.bytes": "123456"}); err != nil {
			t.Fatal(err)
		}
	}
	topics, err := admin.Topics(t.Context(), "results")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]kafka.Topic{{Name: "results", Partitions: 6, Replicas: 1}}, topics); diff != "" {
		t.Error(diff)
	}
	if size, err := admin.MaxMessageBytes(t.Context(), "results"); size != 123456 || err != nil {
		t.Errorf("max.message.bytes = %d, %v", size, err)
	}
	if err := admin.CreateTopic(t.Context(), "replicated", 1, 3, nil); !errors.Is(err, kerr.InvalidReplicationFactor) {
		t.Errorf("create a topic with more replicas than brokers: %v", err)
	}
}

// TestAdminEndsWithItsContext: the broker accepts connections and never
// answers, and still the questions end.
func TestAdminEndsWithItsContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	admin, err := kafka.NewAdmin(kgo.SeedBrokers(silent.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, offsets := admin.Offsets(ctx, "results")
	_, lag := admin.Lag(ctx, "g", "results")
	for name, err := range map[string]error{"Offsets": offsets, "Lag": lag, "Ping": admin.Ping(ctx)} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want the deadline", name, err)
		}
	}
}
