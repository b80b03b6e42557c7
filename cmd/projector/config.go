package main

import (
	"fmt"
)

type configCommand struct {
	Check configCheck `cmd:"" help:"Report everything that is wrong with the configuration."`
	Print configPrint `cmd:"" help:"Print the effective configuration, without secrets."`
}

type configCheck struct {
	NoSecrets bool `help:"Do not open the files that hold secrets and certificates: for a machine that has none, such as a build."`
}

func (configCheck) Help() string {
	return `Reads the file, the environment and --set, and reports every problem at once with
its line, key, value and remedy. Exit code 2 if there is any. Nothing is connected.

Examples:

    projector config check
    projector --config prod.yaml config check --no-secrets
    PROJECTOR_LANES=2 projector config check`
}

func (c configCheck) Run(p *program) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	if !c.NoSecrets {
		if err := cfg.CheckRun(); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(p.stdout, "%s: %s, no problems\n", p.line.Config, count(len(cfg.Projections), "projection"))
	return err
}

type configPrint struct {
	Output string `short:"o" help:"yaml, which can be read again, or json for programs." enum:"yaml,json" default:"yaml" placeholder:"FORMAT"`
}

func (configPrint) Help() string {
	return `Prints what holds after defaults, file, environment and --set, as YAML that can be
read again. Secrets are shown as (redacted).

Examples:

    projector config print
    projector config print -o json
    projector --set batch.delay=250ms config print`
}

func (c configPrint) Run(p *program) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	write := cfg.YAML
	if c.Output == "json" {
		write = cfg.JSON
	}
	text, err := write()
	if err != nil {
		return err
	}
	_, err = p.stdout.Write(text)
	return err
}
