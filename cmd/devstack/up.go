package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

type upCmd struct {
	ClickHouse         bool             `name:"clickhouse" default:"true" negatable:"" help:"Start ClickHouse (native port 9000, HTTP port 8123)."`
	ClickHouseDatabase string           `name:"clickhouse-database" default:"reporting" placeholder:"NAME" help:"Database to create in ClickHouse (${default})."`
	Kafka              string           `enum:"fake,real,none" default:"fake" help:"Kafka on port 9092: fake (kfake, in this process, starts at once), real (Apache Kafka; needs Java) or none."`
	Topics             map[string]int32 `default:"fitness-results=4;fitness-results-dlq=1" placeholder:"TOPIC=PARTITIONS" help:"Topics to create (${default}). Others come into being when something is produced to them."`
	MariaDB            bool             `name:"mariadb" negatable:"" help:"Start MariaDB, which speaks MySQL's protocol, with an outbox for projector relay (port 3306)."`
	MariaDBDatabase    string           `name:"mariadb-database" default:"s0" placeholder:"NAME" help:"Database to create in MariaDB (${default})."`
	Ports              string           `enum:"default,free" default:"default" help:"default: those of config.yaml; free: any."`
	Data               string           `type:"path" placeholder:"DIR" help:"Keep the data in DIR. Without it they are temporary and removed at the end."`
	Output             string           `short:"o" enum:"shell,json" default:"shell" help:"How to print the addresses: shell (lines for eval) or json."`
	Detach             bool             `help:"Return when the servers answer and leave them running in the background."`

	// Background is set in the process that --detach starts.
	Background bool `hidden:""`
}

// Validate refuses what no broker should be asked for: kfake would take it.
func (c *upCmd) Validate() error {
	for topic, partitions := range c.Topics {
		if partitions < 1 {
			return fmt.Errorf("topic %s cannot have %d partitions", topic, partitions)
		}
	}
	return nil
}

// watchInterval is how often up looks whether its servers still run.
const watchInterval = time.Second

func (c *upCmd) Run(ctx context.Context, to streams) (err error) {
	if c.Detach {
		return c.detach(ctx, to)
	}
	var state *os.File
	if c.Background {
		if state, err = claimState(); err != nil {
			return err
		}
		defer releaseState(state) // last of all: `down` waits for it
	}
	s := &stack{endpoints: endpoints{PID: os.Getpid()}}
	defer func() { err = errors.Join(err, s.stop()) }()
	begin := time.Now()
	if err := startStack(ctx, c, s); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted before the servers were ready")
		}
		return err
	}
	if state != nil {
		if err := s.print(state, "json"); err != nil {
			return fmt.Errorf("write the addresses: %w", err)
		}
	}
	if err := s.print(to.out, c.Output); err != nil {
		return fmt.Errorf("print the addresses: %w", err)
	}
	fmt.Fprintf(to.err, "devstack: ready after %.1f s; stop with Ctrl-C or SIGTERM\n", time.Since(begin).Seconds())
	if err := s.hint(to.err); err != nil {
		return err
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.running(); err != nil {
				return err
			}
		}
	}
}
