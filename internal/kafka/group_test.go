package kafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/testenv"
)

// commitsAndMembers tests commits for a group, with and without members.
func commitsAndMembers(t *testing.T, brokers []string) {
	t.Helper()
	admin, err := kafka.NewAdmin(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ctx := t.Context()
	if got, err := admin.Commits(ctx, "lost"); err != nil || len(got) != 0 {
		t.Errorf("commits of no group: %v, %v", got, err)
	}
	if got, err := admin.Members(ctx, "lost"); err != nil || len(got) != 0 {
		t.Errorf("members of no group: %v, %v", got, err)
	}
	want := kafka.Commits{}
	want.Set("results", 0, kafka.Commit{Offset: 7, Epoch: -1, Metadata: `{"note":"é"}`})
	want.Set("results", 1, kafka.Commit{Offset: 0, Epoch: -1})
	if err := admin.Commit(ctx, "lost", want); err != nil {
		t.Fatal(err)
	}
	got, err := admin.Commits(ctx, "lost")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	member, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ClientID("somebody"), kgo.ConsumerGroup("lost"), kgo.ConsumeTopics("results"), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	testenv.Eventually(t, "the group has a member", func() bool {
		members, err := admin.Members(ctx, "lost")
		return err == nil && len(members) == 1
	})
	testenv.Eventually(t, "a stranger may not commit", func() bool {
		return errors.Is(admin.Commit(ctx, "lost", want), kafka.ErrGroupBusy)
	})
}

func TestCommitsAndMembers(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results"))
	commitsAndMembers(t, cluster.ListenAddrs())
}

func TestOffsetsAt(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(2, "results"))
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := range 10 {
		r := &kgo.Record{Topic: "results", Value: []byte("x"), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i)*1000)}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	admin := kafka.AdminOf(client)
	for at, want := range map[int64]int64{1_600_000_000_000: 0, 1_700_000_004_000: 4, 1_700_000_004_001: 5, 1_800_000_000_000: 10} {
		got, err := admin.OffsetsAt(t.Context(), "results", time.UnixMilli(at))
		if diff := cmp.Diff(map[int32]int64{0: want, 1: 0}, got); err != nil || diff != "" {
			t.Errorf("%d: %v %s", at, err, diff)
		}
	}
}
