// Command bench measures the projector against the limit of the machine and against its peers. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/chprojector/projector/internal/testenv"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code) //nolint:forbidigo // nothing is deferred here
}

func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var err error
	if len(args) == 3 && args[0] == "child" {
		err = runChild(ctx, args[1], args[2], stdout)
	} else {
		err = measure(ctx, args, stdout, stderr)
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintln(stderr, "bench:", err)
		return 2
	}
	fmt.Fprintln(stderr, "bench:", err)
	return 1
}

// measure runs suites, prints their tables and writes the report, also of what was measured before an error.
func measure(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	subject, err := buildProjector(ctx, o.out, o.profile)
	if err != nil {
		return err
	}
	l, err := newLab(ctx, subject, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.clickhouse.Stop()) }()
	b := &bench{lab: l, options: o}
	rep, err := b.newReport(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, s := range suites() {
		if len(o.only) > 0 && !slices.Contains(o.only, s.name) || len(o.only) == 0 && s.extra {
			continue
		}
		sections, err := s.run(ctx, b)
		if err != nil {
			failed = fmt.Errorf("suite %s: %w", s.name, err)
			break
		}
		rep.Sections = append(rep.Sections, sections...)
	}
	rep.markdown(stdout)
	return errors.Join(failed, rep.write(o.out))
}

var errUsage = errors.New("usage")

// options are the flags.
type options struct {
	only   []string
	short  bool
	events int
	rounds int
	match  *regexp.Regexp // of contestants
	out    string

	profile bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var only string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&only, "only", "", "comma-separated suites to run: "+strings.Join(suiteNames(), ", ")+" (default all)")
	flags.BoolVar(&o.short, "short", false, "fewer events, one round; about two minutes")
	flags.IntVar(&o.events, "events", 0, "events of 170 bytes a run; larger events in proportion (default 2000000, short 500000)")
	flags.IntVar(&o.rounds, "rounds", 0, "rounds of each suite (default 5 or 3, short 1)")
	flags.BoolVar(&o.profile, "profile", false, "also write processor and heap profiles of each projector process to -out")
	match := flags.String("match", "", "only contestants whose name matches this regular expression")
	flags.StringVar(&o.out, "out", "", "folder for results.md and results.json (default bench in the cache folder)")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	var err error
	if o.match, err = regexp.Compile(*match); err != nil {
		return o, fmt.Errorf("%w: -match: %w", errUsage, err)
	}
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	for _, name := range o.only {
		if !slices.Contains(suiteNames(), name) {
			return o, fmt.Errorf("%w: -only %s: want some of %s", errUsage, name, strings.Join(suiteNames(), ", "))
		}
	}
	if o.events == 0 {
		o.events = 2_000_000
		if o.short {
			o.events = 500_000
		}
	}
	if o.out == "" {
		cache, err := testenv.CacheDir()
		if err != nil {
			return o, err
		}
		o.out = filepath.Join(cache, "bench")
	}
	return o, nil
}
