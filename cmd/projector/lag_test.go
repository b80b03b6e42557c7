package main

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/reconcile"
	"github.com/chprojector/projector/internal/testenv"
)

// TestBehindATransaction: the end of a partition counts the marks of
// transactions and what they took back. A consumer is given neither, so a group
// that has read everything commits an offset below that end for ever.
func TestBehindATransaction(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(1, "results"))
	brokers := cluster.ListenAddrs()
	producer, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID("writer"), kgo.DefaultProduceTopic("results"))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	admin, err := kafka.NewAdmin(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	begin := func() {
		t.Helper()
		if err := producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := producer.ProduceSync(t.Context(), kgo.StringRecord("one"), kgo.StringRecord("two")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	end := func(how kgo.TransactionEndTry) {
		t.Helper()
		if err := producer.EndTransaction(t.Context(), how); err != nil {
			t.Fatal(err)
		}
	}
	l := lag{admin, "g", []string{"results"}}
	behind := func(what string, committed, want int64) {
		t.Helper()
		commit := kadm.Offsets{}
		commit.AddOffset("results", 0, committed, -1)
		if err := kadm.NewClient(producer).CommitAllOffsets(t.Context(), "g", commit); err != nil {
			t.Fatal(err)
		}
		var mark reconcile.Mark
		if mark, err = l.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := l.Behind(t.Context(), mark); err != nil || got != want {
			t.Errorf("%s: %d behind, %v; want %d", what, got, err, want)
		}
	}
	begin()
	end(kgo.TryCommit) // records at 0 and 1, the mark at 2
	behind("all records read", 2, 0)
	behind("one record left", 1, 2)
	begin()
	behind("a transaction is open", 2, 3)
	end(kgo.TryAbort) // records at 3 and 4, the mark at 5
	behind("nothing but a transaction that was taken back", 2, 0)
	begin()
	end(kgo.TryCommit)
	behind("a record behind one that was taken back", 2, 7)
}
