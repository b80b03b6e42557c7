package main

import (
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
)

// logger writes to stderr: results have stdout for themselves.
func (p *program) logger() zerolog.Logger {
	level, err := zerolog.ParseLevel(p.line.LogLevel)
	if err != nil { // the grammar admits only known levels
		level = zerolog.InfoLevel
	}
	format := p.line.LogFormat
	if format == "auto" && terminal(p.stderr) {
		format = "console"
	}
	if format == "console" {
		out := zerolog.ConsoleWriter{Out: p.stderr, NoColor: !terminal(p.stderr), TimeFormat: time.TimeOnly}
		return zerolog.New(zerolog.SyncWriter(out)).Level(level).With().Timestamp().Logger()
	}
	return zerolog.New(zerolog.SyncWriter(p.stderr)).Level(level).With().Timestamp().Logger()
}

// terminal reports whether a stream is one.
func terminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}
