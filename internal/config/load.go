// Package config reads the configuration: YAML, then environment, then flags.
//
// It is strict, because a configuration that is half understood writes wrong
// reports: unknown keys, numbers without a unit, wrong types and contradictions
// are errors that name the file's line, the key, the value and the remedy, and
// all of them are reported at once.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"
)

// Input is where a configuration comes from, the weakest first.
type Input struct {
	Path    string   // the YAML file
	Environ []string // as from os.Environ; only PROJECTOR_… is read
	Set     []string // KEY=VALUE, from --set
}

// Load reads, merges, decodes and checks a configuration. The error is a
// [Problems] with everything that is wrong. Load opens no other file than the
// configuration: secrets and certificates are read by [Config.CheckFiles] and its like,
// so that a configuration can be checked where its secrets are not.
func Load(in Input) (*Config, error) {
	text, err := os.ReadFile(in.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, Problems{{Origin: in.Path, Message: "no such file; name one with --config or PROJECTOR_CONFIG"}}
	case err != nil:
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			err = at.Err // without the path, which is there already
		}
		return nil, Problems{{Origin: in.Path, Message: fmt.Sprintf("cannot be read: %v", err)}}
	}
	return parse(in, text)
}

func parse(in Input, text []byte) (*Config, error) {
	rep := &report{places: places{}, names: map[string]string{}}
	k := koanf.New(".")
	over := &overrides{rep: rep}
	file := (&parser{file: in.Path, rep: rep}).parse(text)
	layers := errors.Join(
		k.Load(confmap.Provider(file, ""), nil),
		k.Load(env.Provider(".", env.Opt{
			Prefix:        envPrefix,
			TransformFunc: over.fromEnv,
			EnvironFunc:   func() []string { return in.Environ },
		}), nil),
		k.Load(confmap.Provider(over.fromFlags(in.Set), "."), nil),
	)
	if layers != nil {
		return nil, layers
	}
	cfg := Default()
	cfg.places = rep.places
	if !slices.Contains(rep.broken, "") {
		decode(&cfg, k.Raw(), rep)
		check(&cfg, rep)
	}
	if err := rep.err(); err != nil {
		return nil, err
	}
	return &cfg, nil
}
