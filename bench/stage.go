package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/fitness"
	"github.com/chprojector/projector/internal/testenv"
)

// topic is what every stage calls its topic, the name in the default configuration.
const topic = "fitness-results"

// stage is a broker that holds one full topic.
type stage struct {
	broker     string // "kfake" or "kafka"
	brokers    []string
	pid        int // of the broker
	partitions int32
	size       int // of an event, nominal
	events     int
	bytes      int64 // of all values
	dataIDs    uint64
	results    int64 // sum of all results in thousandths
	stop       func() error
}

// stageConfig says what a stage holds.
type stageConfig struct {
	broker     string
	partitions int32
	size       int // 170, 1000 or 10000
	events     int // 0: an empty topic
}

// newStage starts a broker and fills its topic.
func newStage(ctx context.Context, cfg stageConfig) (*stage, error) {
	s, err := startBroker(ctx, cfg.broker)
	if err != nil {
		return nil, err
	}
	s.partitions, s.size, s.events = cfg.partitions, cfg.size, cfg.events
	if err := s.createTopic(ctx); err != nil {
		return nil, closeAfter(err, s.stop)
	}
	if s.events > 0 {
		if err := s.fill(ctx); err != nil {
			return nil, closeAfter(err, s.stop)
		}
	}
	return s, nil
}

func startBroker(ctx context.Context, kind string) (*stage, error) {
	if kind == "kafka" {
		kafka, err := testenv.StartKafka(ctx, testenv.KafkaConfig{JVM: []string{"-Xmx1g"}})
		if err != nil {
			return nil, err
		}
		return &stage{broker: kind, brokers: kafka.Brokers(), pid: kafka.PID(), stop: kafka.Stop}, nil
	}
	argv, err := childCommand("broker", job{})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start kfake: %w", err)
	}
	stop := func() error {
		in.Close()
		return cmd.Wait()
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, closeAfter(fmt.Errorf("start kfake: it printed no address: %w", err), stop)
	}
	return &stage{broker: kind, brokers: []string{strings.TrimSpace(address)}, pid: cmd.Process.Pid, stop: stop}, nil
}

func (s *stage) createTopic(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, s.partitions, 1, nil, topic); err != nil {
		return fmt.Errorf("create the topic: %w", err)
	}
	return nil
}

// fill produces all events with franz-go's defaults, which compress with snappy. Every event is of another record:
// merges then remove no row, and the number of rows tells how far a contestant is.
func (s *stage) fill(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.DefaultProduceTopic(topic),
		kgo.MaxBufferedRecords(50_000))
	if err != nil {
		return err
	}
	defer client.Close()
	g, err := fitness.New(fitness.Config{Records: s.events, Size: s.size})
	if err != nil {
		return err
	}
	var first failure
	for i := range s.events {
		e := g.At(i)
		s.dataIDs += e.DataID
		s.results += e.Result
		value := g.AppendValue(make([]byte, 0, s.size+64), i)
		s.bytes += int64(len(value))
		client.Produce(ctx, &kgo.Record{Key: e.AppendKey(nil), Value: value}, func(_ *kgo.Record, err error) { first.note(err) })
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("fill the topic: %w", err)
	}
	if first.err != nil {
		return fmt.Errorf("fill the topic: %w", first.err)
	}
	return nil
}

// failure keeps the first error of many callbacks.
type failure struct {
	once sync.Once
	err  error
}

func (f *failure) note(err error) {
	if err != nil {
		f.once.Do(func() { f.err = err })
	}
}
