package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/chprojector/projector/internal/config"
)

// commandLine is the grammar. Flags before the command hold for every command.
type commandLine struct {
	Config    string   `group:"global" help:"Configuration file (default config.yaml, or PROJECTOR_CONFIG)." placeholder:"FILE" default:"config.yaml" envs:"PROJECTOR_CONFIG"`
	Set       []string `group:"global" help:"Override one key of the configuration, such as lanes=2. May be repeated." placeholder:"KEY=VALUE" sep:"none"`
	LogLevel  string   `group:"global" help:"Least level of log lines: debug, info, warn or error (default info, or PROJECTOR_LOG_LEVEL)." placeholder:"LEVEL" enum:"debug,info,warn,error" default:"info" envs:"PROJECTOR_LOG_LEVEL"`
	LogFormat string   `group:"global" help:"Format of log lines: json, console or auto, which is console on a terminal (default auto, or PROJECTOR_LOG_FORMAT)." placeholder:"FORMAT" enum:"json,console,auto" default:"auto" envs:"PROJECTOR_LOG_FORMAT"`

	Run       runCommand        `cmd:"" help:"Consume and project until SIGTERM."`
	Schema    schemaCommand     `cmd:"" help:"Print, plan, apply or check tables and views."`
	Mapping   mappingCommand    `cmd:"" help:"Check the mapping, or try it on an event."`
	Relay     relayCommand      `cmd:"" help:"Publish the transactional outbox of the MySQL shards until SIGTERM."`
	Outbox    outboxCommand     `cmd:"" help:"Print the outbox's table, list its events, replay parked ones."`
	Settings  configCommand     `cmd:"" name:"config" help:"Check or print the configuration."`
	Backfill  backfillCommand   `cmd:"" help:"Write the rows of MySQL, with their own versions."`
	Reconcile reconcileCommand  `cmd:"" help:"Compare tables with their source, record by record."`
	Repair    repairCommand     `cmd:"" help:"Correct records that differ from their source, by an audited plan."`
	Rebuild   rebuildCommand    `cmd:"" help:"Fill a clean table beside one that is wrong, verify it, and switch to it."`
	Letters   deadletterCommand `cmd:"" name:"deadletter" help:"List or show dead letters."`
	Replay    replayCommand     `cmd:"" help:"Bring dead letters back through the mapping."`
	Offsets   offsetsCommand    `cmd:"" help:"Show or restore the offsets of consumer groups."`
	Status    statusCommand     `cmd:"" help:"Show lag, freshness, stored against committed offsets, and dead letters."`
	Version   versionCommand    `cmd:"" help:"Print the version."`
}

// program is what every command works with.
type program struct {
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
	line           commandLine
}

const description = `Kafka events become current, correctable rows in ClickHouse.

Results go to stdout, progress and logs to stderr. Exit codes: 0 done; 1 failed;
2 usage or configuration; 3 ran to the end and the answer is no;
4 inconclusive; 130 forced by a second signal.`

func (p *program) execute(ctx context.Context, args []string) error {
	helped := false // kong goes on to parse after it has printed help
	parser, err := kong.New(&p.line,
		kong.Name("projector"),
		kong.Description(description),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 100, NoAppDescFormat: true}),
		kong.ValueFormatter(withDefault),
		kong.ExplicitGroups([]kong.Group{{Key: "global", Title: "Global flags:"}}),
		kong.Resolvers(variables(p.environ)),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(p),
	)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if helped {
		return nil
	}
	if err != nil {
		return usageError{withoutValue(err), strings.TrimSpace("projector " + commandOf(err))}
	}
	return admitted(command.Run())
}

// withDefault is the help of a flag with what holds without it, unless its text says so already.
func withDefault(v *kong.Value) string {
	if v.Default == "" || strings.Contains(v.Help, "(default ") {
		return v.Help
	}
	return fmt.Sprintf("%s (default %s).", strings.TrimSuffix(v.Help, "."), v.Default)
}

// withoutValue says plainly that a flag at the end of the line lacks its value,
// where kong expected one and got "EOL".
func withoutValue(err error) error {
	if flag, rest, ok := strings.Cut(err.Error(), ": expected "); ok && strings.HasSuffix(rest, "(<EOL>)") {
		return fmt.Errorf("%s: the value is missing", flag)
	}
	return err
}

// commandOf is the command within which parsing failed, for the hint.
func commandOf(err error) string {
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context != nil {
		if node := parse.Context.Selected(); node != nil {
			return strings.TrimPrefix(node.FullPath(), "projector ")
		}
	}
	return ""
}

// variables gives flags their value from the environment that run was given.
// kong's own env tag reads the process's, which a test cannot set in parallel.
func variables(environ []string) kong.Resolver {
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		name := flag.Tag.Get("envs")
		for _, v := range environ {
			if value, ok := strings.CutPrefix(v, name+"="); ok && name != "" && value != "" {
				return value, nil
			}
		}
		return nil, nil
	})
}

// load reads the configuration that the command line names.
func (p *program) load() (*config.Config, error) {
	return config.Load(config.Input{Path: p.line.Config, Environ: p.environ, Set: p.line.Set})
}

// projections are all, or the one of that name.
func projections(cfg *config.Config, name string) (all []*config.Projection, err error) {
	if name != "" {
		p, err := projection(cfg, name)
		return []*config.Projection{p}, err
	}
	for i := range cfg.Projections {
		all = append(all, &cfg.Projections[i])
	}
	return all, nil
}

// projection finds one projection by name; "" means the only one there is.
func projection(cfg *config.Config, name string) (*config.Projection, error) {
	var names []string
	for i := range cfg.Projections {
		if p := &cfg.Projections[i]; p.Name == name || name == "" && len(cfg.Projections) == 1 {
			return p, nil
		}
		names = append(names, cfg.Projections[i].Name)
	}
	if name == "" {
		return nil, usageError{fmt.Errorf("several projections are configured; name one with --projection: %s", strings.Join(names, ", ")), ""}
	}
	return nil, usageError{fmt.Errorf("there is no projection %q; use one of %s", name, strings.Join(names, ", ")), ""}
}
