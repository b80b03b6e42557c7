package main

import (
	"fmt"

	"github.com/chprojector/projector/internal/ops"
)

// version is set by the linker in a release: -X main.version=v1.2.3.
var version string

type versionCommand struct{ output }

func (versionCommand) Help() string {
	return `Examples:

    projector version
    projector version -o json`
}

func (c versionCommand) Run(p *program) error {
	build := ops.ReadBuild(version)
	if c.json() {
		return printJSON(p.stdout, build)
	}
	_, err := fmt.Fprintln(p.stdout, build)
	return err
}
