package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/chprojector/projector/internal/testenv"
)

// lab is the ClickHouse server that all contestants write to, one after another.
type lab struct {
	clickhouse *testenv.ClickHouse
	address    address
	log        io.Writer
	began      time.Time
	binary     binary
	runs       int
}

func newLab(ctx context.Context, b binary, log io.Writer) (*lab, error) {
	server, err := testenv.StartClickHouse(ctx, testenv.ClickHouseConfig{})
	if err != nil {
		return nil, err
	}
	return &lab{
		clickhouse: server, address: address{server.Addr(), server.HTTPAddr()}, log: log, began: time.Now(), binary: b,
	}, nil
}

// say writes one line of progress with the time since the start.
func (l *lab) say(format string, args ...any) {
	fmt.Fprintf(l.log, "%6.1fs  %s\n", time.Since(l.began).Seconds(), fmt.Sprintf(format, args...))
}

// prepare creates an empty table, with its views, in a database of its own, and names a consumer group nobody used.
func (l *lab) prepare(ctx context.Context, s *stage) (*run, error) {
	l.runs++
	r := &run{stage: s, server: l.address, database: fmt.Sprintf("race_%d", l.runs), group: fmt.Sprintf("race-%d", l.runs)}
	if err := execute(ctx, l.address, "CREATE DATABASE "+r.database); err != nil {
		return nil, err
	}
	if err := l.binary.applySchema(ctx, r); err != nil {
		return nil, closeAfter(err, func() error { return l.drop(r) })
	}
	return r, nil
}

// drop removes what prepare created. It has a context of its own, for it also cleans up after one that is done.
func (l *lab) drop(r *run) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return execute(ctx, l.address, "DROP DATABASE "+r.database+" SYNC")
}
