package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go"
)

// result is what one run measured.
type result struct {
	Contestant string  `json:"contestant"`
	Round      int     `json:"round"`
	Events     int     `json:"events"`
	Seconds    float64 `json:"seconds"`    // from the start of the process to the last acknowledged row
	Rate       float64 `json:"rate"`       // events a second over all of Seconds
	Steady     float64 `json:"steady"`     // events a second between the first and the last tenth
	CPU        float64 `json:"cpu"`        // processor seconds of the contestant's own processes a million events
	ServerCPU  float64 `json:"server_cpu"` // the same of ClickHouse
	BrokerCPU  float64 `json:"broker_cpu"` // the same of the broker
	PeakBytes  int64   `json:"peak_bytes"` // greatest resident memory of one of the contestant's processes
	Allocs     float64 `json:"allocs"`     // heap allocations an event, 0 where unknown
	Others     float64 `json:"others"`     // share of the machine's processor time that went to other programs meanwhile
}

// patience is how long a run may take.
const patience = 3 * time.Minute

// race lets one contestant bring one stage's topic into an empty table.
func (l *lab) race(ctx context.Context, c contestant, s *stage) (res result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%s takes longer than %s", c.name, patience))
	defer cancel()
	r, err := l.prepare(ctx, s)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, l.drop(r)) }()
	conn, err := ch.Dial(ctx, ch.Options{Address: l.address.native, ReadTimeout: time.Minute})
	if err != nil {
		return res, fmt.Errorf("connect to ClickHouse: %w", err)
	}
	defer func() { _ = conn.Close() }()

	servers := []int{l.clickhouse.PID(), s.pid, os.Getpid(), machinePID}
	before, err := cpuTimes(servers)
	if err != nil {
		return res, err
	}
	start := time.Now()
	at, err := c.start(ctx, r)
	if err != nil {
		return res, err
	}
	defer at.kill()
	var peak int64
	curve, err := watch(ctx, conn, r.database+"."+table, s.events, start, func() error {
		for _, pid := range at.pids() {
			if bytes, err := peakMemory(pid); err == nil { // else it has just ended
				peak = max(peak, bytes)
			}
		}
		return at.check()
	})
	if err != nil {
		return res, fmt.Errorf("%s: %w", c.name, err)
	}
	after, err := cpuTimes(servers)
	if err != nil {
		return res, err
	}
	cpu, err := at.finish(ctx)
	if err != nil {
		return res, fmt.Errorf("%s: %w", c.name, err)
	}
	if err := r.verify(ctx, c.name); err != nil {
		return res, err
	}
	for i := range after {
		after[i] -= before[i]
	}
	others := max(0, after[3]-after[0]-after[1]-after[2]-cpu)
	millions := float64(s.events) / 1e6
	return result{
		Contestant: c.name, Events: s.events, Seconds: curve.total().Seconds(),
		Rate: float64(s.events) / curve.total().Seconds(), Steady: curve.steady(), CPU: cpu.Seconds() / millions,
		ServerCPU: after[0].Seconds() / millions, BrokerCPU: after[1].Seconds() / millions, PeakBytes: peak, Allocs: r.allocs,
		Others: others.Seconds() / curve.total().Seconds() / float64(runtime.NumCPU()),
	}, nil
}

// verify refuses a contestant that is fast because it is wrong. The limit inserts rows of its own, so of it only the
// number counts.
func (r *run) verify(ctx context.Context, name string) error {
	got, err := query(ctx, r.server, "SELECT count(), sum(data_id), sum(result) FROM "+r.database+"."+table)
	if err != nil {
		return err
	}
	want := fmt.Sprintf("%d\t%d\t%s", r.stage.events, r.stage.dataIDs, decimal3(r.stage.results))
	if strings.HasPrefix(name, "limit") {
		got, want = strings.Split(got, "\t")[0], fmt.Sprint(r.stage.events)
	}
	if got != want {
		return fmt.Errorf("%s: the table holds %q, want %q: rows, sum of data_id, sum of result", name, got, want)
	}
	return nil
}

// decimal3 writes thousandths as ClickHouse prints a Decimal, without trailing zeros.
func decimal3(thousandths int64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%03d", thousandths/1000, thousandths%1000), "0"), ".")
}

func cpuTimes(pids []int) ([]time.Duration, error) {
	times := make([]time.Duration, len(pids))
	for i, pid := range pids {
		var err error
		if times[i], err = cpuTime(pid); err != nil {
			return nil, fmt.Errorf("read the processor time of process %d: %w", pid, err)
		}
	}
	return times, nil
}

// execute runs a statement that returns nothing.
func execute(ctx context.Context, server address, statement string) error {
	_, err := query(ctx, server, statement)
	return err
}

// query runs a statement over HTTP and returns its result as tab-separated text.
func query(ctx context.Context, server address, statement string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+server.http+"/", strings.NewReader(statement))
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%.80s…: %s", statement, strings.TrimSpace(string(text)))
	}
	return strings.TrimSpace(string(text)), nil
}
