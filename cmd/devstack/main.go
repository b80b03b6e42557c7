// Command devstack runs real servers on one machine without containers: Kafka, ClickHouse and MariaDB.
package main

import (
	"os"

	"github.com/alecthomas/kong"

	"github.com/chprojector/projector/internal/testenv"
)

type cli struct {
	Keep            keepCmd            `cmd:"" hidden:""`
	ServeClickHouse serveClickHouseCmd `cmd:"" name:"serve-clickhouse" hidden:""`
}

func main() {
	testenv.IsHelper()
	ctx := kong.Parse(&cli{})
	ctx.FatalIfErrorf(ctx.Run())
}

type keepCmd struct {
	Log     string   `required:""`
	Remove  string   ``
	Command []string `arg:"" passthrough:""`
}

func (c *keepCmd) Run() error {
	return testenv.Keep(testenv.KeeperConfig{Command: c.Command, Log: c.Log, Remove: c.Remove}, os.Stdin, os.Stdout)
}
