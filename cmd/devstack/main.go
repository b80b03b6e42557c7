// Command devstack runs real servers on one machine without containers: Kafka, ClickHouse and MariaDB, each with empty
// data or with a folder of yours, and cleans up behind itself however it ends.
//
//	devstack                      fake Kafka, ClickHouse; the ports of config.yaml; until Ctrl-C
//	devstack up --kafka=real --mariadb --ports=free -o json
//	devstack up --detach          in the background; then: devstack status, devstack down
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/chprojector/projector/internal/testenv"
)

type cli struct {
	Up      upCmd      `cmd:"" default:"withargs" help:"Start the servers, print how to reach them, and run until SIGINT or SIGTERM (the default command)."`
	Down    downCmd    `cmd:"" help:"Stop the servers that run in the background."`
	Status  statusCmd  `cmd:"" help:"Print how to reach the servers that run in the background; exit 3 if there are none."`
	Demo    demoCmd    `cmd:"" help:"Play the main job on embedded servers and check its outcome."`
	Install installCmd `cmd:"" help:"Fetch the servers, so that starting them needs no network."`

	Keep            keepCmd            `cmd:"" hidden:"" help:"Run a server and end it when the standard input ends."`
	ServeClickHouse serveClickHouseCmd `cmd:"" hidden:"" name:"serve-clickhouse" help:"Run the ClickHouse of libchdb."`
}

// Exit codes, those of projector.
const (
	exitFailed = 1
	exitUsage  = 2
	exitNo     = 3
)

// errNo means that a command ran to its end and the answer is no.
var errNo = errors.New("devstack is not running in the background (start it with: devstack up --detach)")

func main() {
	testenv.IsHelper()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) //nolint:forbidigo // main does nothing else
}

func run(args []string, stdout, stderr io.Writer) (code int) {
	// --help ends the parse with a panic of our own, so that deferred functions and tests go on.
	type exit int
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exit)
			if !ok {
				panic(r)
			}
			code = int(e)
		}
	}()
	var c cli
	parser, err := kong.New(&c, kong.Name("devstack"), kong.Writers(stdout, stderr),
		kong.Description("Real Kafka, ClickHouse and MariaDB on one machine, without containers."),
		kong.Exit(func(code int) { panic(exit(code)) }), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		fmt.Fprintln(stderr, "devstack:", err)
		return exitFailed
	}
	command, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(stderr, "devstack:", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends us at once
	command.BindTo(ctx, (*context.Context)(nil))
	command.Bind(streams{out: stdout, err: stderr})
	switch err := command.Run(); {
	case err == nil:
		return 0
	case errors.Is(err, errNo):
		fmt.Fprintln(stderr, "devstack:", err)
		return exitNo
	default:
		fmt.Fprintln(stderr, "devstack:", err)
		return exitFailed
	}
}

// streams are what a command writes to: results to out, progress and logs to err.
type streams struct{ out, err io.Writer }

type installCmd struct {
	Servers []string `arg:"" optional:"" enum:"clickhouse,kafka,mariadb,promtool,chromium" help:"clickhouse, kafka, mariadb, promtool, chromium; all of them but chromium if none is named."`
}

func (c *installCmd) Run(ctx context.Context) error { return testenv.Install(ctx, c.Servers...) }

type keepCmd struct {
	Log     string   `required:"" help:"File for the server's output."`
	Remove  string   `help:"Folder to remove at the end."`
	Command []string `arg:"" passthrough:"" help:"The server and its arguments."`
}

func (c *keepCmd) Run() error {
	// Signals meant for the owner must not end the keeper before it has cleaned up. They are caught rather than
	// ignored: an ignored signal would stay ignored in the server.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	return testenv.Keep(testenv.KeeperConfig{Command: c.Command, Log: c.Log, Remove: c.Remove}, os.Stdin, os.Stdout)
}
