package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ClickHouse/ch-go/proto"
)

// The test binary stands in for the program when that starts parts of itself as processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		os.Exit(command(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) //nolint:forbidigo // it is a main
	}
	m.Run()
}

// Every contestant brings a small topic into the table, and the report says so: benchmarks that nobody runs for a while
// must not rot.
func TestEveryContestantFinishes(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	out := t.TempDir()
	var stdout, stderr strings.Builder
	args := []string{"-only", "throughput", "-events", "20000", "-rounds", "1", "-out", out}
	if code := command(t.Context(), args, &stdout, &stderr); code != 0 {
		t.Fatalf("exit %d\n%s", code, &stderr)
	}
	text, err := os.ReadFile(filepath.Join(out, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Sections) != 1 {
		t.Fatalf("%d sections, want 1", len(r.Sections))
	}
	seen := map[string]result{}
	for _, x := range r.Sections[0].Results {
		seen[x.Contestant] = x
	}
	for _, name := range []string{"limit", "projector", "Kafka engine", "naive"} {
		x, ok := seen[name]
		if !ok || x.Events != 20_000 || x.Rate <= 0 || x.ServerCPU <= 0 {
			t.Errorf("%s: %+v", name, x)
		}
		if process := name != "Kafka engine"; process != (x.CPU > 0 && x.PeakBytes > 0) {
			t.Errorf("%s: processor time %v, peak %d", name, x.CPU, x.PeakBytes)
		}
		if !strings.Contains(stdout.String(), "| "+name+" |") {
			t.Errorf("%s is not in the table\n%s", name, &stdout)
		}
	}
	if seen["projector"].Allocs <= 0 {
		t.Error("no allocations of the projector")
	}
}

func TestBackfillIsMeasured(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	var stdout, stderr strings.Builder
	if code := command(t.Context(), []string{"-only", "backfill", "-events", "20000", "-rounds", "1", "-out", t.TempDir()}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit %d\n%s", code, &stderr)
	}
	for _, name := range []string{plainSelect, chunkedSelect, copySubject} {
		if !strings.Contains(stdout.String(), "| "+name+" |") {
			t.Errorf("%s is not in the table\n%s", name, &stdout)
		}
	}
}

func TestFrozenColumnIsTheColumnsWireForm(t *testing.T) {
	c := lowCardinality()
	for _, v := range []string{"m", "s", "m", "kg/m²"} {
		c.Append(v)
	}
	f := freeze("LowCardinality(String)", c)
	var got, want proto.Buffer
	for buffer, column := range map[*proto.Buffer]proto.ColInput{&got: f, &want: c} {
		block := proto.Block{Columns: 1, Rows: 4}
		if err := block.EncodeRawBlock(buffer, proto.Version, proto.Input{{Name: "unit", Data: column}}); err != nil {
			t.Fatal(err)
		}
	}
	if string(got.Buf) != string(want.Buf) {
		t.Errorf("frozen\n%q, want\n%q", got.Buf, want.Buf)
	}
}

func TestBlocksHoldNewRecordsEachTime(t *testing.T) {
	b, err := newBlock(1000)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]bool{}
	for lane := range uint64(2) {
		b := b.from(lane * 1_000_000)
		for range 3 {
			if b.input[0].Data != proto.ColInput(&b.dataID) {
				t.Fatal("the ids that change are not those that are sent")
			}
			for _, id := range b.dataID {
				if seen[id] {
					t.Fatalf("id %d is sent twice", id)
				}
				seen[id] = true
			}
			b.next()
		}
	}
	for _, column := range b.input {
		if column.Data.Rows() != 1000 {
			t.Errorf("%s has %d rows", column.Name, column.Data.Rows())
		}
	}
}
