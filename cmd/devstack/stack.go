package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/outbox"
	"github.com/chprojector/projector/internal/testenv"
)

// stack is what `up` started.
type stack struct {
	servers []server // in the order of their start
	fake    *kfake.Cluster
	endpoints
}

// server is a process of testenv.
type server interface {
	Running() error
	Stop() error
}

// outboxTable is outbox.table of config.yaml.
const outboxTable = "outbox"

// ports are where the servers listen; 0 is any free port.
type ports struct{ kafka, clickhouse, clickhouseHTTP, mariadb int }

// startStack starts what cmd asks for. On error the caller still has to stop what has been started by then.
func startStack(ctx context.Context, cmd *upCmd, s *stack) error {
	var at ports
	if cmd.Ports == "default" {
		at = ports{kafka: 9092, clickhouse: 9000, clickhouseHTTP: 8123, mariadb: 3306}
	}
	if cmd.ClickHouse {
		c, err := testenv.StartClickHouse(ctx, testenv.ClickHouseConfig{
			Dir: cmd.dir("clickhouse"), TCPPort: at.clickhouse, HTTPPort: at.clickhouseHTTP,
			Databases: []string{cmd.ClickHouseDatabase},
		})
		if err != nil {
			return err
		}
		s.servers = append(s.servers, c)
		s.ClickHouse = &clickHouseEndpoint{
			Address: c.Addr(), HTTP: "http://" + c.HTTPAddr(), Database: cmd.ClickHouseDatabase, PID: c.PID(),
		}
	}
	if cmd.MariaDB {
		m, err := testenv.StartMariaDB(ctx, testenv.MariaDBConfig{
			Dir: cmd.dir("mariadb"), Port: at.mariadb, Databases: []string{cmd.MariaDBDatabase},
		})
		if err != nil {
			return err
		}
		s.servers = append(s.servers, m)
		if err := m.Exec(ctx, "USE `"+cmd.MariaDBDatabase+"`", outbox.DDL(outboxTable)); err != nil {
			return fmt.Errorf("create the outbox: %w", err)
		}
		s.MariaDB = &mariaDBEndpoint{Address: m.Addr(), DSN: m.DSN(cmd.MariaDBDatabase), PID: m.PID()}
	}
	switch cmd.Kafka {
	case "fake":
		if err := s.startFake(cmd.dir("kafka"), at.kafka); err != nil {
			return err
		}
	case "real":
		k, err := testenv.StartKafka(ctx, testenv.KafkaConfig{
			Dir: cmd.dir("kafka"), Port: at.kafka, Properties: map[string]string{"auto.create.topics.enable": "true"},
		})
		if err != nil {
			return err
		}
		s.servers = append(s.servers, k)
		s.Kafka = &kafkaEndpoint{Brokers: k.Brokers(), PID: k.PID()}
	case "none":
		return nil
	}
	return createTopics(ctx, s.Kafka.Brokers, cmd.Topics)
}

func (s *stack) startFake(dir string, port int) (err error) {
	options := []kfake.Opt{kfake.NumBrokers(1), kfake.Ports(port), kfake.AllowAutoTopicCreation()}
	if dir != "" {
		options = append(options, kfake.DataDir(dir))
	}
	s.fake, err = kfake.NewCluster(options...)
	if err != nil {
		return fmt.Errorf("start kfake on port %d (--ports=free takes any): %w", port, err)
	}
	s.Kafka = &kafkaEndpoint{Brokers: s.fake.ListenAddrs()}
	return nil
}

// stop ends what runs, last started first.
func (s *stack) stop() error {
	var failed error
	if s.fake != nil {
		s.fake.Close()
	}
	for _, server := range slices.Backward(s.servers) {
		failed = errors.Join(failed, server.Stop())
	}
	return failed
}

// running returns an error for each server that ended by itself.
func (s *stack) running() error {
	var ended error
	for _, server := range s.servers {
		ended = errors.Join(ended, server.Running())
	}
	return ended
}

func createTopics(ctx context.Context, brokers []string, topics map[string]int32) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	for topic, partitions := range topics {
		_, err := admin.CreateTopic(ctx, partitions, 1, nil, topic)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create the topic %s with %d partitions: %w", topic, partitions, err)
		}
	}
	return nil
}

// dir returns the folder of a server's data, empty for temporary data.
func (c *upCmd) dir(server string) string {
	if c.Data == "" {
		return ""
	}
	return filepath.Join(c.Data, server)
}
